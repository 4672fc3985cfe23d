"""The front-ends: pinned by hand-written readings, not by the library's own output."""

import threading

import pytest

from breeze_lab.errors import BreezeLabError
from breeze_lab.text import frontend, hibari_us

SAME = [  # (as written, as it is said)
    ("Dr. Smith lives here.", "Doctor Smith lives here."),
    ("It costs $3.50.", "It costs three dollars and fifty cents."),
    ("She was born in 1999.", "She was born in nineteen ninety nine."),
    ("About 50% agreed.", "About fifty percent agreed."),
    ("Meet me at 7:45 p.m.", "Meet me at seven forty five P M."),
    ("He came 3rd.", "He came third."),
    ("Look at www.example.com now.", "Look at double u double u double u dot example dot com now."),
    ("A naïve plan.", "A naive plan."),
    ("It\u2019s 10 km away.", "It's ten kilometers away."),
]


def sounds(text: str) -> str:
    """The phonemes without stress marks and punctuation."""
    return "".join(c for c in hibari_us(text) if c.isalpha() and c not in "ˈˌ")


@pytest.mark.parametrize(("written", "said"), SAME)
def test_numbers_abbreviations_and_names_are_said_as_words(written, said):
    assert sounds(written) == sounds(said)


def test_phonemes_of_plain_words():
    assert hibari_us("the cat") == "ðə kˈæt"


@pytest.mark.parametrize(
    "tag",
    [
        "[S0]",
        "[S9]",
        "<ins_bos>A man speaks slowly, 3 times.<ins_eos>",
        "(laugh)",
        "(clears throat)",
        "[笑]",
        "<|AUDIO|>",
        "<|audio_eos|>",
    ],
)
def test_tags_and_events_pass_untouched(tag):
    assert hibari_us(f"{tag}the cat") == f"{tag}ðə kˈæt"
    assert hibari_us(f"the cat {tag} the cat") == f"ðə kˈæt {tag} ðə kˈæt"


def test_other_parentheses_are_read():
    assert "(" in hibari_us("the cat (black)") and "black" not in hibari_us("the cat (black)")


def test_an_event_alone_is_a_text():
    assert hibari_us("[S0](laugh)") == "[S0](laugh)"


@pytest.mark.parametrize("text", ["", "   ", "...!?", "* * *", "[S0]!?", "😀."])
def test_a_text_without_a_word_is_refused(text):
    with pytest.raises(BreezeLabError, match="nothing to say|word"):
        hibari_us(text)


@pytest.mark.parametrize(
    "text", ["你好", "(laugh) 你好", "Hello 你好 world.", "Привет, мир.", "Γειά σου", "the angle π"]
)
def test_letters_of_other_scripts_are_refused_by_name_and_never_dropped(text):
    with pytest.raises(BreezeLabError, match="cannot read '[^a-zA-Z]+' aloud.*English"):
        hibari_us(text)


@pytest.mark.parametrize("text", ["Café naïve Ångström.", "５ ｆｕｌｌ width", "10 µm", "ﬁne", "25 °C"])
def test_latin_letters_of_any_style_are_read(text):
    assert any(c.isalpha() for c in hibari_us(text))


def test_no_frontend_leaves_the_text():
    assert frontend(None)("Dr. 3 [S0]") == "Dr. 3 [S0]"


def test_an_unknown_frontend_names_the_known_ones():
    with pytest.raises(BreezeLabError, match="hibari_us"):
        frontend("klingon")


def test_many_threads_read_alike():
    texts, out = [f"Number {i} and a zorblaxian word." for i in range(8)], {}
    threads = [threading.Thread(target=lambda t=t: out.__setitem__(t, hibari_us(t))) for t in texts]
    [t.start() for t in threads], [t.join() for t in threads]
    assert out == {t: hibari_us(t) for t in texts}
