"""What the page shows as chosen is what speaks; the saved list is that of the folder, whoever changed it."""

import threading

import pytest
import widgets_fakes
from widgets_fakes import WORDS, FakeEngine, page, press, tone, upload, wav

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")

from breeze_lab.widgets.events import State
from breeze_lab.widgets.voices import NOTHING

no_swallowed_errors, studio, ready = widgets_fakes.no_swallowed_errors, widgets_fakes.studio, widgets_fakes.ready


def shown(studio):
    """The place that is shown, and what is chosen there."""
    panel = studio.voice
    (place,) = (name for name, box in panel.panels.items() if box.layout.display != "none")
    assert place == panel.source.value
    return place, {"ready": panel.ready.value, "saved": panel.saved.value}.get(place, panel.wave.seconds)


def spoken(studio):
    press(studio)
    assert studio.board.kind == "ok", studio.board.text
    return studio.session.takes[0].voice


@pytest.mark.parametrize("place", NOTHING)
def test_where_nothing_is_chosen_nothing_speaks(studio, place):
    assert spoken(studio) == ""  # made up, as the user wants it
    studio.voice.source.value = place
    press(studio)
    assert studio.board.kind == "error" and NOTHING[place] in studio.board.text and "“Made up”" in studio.board.text
    assert studio.session.engine.count("stream") == 1
    assert studio.board.state == "idle" and studio.session.state is State.IDLE  # no longer that of the take before


def test_a_refused_file_leaves_no_voice_of_another_place_behind(studio):
    studio.voice.source.value = "ready"
    studio.voice.ready.value = "anna"
    studio.voice.source.value = "upload"
    assert shown(studio) == ("upload", 0.0)
    upload(studio, b"", "empty.wav")
    assert studio.board.text.startswith("empty.wav arrived empty")
    press(studio)
    assert NOTHING["upload"] in studio.board.text and not studio.session.takes


def test_each_place_keeps_its_choice_with_words_and_consent(studio):
    upload(studio, wav(tone()))
    studio.voice.words.value, studio.voice.consent.value = WORDS, True
    studio.voice.source.value = "ready"
    studio.voice.ready.value = "bert"
    assert spoken(studio) == "bert"
    studio.voice.source.value = "upload"
    assert shown(studio)[1] == pytest.approx(5.0) and studio.voice.words.value == WORDS
    assert spoken(studio) == "clip.wav"
    studio.voice.source.value = "ready"
    assert shown(studio) == ("ready", "bert") and not studio.session.consent
    studio.voice.ready.value = ""
    press(studio)
    assert NOTHING["ready"] in studio.board.text
    studio.voice.source.value = "none"
    assert spoken(studio) == ""


def test_the_page_follows_what_a_cell_chooses(studio):
    assert studio.session.use_ready("anna")
    assert shown(studio) == ("ready", "anna")
    assert studio.session.use_samples(tone(), 24_000)
    assert shown(studio) == ("microphone", pytest.approx(5.0))


def test_a_choice_that_fails_is_not_shown(studio, ready):
    studio.voice.source.value = "ready"
    studio.voice.ready.value = "anna"
    (ready / "bert.wav").write_bytes(b"")
    studio.voice.ready.value = "bert"
    assert studio.board.kind == "error" and shown(studio) == ("ready", "anna")
    assert spoken(studio) == "anna"


def test_a_recording_that_ends_in_the_middle_of_a_job_is_kept(tmp_path, ready):
    gate = threading.Semaphore(0)
    made = page(tmp_path, FakeEngine(gate=gate))
    made.voice.source.value = "none"
    made.make.click()
    made.voice.mic.set_state({"pcm": memoryview(tone(2.0).tobytes()), "rate": 24_000.0, "count": 1})
    assert made.session.clip is None and made.board.kind == "info"
    gate.release(1000)
    made.session.wait(10)
    assert made.session.takes[0].voice == "" and shown(made) == ("microphone", pytest.approx(2.0))
    made.session.close()


def save(studio, name):
    studio.voice.source.value = "ready"
    studio.voice.ready.value = "anna"
    studio.voice.name.value = name
    studio.voice.save.click()
    studio.session.wait(10)


@pytest.fixture
def two(tmp_path, ready):
    """Two pages on one shelf."""
    pages = page(tmp_path), page(tmp_path)
    yield pages
    for one in pages:
        one.session.close()


def names(studio):
    return [name for _, name in studio.voice.saved.options if name]


def test_the_saved_list_is_read_again_when_it_is_opened(two):
    here, there = two
    save(here, "Mine")
    there.voice.source.value = "saved"
    assert names(there) == ["Mine"]
    there.voice.saved.value = "Mine"
    here.session.delete_voice("Mine")
    there.voice.source.value = "none"
    there.voice.source.value = "saved"
    assert names(there) == [] and shown(there) == ("saved", "")
    press(there)
    assert NOTHING["saved"] in there.board.text


@pytest.mark.parametrize("act", ["choose", "rename", "delete"])
def test_a_saved_voice_that_another_page_deleted_leaves_the_list_with_the_error(two, act):
    here, there = two
    save(here, "Mine")
    save(here, "Yours")
    there.voice.source.value = "saved"
    there.voice.saved.value = "Yours" if act == "choose" else "Mine"
    here.session.delete_voice("Mine")
    if act == "choose":
        there.voice.saved.value = "Mine"
    else:
        there.voice.new_name.value = "Other"
        there.voice._doomed = "Mine"
        getattr(there.voice, act).click()
    assert there.board.kind == "error" and "no saved voice “Mine”" in there.board.text
    assert names(there) == ["Yours"] and shown(there) == ("saved", "Yours" if act == "choose" else "")


def test_a_saved_voice_that_another_page_deleted_is_refused_and_no_longer_shown(two):
    here, there = two
    save(here, "Mine")
    there.voice.source.value = "saved"
    there.voice.saved.value = "Mine"
    here.session.delete_voice("Mine")
    press(there)
    assert "no saved voice “Mine”" in there.board.text and shown(there) == ("saved", "") and names(there) == []


def test_a_voice_saved_anew_under_the_same_name_is_read_anew(two):
    here, there = two
    save(here, "Mine")
    there.voice.source.value = "saved"
    there.voice.saved.value = "Mine"
    assert spoken(there) == "Mine"
    path = here.session.shelf.path("Mine")
    path.write_text(path.read_text().replace("salt", "soft"))
    assert spoken(there) == spoken(there) == "Mine"
    assert there.session.engine.count("load_voice") == 2


def test_a_deleted_voice_leaves_nothing_chosen(studio):
    save(studio, "Mine")
    studio.voice.source.value = "saved"
    studio.voice.saved.value = "Mine"
    studio.voice.delete.click()
    assert "Press Delete again" in studio.board.text and names(studio) == ["Mine"]
    studio.voice.saved.value = ""
    studio.voice.saved.value = "Mine"
    studio.voice.delete.click()
    assert names(studio) == ["Mine"]  # a press of long ago does not count
    studio.voice.delete.click()
    assert "was deleted" in studio.board.text and shown(studio) == ("saved", "") and names(studio) == []
    press(studio)
    assert NOTHING["saved"] in studio.board.text


def test_a_typed_name_stays_when_the_list_changes_otherwise(studio):
    studio.voice.name.value = "Half a na"
    studio.session.list_voices()
    assert studio.voice.name.value == "Half a na"
    save(studio, "Whole")
    assert studio.voice.name.value == ""


def test_a_name_may_not_be_changed_to_itself_and_a_long_one_is_not_echoed(studio):
    save(studio, "Mine")
    assert not studio.session.rename_voice("Mine", " Mine ")
    assert studio.board.text == "“Mine” is its name already. Type another one."
    assert not studio.session.rename_voice("Mine", "x" * 300)
    assert studio.board.text == "The name has 300 characters. Use 60 at most."
    assert names(studio) == ["Mine"]
