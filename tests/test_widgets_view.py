"""The page binds the session: what is typed arrives, what happens is shown. No browser here (tests/browser)."""

import time

import numpy as np
import pytest
import widgets_fakes
from widgets_fakes import WORDS, press, tone, upload, wav

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")

from breeze_lab.widgets.events import State
from breeze_lab.widgets.mic import Mic
from breeze_lab.widgets.presets import PRESETS, model_notice

no_swallowed_errors, studio, ready = widgets_fakes.no_swallowed_errors, widgets_fakes.studio, widgets_fakes.ready


def test_an_upload_with_words_and_consent_makes_a_take(studio):
    upload(studio, wav(tone()))
    assert studio.session.clip.seconds == pytest.approx(5.0)
    assert studio.voice.upload.value == ()  # the same file may be chosen again
    assert studio.voice.wave.seconds == pytest.approx(5.0) and "Peak" in studio.voice.wave.told
    press(studio)
    assert studio.board.kind == "error" and "transcript" in studio.board.text
    studio.voice.words.value = WORDS
    assert studio.voice.words.kind == "ok"
    press(studio)
    assert "Consent" in studio.board.text
    studio.voice.consent.value = True
    press(studio)
    assert studio.board.kind == "ok" and studio.board.state == "done"
    (item,) = studio.takes.items
    assert item["number"] == 1 and ["Voice", "clip.wav"] in item["lines"]
    assert not studio.make.disabled and studio.stop.disabled


def test_a_bad_upload_is_told_and_keeps_the_clip_before_it(studio):
    upload(studio, wav(tone()))
    upload(studio, b"not a sound", "bad.wav")
    assert studio.board.kind == "error" and "bad.wav" in studio.board.text
    assert studio.session.clip.name == "clip.wav"


def test_the_trim_reaches_the_session_and_the_hint(studio):
    upload(studio, wav(tone()))
    studio.voice.words.value = WORDS
    studio.voice.wave.set_state({"start": 1.0, "end": 2.0})
    assert studio.session.clip.chosen_seconds == pytest.approx(1.0)
    assert studio.voice.words.kind == "warn" and studio.voice.wave.kind == "warn"


def test_the_microphone_hands_over_float32_and_forgets_it(studio):
    pcm = np.repeat(tone(2.0), 2)  # as at 48 kHz
    studio.voice.mic.set_state({"pcm": memoryview(pcm.tobytes()), "rate": 48_000.0, "count": 1})
    assert studio.session.clip.seconds == pytest.approx(2.0) and studio.session.clip.source == "microphone"
    assert studio.voice.mic.pcm is None
    studio.voice.mic.set_state({"problem": "The browser blocks the microphone."})
    assert studio.board.kind == "error" and "blocks" in studio.board.text


def test_a_microphone_alone_calls_back():
    mic, heard = Mic(), []
    mic.on_recording(lambda samples, rate: heard.append((samples, rate)))
    mic.set_state({"pcm": memoryview(tone(1.0).tobytes()), "rate": 44_100.0, "count": 1})
    np.testing.assert_array_equal(heard[0][0], tone(1.0))
    assert heard[0][1] == 44_100


def test_saving_and_using_a_voice_shows_it_in_the_list(studio):
    studio.voice.ready.value = "anna"
    assert studio.voice.words.value == WORDS and studio.voice.consent.layout.display == "none"
    studio.voice.name.value = "Mine"
    studio.voice.save.click()
    studio.session.wait(10)
    assert ("Mine", "Mine") in studio.voice.saved.options
    studio.voice.saved.value = "Mine"
    assert studio.session.saved == "Mine" and studio.voice.saved.value == "Mine"
    assert studio.voice.source.value == "saved" and not studio.voice.wave.trimmable
    studio.voice.new_name.value = "Yours"
    studio.voice.rename.click()
    assert studio.voice.saved.value == "Yours"
    studio.voice.delete.click()
    studio.voice.delete.click()
    assert studio.voice.saved.value == "" and studio.session.clip is None
    studio.voice.delete.click()
    assert "No saved voice is chosen" in studio.board.text


def test_presets_seed_and_request(studio):
    text = studio.text
    text.preset.value = "Whisper"
    asked = text.request()
    assert (asked.instruct, asked.cfg_scale) == (PRESETS["Whisper"].instruct, PRESETS["Whisper"].cfg_scale)
    assert asked.seed == text.request().seed == 7  # kept
    text.lock.value = False
    seeds = {text.request().seed for _ in range(5)}
    assert len(seeds) > 1 and int(text.seed.value) in seeds
    for preset in PRESETS.values():  # every preset is a request that works
        text.preset.value = next(name for name, p in PRESETS.items() if p is preset)
        text.request().check()


def test_messages_of_the_take_cards(studio):
    press(studio)
    sent = []
    studio.takes.send_wav = lambda *args: sent.append(args)
    message = studio.takes._handle_custom_msg
    message({"type": "wav", "number": 1, "why": "save"}, [])
    number, why, file, content = sent[0]
    assert (number, why) == (1, "save") and file.endswith(".wav") and content[:4] == b"RIFF"
    assert "downloads" in studio.board.text
    message({"type": "seed", "number": 1}, [])
    assert studio.text.seed.number() == studio.session.takes[0].seed and studio.text.lock.value
    message({"type": "drop", "number": 1}, [])
    assert studio.takes.items == []
    message({"type": "wav", "number": 1, "why": "play"}, [])
    assert studio.board.kind == "error" and "no longer" in studio.board.text
    press(studio)
    studio.clear.click()
    assert studio.takes.items == []


def test_the_player_gets_every_sample_in_order(studio):
    pieces = []
    studio.player.send = lambda content, buffers=None: pieces.append((content, buffers))
    press(studio)
    fed = [(c, b) for c, b in pieces if c["type"] == "sound"]
    heard = np.concatenate([np.frombuffer(b[0], "<f4") for _, b in fed])
    np.testing.assert_array_equal(heard, studio.session.takes[0].samples)
    assert fed[-1][0]["final"] and not any(c["final"] for c, _ in fed[:-1])


def test_buttons_follow_the_state(studio):
    studio.on_state(State.WORKING)
    assert (
        studio.make.disabled and not studio.stop.disabled and studio.voice.save.disabled and studio.text.load.disabled
    )
    studio.on_state(State.DONE)
    assert not studio.make.disabled and studio.stop.disabled and not studio.voice.save.disabled


def test_another_model_is_loaded_when_it_was_chosen(studio, tmp_path):
    press(studio)
    studio.text.choice.value = "A folder"
    studio.text.folder.value = str(tmp_path)
    press(studio)
    assert [call[1] for call in studio.session.engine.calls if call[0] == "load"] == [None, str(tmp_path)]
    studio.text.load.click()
    studio.session.wait(10)
    assert "is loaded" in studio.board.text


def test_notices_tell_memory_and_license_before_loading(tmp_path):
    assert "research license" in model_notice("mlx-community/Breeze-TTS-2-mlx-8bit")[1]
    assert "3.9 GB" in model_notice("mlx-community/Breeze-TTS-2-mlx-8bit")[0]
    assert "no model in" in model_notice(str(tmp_path))[0]
    (tmp_path / "config.json").write_text("{}")
    assert "no license file" in model_notice(str(tmp_path))[1]
    (tmp_path / "LICENSE").write_text("x")
    assert "LICENSE" in model_notice(str(tmp_path))[1]
    assert "no model in" in model_notice("./nowhere")[0]
    assert "Waft" in model_notice("")[1]


def test_a_fault_in_a_handler_reaches_the_status_line(studio, monkeypatch):
    monkeypatch.setattr(studio.text, "request", lambda: 1 / 0)
    studio.make.click()
    assert studio.board.kind == "error" and "ZeroDivisionError" in studio.board.text and studio.board.detail


def test_page_stays_responsive(studio):
    """`start` returns at once; the work is on the worker."""
    began = time.perf_counter()
    studio.session.engine.frames = 400
    studio.make.click()
    assert time.perf_counter() - began < 5 and studio.session.busy
    studio.stop.click()
    assert studio.session.wait(10) is State.CANCELLED


def test_the_app_notebook_shows_the_widget_and_voila_serves_it(monkeypatch, capsys):
    import importlib.util

    import nbformat

    from breeze_lab.widgets import __main__ as app

    book = nbformat.read(app.APP, as_version=4)
    nbformat.validate(book)
    names: dict = {}
    exec("\n".join(book.cells[-1].source.splitlines()[:-1]), names)
    shown = eval(book.cells[-1].source.splitlines()[-1], names)
    assert "bl-studio" in shown._dom_classes
    ran = []
    monkeypatch.setattr(app, "become", lambda line, env: ran.append((line, env)) or 0)
    assert app.main(["--model", "somewhere", "--port", "9000", "--no-browser"]) == 0
    line, env = ran[0]
    assert str(app.APP) in line and "--port=9000" in line and "--no-browser" in line
    assert env["BREEZE_LAB_APP_MODEL"] == "somewhere"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        app.main([])
    assert '-e ".[lab]"' in capsys.readouterr().err
