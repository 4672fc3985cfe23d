"""Splitting loses nothing; requests that mean nothing are refused."""

import pytest

from breeze_lab.errors import BreezeLabError
from breeze_lab.prompt import check_request, split_text, spoken_length

TEXTS = [
    "One. Two! Three? Four… “Five.” (Six.) Seven",
    "  Leading space. Trailing space.  \n\n New paragraph.\n",
    "word " * 300,
    "a" * 1201,
    "今天天气很好。我们去公园吧！你觉得怎么样？" * 20,
    "No separators at all in this rather long sentence, but commas, and clauses; and more: of them — see " * 5,
    "Version 3.14 costs $2.50. Mr. Smith said so. e.g. here.",
    "...!!!???" * 50,
    "\u3000全角空格。\u3000again.\t\ttabs " * 10,
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("limit", [1, 10, 60, 600])
def test_pieces_joined_are_the_text_and_none_is_blank(text, limit):
    pieces = split_text(text, limit)
    assert "".join(pieces) == text
    assert len(pieces) == 1 or all(any(c.isalnum() for c in piece) for piece in pieces)


@pytest.mark.parametrize("text", [text for text in TEXTS if any(c.isalnum() for c in text)])
@pytest.mark.parametrize("limit", [10, 60, 600])
def test_no_piece_is_longer_than_the_limit(text, limit):
    assert all(spoken_length(piece.strip()) <= limit for piece in split_text(text, limit))


def test_cuts_fall_at_sentence_ends_when_sentences_fit():
    assert split_text("First one here. Second one there. Third.", 20) == [
        "First one here. ",
        "Second one there. ",
        "Third.",
    ]


def test_numbers_stay_whole():
    assert split_text("It costs 1,000.50 dollars, not 3.14 or so.", 40) == [
        "It costs 1,000.50 dollars, ",
        "not 3.14 or so.",
    ]
    for limit in range(24, 60):
        pieces = split_text("It costs 1,000.50 dollars, not 3.14 or so.", limit)
        assert any("1,000.50" in piece for piece in pieces) and any("3.14" in piece for piece in pieces)


def test_short_text_stays_whole():
    assert split_text("Hello. World.", 600) == ["Hello. World."]


def test_wide_scripts_and_digits_count_three():
    assert spoken_length("天气ab") == 8
    assert spoken_length("in 1984") == 3 + 3 * 4  # nineteen eighty-four
    assert all(spoken_length(piece.strip()) <= 60 for piece in split_text("1234567 " * 40, 60))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", None, 1.0, "S0"), "text is empty"),
        ((" \n\t", None, 1.0, "S0"), "text is empty"),
        ((None, None, 1.0, "S0"), "text is of type NoneType"),
        (("hi", "   ", 1.0, "S0"), "instruction is empty"),
        (("hi", None, 2.0, "S0"), "nothing to guide by"),
        (("hi", "softly", -1.0, "S0"), "cfg_scale"),
        (("hi", "softly", float("nan"), "S0"), "cfg_scale"),
        (("hi", None, 1.0, "alice"), "Unknown speaker 'alice'"),
    ],
)
def test_requests_that_mean_nothing_are_refused(arguments, message):
    with pytest.raises(BreezeLabError, match=message):
        check_request(*arguments)


@pytest.mark.parametrize(
    "text", ["One here. Two here.\n\n* * *\n\nThree here.", "--- One. Two. ---", "...\n\nOne here. Two."]
)
def test_scene_breaks_and_signs_never_stand_alone(text):
    pieces = split_text(text, 10)
    assert "".join(pieces) == text
    assert all(any(c.isalnum() for c in piece) for piece in pieces)


def test_bytes_that_are_not_utf8_are_refused():
    for text, instruct in (("caf\udce9", None), ("hi", "bad \udcff")):
        with pytest.raises(BreezeLabError, match="not UTF-8"):
            check_request(text, instruct, 1.0, "S0")
