"""The controller of the cloning widget, with an engine that hums."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import soundfile
import widgets_fakes
from widgets_fakes import FRAME, RATE, WORDS, FakeEngine, tone

from breeze_lab.errors import BreezeLabError
from breeze_lab.widgets.events import State
from breeze_lab.widgets.growing import hold_seconds
from breeze_lab.widgets.session import CloneSession
from breeze_lab.widgets.takes import Request

no_swallowed_errors, ready = widgets_fakes.no_swallowed_errors, widgets_fakes.ready


@pytest.fixture
def make(tmp_path):
    sessions = []

    def build(**options) -> CloneSession:
        engine = FakeEngine(**options)
        session = CloneSession(engine, shelf=tmp_path / "shelf", voices=tmp_path / "ready")
        sessions.append(session)
        return session

    yield build
    for session in sessions:
        for _ in range(500):
            if session.engine.gate:
                session.engine.gate.release()
        session.close()
        assert session.engine.closed


def with_clip(session, seconds=5.0):
    assert session.use_samples(tone(seconds), RATE)
    session.transcript, session.consent = WORDS, True
    return session


def test_a_job_goes_through_its_states_and_ends_in_a_status_line(make):
    session = with_clip(make())
    seen, sounds, steps = [], [], []
    session.on("state", seen.append)
    session.on("sound", sounds.append)
    session.on("progress", steps.append)
    assert session.state is State.IDLE
    assert session.start(Request("Hello.", seed=3))
    assert session.wait(10) is State.DONE
    assert [s for i, s in enumerate(seen) if i == 0 or s != seen[i - 1]] == ["working", "loading", "working", "done"]
    assert session.status.kind == "ok" and "real-time factor" in session.status.text
    take = session.takes[0]
    assert take.seed == 3 and take.finish_reason == "eos" and len(take.samples) == 10 * FRAME
    np.testing.assert_array_equal(np.concatenate([s.samples for s in sounds]), take.samples)
    assert [s.is_first for s in sounds] == [True] + [False] * 9
    assert [s.is_final for s in sounds] == [False] * 9 + [True]
    assert steps[-1].seconds == pytest.approx(0.8) and steps[-1].first_audio_s > 0
    assert session.engine.threads == {"breeze-lab"}  # nothing of the model is touched elsewhere


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda s: setattr(s, "transcript", "  "), "transcript of the clip is missing"),
        (lambda s: setattr(s, "consent", False), "Consent is missing"),
    ],
)
def test_a_clip_without_words_or_consent_is_refused_before_the_device_is_touched(make, spoil, told):
    session = with_clip(make())
    spoil(session)
    assert not session.start(Request("Hello."))
    assert told in session.status.text and session.status.kind == "error"
    assert session.state is State.IDLE and not session.engine.calls


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request("  "), "no text to say"),
        (Request("Hi", takes=0), "Choose 1 to"),
        (Request("Hi", seed=-1), "out of range"),
        (Request("Hi", cfg_scale=5.0, instruct="calm"), "1 to 4"),
        (Request("Hi", cfg_scale=2.0), "there is none"),
        (Request("Hi", max_seconds=0.0), "out of range"),
    ],
)
def test_a_bad_request_is_refused_with_its_cure(make, request_, told):
    session = make()
    assert not session.start(request_)
    assert told in session.status.text and not session.engine.calls


def test_a_cut_take_is_a_warning_with_its_cure(make):
    session = make()
    session.engine.reason = "max_frames"
    session.run(Request("Hello.", max_seconds=0.8))
    assert session.status.kind == "warn"
    assert "cut at 0.8 s" in session.status.text and session.status.text.endswith("or try another seed.")


def test_takes_have_their_own_seeds_and_numbers(make):
    session = make()
    made = session.run(Request("Hello.", seed=5, takes=3))
    assert [take.seed for take in reversed(made)] == [5, 6, 7]
    assert [take.number for take in session.takes] == [3, 2, 1]
    assert not np.array_equal(made[0].samples, made[1].samples)
    assert "3 takes are made" in session.status.text
    session.forget([2])
    assert [take.number for take in session.takes] == [3, 1]
    with pytest.raises(BreezeLabError, match="no longer"):
        session.take(2)


def test_the_voice_is_encoded_once_and_again_only_when_clip_words_or_model_change(make):
    session = with_clip(make())
    for _ in range(2):
        session.run(Request("Hello."))
    assert session.engine.count("encode") == 1 and session.engine.count("load") == 1
    session.transcript = WORDS + " Loudly."
    session.run(Request("Hello."))
    assert session.engine.count("encode") == 2
    assert session.trim(0.0, 4.0)
    session.run(Request("Hello."))
    assert session.engine.count("encode") == 3
    assert session.engine.calls[-2][1] == 4 * RATE  # only the selected part
    assert session.load("another")
    session.wait(10)
    session.run(Request("Hello."))
    assert session.engine.count("encode") == 4


def test_stop_is_seen_within_a_frame_and_keeps_what_was_made(make):
    gate = threading.Semaphore(3)
    session = make(frames=1000, gate=gate)
    assert session.start(Request("Hello."))
    deadline = time.monotonic() + 10
    while not session.status.text.startswith("Making") and time.monotonic() < deadline:
        time.sleep(0.01)
    while gate.acquire(blocking=False):
        gate.release()
        time.sleep(0.005)
    session.stop()
    gate.release()
    assert session.wait(10) is State.CANCELLED
    take = session.takes[0]
    assert take.finish_reason == "cancelled" and len(take.samples) <= 4 * FRAME
    assert session.stop_latency_s is not None
    assert "Stopped" in session.status.text and "kept" in session.status.text
    gate.release()
    session.engine.gate = None
    session.engine.frames = 4
    assert session.run(Request("Again."))[0].finish_reason == "eos"


def test_stop_before_the_first_sound_leaves_no_take(make):
    gate = threading.Semaphore(0)
    session = make(gate=gate)
    assert session.start(Request("Hello."))
    assert session.engine.started.wait(10)
    session.stop()
    gate.release()
    assert session.wait(10) is State.CANCELLED and not session.takes
    assert "before any sound" in session.status.text


def test_a_second_job_and_a_change_of_voice_are_refused_while_one_runs(make):
    gate = threading.Semaphore(0)
    session = make(gate=gate)
    assert session.start(Request("Hello."))
    assert not session.start(Request("Hello."))
    assert "at work" in session.status.text
    assert not session.use_none() and not session.delete_voice("x")
    session.stop()
    gate.release()
    session.wait(10)


def test_a_failure_in_the_middle_ends_in_failed_with_a_traceback_and_keeps_what_was_made(make):
    session = make(fail_at=3)
    sounds = []
    session.on("sound", sounds.append)
    assert session.start(Request("Hello."))
    assert session.wait(10) is State.FAILED
    assert "logits are not numbers" in session.status.text and "Traceback" in session.status.detail
    assert sounds[-1].is_final
    (take,) = session.takes
    assert len(take.samples) == 3 * FRAME and take.ending() == "broken off by an error"
    with pytest.raises(BreezeLabError, match="logits are not numbers"):
        session.run(Request("Hello."))
    session.engine.fail_at = None
    assert session.run(Request("Hello."))


def test_a_model_that_cannot_be_loaded_is_told_and_can_be_tried_again(make):
    session = make(fail_load=BreezeLabError("no such folder. Give another."))
    session.start(Request("Hello."))
    assert session.wait(10) is State.FAILED
    assert session.status.text.startswith("No such folder. Give another.")
    session.engine.fail_load = None
    assert session.run(Request("Hello."))


def test_load_takes_the_model_of_the_session_unless_another_is_named(make):
    session = make()
    session.source = "own"
    for named, loaded in (((), "own"), (("other",), "other"), ((), "other"), ((None,), None)):
        session.load(*named)
        session.wait(10)
        assert session.engine.calls[-1] == ("load", loaded) and "is loaded" in session.status.text


def test_a_listener_that_fails_is_logged_and_harms_nothing(make, caplog):
    session = make()

    def bad(_):
        raise KeyError("listener")

    forget = session.on("sound", bad)
    assert session.run(Request("Hello."))
    assert any("listener of 'sound' failed" in r.getMessage() for r in caplog.records)
    forget()
    caplog.clear()
    session.run(Request("Hello."))


def test_a_voice_is_saved_listed_used_without_encoding_renamed_and_deleted(make):
    session = with_clip(make())
    assert session.save_voice("My voice")
    session.wait(10)
    assert session.status.kind == "ok", session.status
    assert session.shelf.names() == ["My voice"]
    assert not session.save_voice("My voice") and "exists already" in session.status.text
    encoded = session.engine.count("encode")
    assert session.use_saved("My voice")
    assert session.clip is not None and session.clip.seconds == pytest.approx(5.0)
    take = session.run(Request("Hello."))[0]
    assert take.voice == "My voice" and session.engine.count("encode") == encoded
    assert session.rename_voice("My voice", "Other")
    assert session.saved == "Other" and session.shelf.names() == ["Other"]
    session.run(Request("Hello."))
    assert session.delete_voice("Other")
    assert session.shelf.names() == [] and not list(session.shelf.folder.iterdir())
    assert session.saved == "" and session.clip is None


@pytest.mark.parametrize("name", ["", "  ", "../up", "a/b", "x" * 61, ".hidden", "a\nb"])
def test_names_that_are_no_file_names_are_refused(make, name):
    session = with_clip(make())
    assert not session.save_voice(name)
    assert session.status.kind == "error" and not session.engine.calls


def test_ready_made_voices_bring_their_words_and_need_no_consent(make, ready):
    session = make()
    assert list(session.ready()) == ["anna", "bert"]
    assert session.use_ready("anna") and session.transcript == WORDS
    assert session.run(Request("Hello."))[0].voice == "anna"
    assert not session.use_ready("berta") and "no ready-made voice" in session.status.text


def test_library_warnings_end_in_the_status_line(make):
    session = make()
    session.load()
    session.wait(10)
    original = session.engine.stream

    def warned(*args):
        session.engine.notes.append("this model is untrained. Expect noise.")
        yield from original(*args)

    session.engine.stream = warned
    session.run(Request("Hello."))
    assert session.status.kind == "warn" and "This model is untrained." in session.status.text


def test_the_hold_covers_a_slow_device():
    assert hold_seconds(20.0, 0.4) == pytest.approx(0.25)
    for rtf in (1.0, 1.5, 3.0):
        hold = hold_seconds(20.0, rtf)
        assert hold < 24.0
        # What is left is made, at this speed, before what is held and made meanwhile has been played.
        assert (20.0 - hold) * rtf <= 20.0
    assert hold_seconds(20.0, 3.0) > hold_seconds(20.0, 1.5)
    assert hold_seconds(1700.0, 3.0) == 60.0  # a long text is heard at last, with gaps if it must be


def test_the_expected_length_follows_the_pace_of_the_reference():
    slow = Request("a" * 120).expected_seconds("b" * 50, 5.0)
    fast = Request("a" * 120).expected_seconds("b" * 90, 5.0)
    assert slow > fast > 0
    assert Request("a" * 120).expected_seconds("b", 60.0) < 40  # an implausible pace is not followed


def test_a_process_with_a_session_ends_without_an_abort(tmp_path):
    """MLX aborts at exit when a thread that used it is gone and its streams were not cleared there (about 1 in 3)."""
    code = (
        "import sys\n"
        "from breeze_lab.checkpoint import make_checkpoint\n"
        "from breeze_lab.widgets import CloneSession, Request\n"
        "make_checkpoint(sys.argv[1], 'tiny', 0)\n"
        "session = CloneSession(source=sys.argv[1])\n"
        "assert session.run(Request('Hello.', max_seconds=0.4))\n"
        "session.start(Request('Hello.', max_seconds=60))\n"  # and one is at work when the process ends
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_take_says_in_its_file_that_it_is_synthetic(make):
    import io

    take = make().run(Request("Hello.", seed=9))[0]
    with soundfile.SoundFile(io.BytesIO(take.wav())) as file:
        assert file.comment.startswith("Synthetic speech") and "seed=9" in file.comment
        np.testing.assert_allclose(file.read(dtype="float32"), take.samples, atol=1 / 32000)
    assert take.file_name() == "breeze-lab-own-voice-take1-seed9.wav"
