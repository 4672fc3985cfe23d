"""A speech engine for tests of the widget: it hums, slowly on demand, and remembers what it was asked."""

import io
import json
import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from breeze_lab.widgets.engine import ModelNote
from breeze_lab.widgets.session import CloneSession

RATE, FRAME = 24_000, 1920
WORDS = "The salt breeze came across from the sea, and the gulls called."


@pytest.fixture(autouse=True)
def no_swallowed_errors(caplog):
    """A listener or a traitlets callback that raises is only logged: here it fails the test."""
    yield
    records = caplog.get_records("setup") + caplog.get_records("call")
    bad = [r for r in records if r.levelno >= logging.ERROR or "Exception in callback" in r.getMessage()]
    assert not bad, bad


@dataclass
class Piece:
    samples: np.ndarray
    is_final: bool
    finish_reason: str | None


@dataclass
class Hum:
    transcript: str
    seconds: float
    name: str = ""


@dataclass
class FakeEngine:
    frames: int = 10
    reason: str = "eos"
    gate: threading.Semaphore | None = None  # one release a frame, where the test keeps the pace
    fail_at: int | None = None
    fail_load: Exception | None = None
    notes: list[str] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    started: threading.Event = field(default_factory=threading.Event)
    closed: bool = False

    def _seen(self, *call: Any) -> None:
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)

    def load(self, source):
        self._seen("load", source)
        if self.fail_load:
            raise self.fail_load
        return ModelNote(name=source or "Hum", source=source or "hum", memory_gb=0.01, dtype="float32")

    def encode(self, samples, transcript, name):
        self._seen("encode", len(samples), transcript, name)
        return Hum(transcript, len(samples) / RATE, name)

    def stream(self, request, voice, seed, cancel):
        self._seen("stream", request.text, voice, seed)
        for frame in range(self.frames):
            self.started.set()
            if self.gate is not None:
                assert self.gate.acquire(timeout=10)
            if cancel.is_set():
                yield Piece(np.zeros(0, np.float32), True, "cancelled")
                return
            if frame == self.fail_at:
                raise RuntimeError("logits are not numbers")
            t = (np.arange(FRAME) + frame * FRAME) / RATE
            samples = (0.3 * np.sin(2 * np.pi * (100 + seed) * t)).astype(np.float32)
            last = frame == self.frames - 1
            yield Piece(samples, last, self.reason if last else None)

    def save_voice(self, voice, path, name):
        self._seen("save", name)
        Path(path).write_text(f"{name}\n{voice.transcript}\n{voice.seconds}")

    def load_voice(self, path):
        self._seen("load_voice", Path(path).name)
        name, transcript, seconds = Path(path).read_text().split("\n")
        return Hum(transcript, float(seconds), name)

    def close(self):
        self.closed = True
        self._seen("close")

    def count(self, kind: str) -> int:
        return sum(call[0] == kind for call in self.calls)


def tone(seconds=5.0, pitch=150.0, rate=RATE):
    return (0.3 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def wav(samples):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE, format="WAV")
    return buffer.getvalue()


@pytest.fixture
def ready(tmp_path):
    """A folder of ready-made voices: anna and bert."""
    folder = tmp_path / "ready"
    folder.mkdir()
    for name in ("anna", "bert"):
        soundfile.write(folder / f"{name}.wav", tone(), RATE)
        (folder / f"{name}.json").write_text(json.dumps({"transcript": WORDS, "licence": "CC0"}))
    return folder


def page(folder, engine=None):
    """A page of its own on saved and ready-made voices in `folder`; close its session."""
    from breeze_lab.widgets.view import Studio

    return Studio(CloneSession(engine or FakeEngine(), shelf=folder / "shelf", voices=folder / "ready"))


@pytest.fixture
def studio(tmp_path, ready):
    """A page where the model is to make a voice up."""
    made = page(tmp_path)
    made.voice.source.value = "none"
    yield made
    made.session.close()


def upload(studio, content, name="clip.wav"):
    """As the page does it."""
    file = {"name": name, "type": "audio/wav", "size": len(content), "content": memoryview(content), "last_modified": 0}
    studio.voice.upload.set_state({"value": [file]})


def press(studio):
    studio.make.click()
    studio.session.wait(10)
