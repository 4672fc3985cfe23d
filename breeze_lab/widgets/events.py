"""What a session tells its listeners. Listeners may be called from the worker thread."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

log = logging.getLogger("breeze_lab.widgets")


class State(StrEnum):
    IDLE = "idle"  # nothing done yet
    LOADING = "loading"  # a model is being read
    WORKING = "working"  # a voice is being encoded, or speech made
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Status:
    """The one line: what happened, and what to do. `detail` is a traceback for the curious."""

    kind: str  # "info", "ok", "warn" or "error"
    text: str
    detail: str = ""


@dataclass(frozen=True)
class Sound:
    """A piece of a take, to be played at once. `hold_s`: how much to have before starting, so that no gap comes."""

    take: int
    seed: int
    samples: np.ndarray  # float32 [n], maybe empty
    rate: int
    is_first: bool
    is_final: bool
    hold_s: float
    expected_s: float  # an estimate of the whole take


@dataclass(frozen=True)
class Progress:
    take: int
    takes: int
    seconds: float  # of sound made
    expected_s: float  # an estimate of the whole
    rtf: float
    first_audio_s: float

    @property
    def part(self) -> float:
        return min(1.0, self.seconds / self.expected_s) if self.expected_s else 0.0


class Listeners:
    """Callbacks by event name. One that raises is logged and does not disturb the others or the work."""

    NAMES = ("state", "status", "progress", "sound", "model", "clip", "voices", "takes")

    def __init__(self) -> None:
        self._by_name: dict[str, list[Callable[[Any], None]]] = {name: [] for name in self.NAMES}

    def on(self, name: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Add a callback; call what is returned to take it away again."""
        self._by_name[name].append(callback)
        return lambda: self._by_name[name].remove(callback)

    def emit(self, name: str, value: Any) -> None:
        for callback in list(self._by_name[name]):
            try:
                callback(value)
            except Exception:
                log.exception("A listener of %r failed.", name)
