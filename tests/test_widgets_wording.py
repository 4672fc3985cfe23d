"""Numbers are used as shown or refused; sentences read well and name a cure; models are shown as what they are."""

import importlib
import sys

import pytest
import widgets_fakes
from widgets_fakes import press, tone, upload, wav

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")

from breeze_lab.errors import BreezeLabError
from breeze_lab.widgets.clip import clip_from_file, short
from breeze_lab.widgets.engine import BreezeEngine
from breeze_lab.widgets.presets import EVENTS, events
from breeze_lab.widgets.session import CloneSession
from breeze_lab.widgets.text_panel import FOLDER, HUB, TextPanel
from breeze_lab.widgets.view import alike

no_swallowed_errors, studio, ready = widgets_fakes.no_swallowed_errors, widgets_fakes.studio, widgets_fakes.ready


@pytest.mark.parametrize(
    ("box", "typed", "told"),
    [
        ("seed", "-1", "Seed: choose a whole number from 0 to 4294967295."),
        ("seed", "1.5", "Seed: choose a whole number from 0 to 4294967295."),
        ("seed", "", "Seed: choose"),
        ("takes", "99", "Takes: choose a whole number from 1 to 6."),
        ("cfg", "9", "CFG: choose a number from 1 to 4."),
        ("cfg", "?", "CFG: choose"),
        ("temperature", "2.1", "Temperature: choose a number from 0 to 2."),
        ("top_k", "-3", "Top-k: choose"),
        ("top_p", "0", "Top-p: choose"),
        ("penalty", "nan", "Repetition penalty: choose"),
        ("longest", "500", "Longest piece: choose"),
    ],
)
def test_a_number_out_of_range_is_refused_and_stays_as_it_was_typed(studio, box, typed, told):
    number = getattr(studio.text, box)
    press(studio)
    number.value = typed
    assert number.label.startswith(told) and number.kind == "warn" and number.value == typed
    press(studio)
    assert studio.board.text.startswith(told) and studio.board.kind == "error" and studio.board.state == "idle"
    assert studio.session.engine.count("stream") == 1
    number.value = "1"
    assert ", " in number.label and number.kind == "info"
    press(studio)
    assert studio.session.engine.count("stream") == 2


def test_numbers_arrive_as_shown_and_an_empty_box_is_the_models_own(studio):
    text = studio.text
    asked = text.request()
    assert (asked.temperature, asked.top_k, asked.top_p, asked.repetition_penalty) == (None,) * 4
    text.seed.value, text.takes.value, text.top_k.value, text.temperature.value = "4294967295", "2", "0", "0.35"
    asked = text.request()
    assert (asked.seed, asked.takes, asked.top_k, asked.temperature) == (2**32 - 1, 2, 0, 0.35)
    assert isinstance(asked.seed, int) and "0 to 4294967295" in text.seed.label


def test_the_engine_passes_on_only_what_was_asked_for(monkeypatch):
    from breeze_lab.widgets import Request

    seen = {}
    module = importlib.import_module("breeze_lab.generate")
    monkeypatch.setattr(module, "stream_generate", lambda model, text, **options: seen.update(options) or iter(()))
    list(BreezeEngine().stream(Request("Hi", top_k=0), None, 1, None))
    assert seen["top_k"] == 0 and not {"temperature", "top_p", "repetition_penalty", "chunk_frames"} & seen.keys()


def test_a_sentence_that_begins_with_a_file_begins_as_the_file_does(studio, tmp_path):
    upload(studio, wav(0 * tone()), "my clip.wav")
    assert studio.board.text.startswith("my clip.wav is silent") and "0.0e" not in studio.board.text
    assert not studio.session.use_samples(0 * tone(), 24_000)
    assert studio.board.text.startswith("Recording is silent")
    upload(studio, b"", "me.wav")
    assert studio.board.text.startswith("me.wav arrived empty")
    (tmp_path / "bad.wav").write_bytes(b"no sound")
    studio.voice.path.value = str(tmp_path / "bad.wav")
    studio.voice.read.click()
    assert studio.board.text.startswith("The file bad.wav is text")


def test_long_names_are_cut_in_the_middle(studio):
    assert short("clip.wav") == "clip.wav"
    name = "a" * 200 + "-end.wav"
    assert len(short(name)) == 48 and short(name).endswith("-end.wav")
    upload(studio, wav(tone()), name)
    assert studio.session.clip.name == short(name) and len(studio.board.text) < 120


@pytest.mark.parametrize("path", ["x" * 5000 + ".wav", "~nobody-of-this-name/a.wav", "a\0b.wav", "nowhere.wav"])
def test_a_path_that_cannot_be_is_told_in_a_line(path):
    with pytest.raises(BreezeLabError, match="Check the path") as error:
        clip_from_file(path)
    assert len(str(error.value)) < 250


def test_what_will_not_be_spoken_is_said(studio):
    studio.text.text.value = "Well done 🎉🎉 café №5 😀!"
    assert studio.text.text.note.startswith("🎉 😀 will be passed over")
    studio.text.text.value = "20 °C, “quoted” – © and 50 €."
    assert studio.text.text.note == ""
    studio.text.text.value = "Ha (laugh) ha."
    assert studio.text.text.note.startswith("(laugh) will be passed over")  # Waft
    studio.text.choice.value = HUB
    studio.text.hub.value = "mlx-community/Breeze-TTS-2-mlx"
    assert studio.text.text.note == ""


def test_events_are_offered_only_by_a_model_that_knows_them(studio, tmp_path):
    assert studio.text.text.chips == []  # Waft
    studio.text.choice.value = HUB
    studio.text.hub.value = "mlx-community/Breeze-TTS-2-mlx-8bit"
    assert tuple(studio.text.text.chips) == EVENTS and "Events" in studio.text.manner_note.value
    (tmp_path / "config.json").write_text('{"text_frontend": "hibari_us"}')
    assert events(str(tmp_path)) == () and events(str(tmp_path / "gone")) == EVENTS


def test_a_model_is_shown_as_what_it_is(tmp_path, studio):
    def panel(source):
        session = CloneSession(widgets_fakes.FakeEngine(), source=source, voices=tmp_path)
        made = TextPanel(session, lambda action: action())
        session.close()
        return made

    hub, folder = panel("mlx-community/Breeze-TTS-2-mlx"), panel(str(tmp_path))
    assert (hub.choice.value, hub.hub.value, hub.model_source()) == (HUB, hub.session.source, hub.session.source)
    assert (folder.choice.value, folder.folder.value) == (FOLDER, str(tmp_path))
    studio.text.choice.value = FOLDER
    press(studio)
    assert studio.board.text.startswith("The box “Folder” is empty") and not studio.session.engine.calls
    studio.text.load.click()
    assert studio.board.text.startswith("The box “Folder” is empty") and not studio.session.engine.calls


def test_a_path_half_typed_reads_no_whole_disk(studio, monkeypatch):
    from pathlib import Path

    monkeypatch.setattr(Path, "rglob", lambda *_: pytest.fail("the whole disk is searched"))
    studio.text.choice.value = FOLDER
    for half in ("/", "~", "~nobody", "/tmp"):
        studio.text.folder.value = half
        assert "no model in" in studio.text.notice.value


def test_timbre_is_told_in_words():
    assert alike(-0.19) == "not like the clip (-0.19; 1 is the same, 0 another voice)"
    assert alike(0.64).startswith("near the clip") and alike(0.9).startswith("like the clip (0.90")


def test_the_streams_of_the_worker_are_cleared_when_loading_failed(monkeypatch):
    import mlx.core as mx

    cleared = []
    monkeypatch.setattr(mx, "clear_streams", lambda: cleared.append(1))
    engine = BreezeEngine()
    with pytest.raises(BreezeLabError):
        engine.load("./nowhere")
    engine.close()
    assert cleared
    monkeypatch.delitem(sys.modules, "mlx.core")
    cleared.clear()
    engine.close()
    assert not cleared  # never imported for that
