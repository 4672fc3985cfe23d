"""One worker thread, one job at a time, and a status line for every outcome."""

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import BreezeLabError
from .events import Listeners, State, Status
from .pages import Pages
from .worker import Worker

BUSY = (State.LOADING, State.WORKING)


class Stopped(Exception):
    """The job saw `stop` before it made anything."""


class Jobs(Listeners):
    """States and the status line; the work itself comes as functions that return the line of their success."""

    def __init__(self, at_end: Callable[[], None]) -> None:
        super().__init__()
        self.state = State.IDLE
        self.status = Status("info", "Choose a voice, type a text, then press “Make speech”.")
        self.notes: list[str] = []  # warnings to be added to the status line of the job
        self.pages = Pages()
        self.stop_latency_s: float | None = None
        self._cancel = threading.Event()
        self._stopped_at = 0.0
        self._lock = threading.RLock()
        self._error: BaseException | None = None
        self._worker = Worker(at_end, self._cancel.set)
        self._job: Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self.state in BUSY

    @property
    def stopping(self) -> bool:
        """`stop` was asked for; stays true until the next job begins."""
        return self._cancel.is_set()

    def say(self, kind: str, text: str, detail: str = "") -> None:
        self.status = Status(kind, text, detail)
        self.emit("status", self.status)

    def _enter(self, state: State) -> None:
        self.state = state
        self.emit("state", state)

    def report(self, error: BaseException, name: str = "") -> None:
        """Put an error into the status line: ours in its own words, any other with its type and a traceback.

        A line that begins with `name`, a file's, begins as the file does.
        """
        plain = isinstance(error, BreezeLabError) and error.__cause__ is None and not self.busy
        detail = "" if plain else "".join(traceback.format_exception(error))
        if isinstance(error, BreezeLabError):
            self.say("error", sentence(str(error), name), detail)
        elif isinstance(error, MemoryError):
            self.say("error", "The memory does not suffice. Choose a smaller model, or close other notebooks.", detail)
        else:
            told = f"{type(error).__name__}: {error}".strip().rstrip(".:")
            self.say(
                "error", f"{told}. This is a fault of the program: try again; else report the details below.", detail
            )

    def guard(self, action: Callable[..., Any], *args: Any, name: str = "") -> bool:
        """Run a short action; True when it went well, else the status line says why not."""
        try:
            action(*args)
        except Exception as error:
            self.report(error, name)
            return False
        return True

    def stop(self, why: str = "") -> None:
        """Ask the job to end. The frame loop looks once a frame; what was made is kept."""
        with self._lock:
            if not self.busy or self._cancel.is_set():
                return
            if why:
                self.notes.append(why)
            self._stopped_at = time.perf_counter()
            self._cancel.set()
        self.say("info", "Stopping after this frame…" if self.state is State.WORKING else "Stopping after loading…")

    def wait(self, timeout: float | None = None) -> State:
        """Until the job has ended."""
        if self._job is not None:
            self._job.result(timeout)
        return self.state

    def close(self) -> None:
        """Stop, and end the worker thread; the session is then of no more use."""
        self.stop()
        self._worker.close()

    def _not_while_busy(self, what: str) -> None:
        if self.busy:
            raise BreezeLabError(f"The device is at work, so it is no time to {what}. Press “Stop”, or wait.")

    def refuse(self, error: Exception) -> None:
        """Say why no job begins. The state no longer is that of the job before; one at work is left alone."""
        self.report(error)
        if not self.busy:
            self._enter(State.IDLE)

    def _begin(self, prepare: Callable[[], None], work: Callable[[], str], state: State = State.WORKING) -> bool:
        """Check, then hand `work` to the worker; it returns the status line of success. False when refused."""
        with self._lock:
            try:
                self._not_while_busy("start another job")
                prepare()
            except Exception as error:
                self.refuse(error)
                return False
            self._cancel.clear()
            self._error, self.stop_latency_s = None, None
            self.notes.clear()
            self.pages.begin()
            self._enter(state)
            self.say("info", "Loading the model…" if state is State.LOADING else "Working…")
            self._job = self._worker.submit(lambda: self._run(work))
        return True

    def _run(self, work: Callable[[], str]) -> None:
        """A job from start to end: every way out leaves a state and a status line."""
        try:
            text = work()
        except Stopped:
            self._end(State.CANCELLED, "warn", "Stopped before any sound was made. Press “Make speech” to try again.")
        except Exception as error:
            self._error = error
            self.report(error)
            self._enter(State.FAILED)
        else:
            if self._cancel.is_set():
                self._end(State.CANCELLED, "warn", text)
            else:
                self._end(State.DONE, "warn" if self.notes else "ok", text)

    def _end(self, state: State, kind: str, text: str) -> None:
        if self._cancel.is_set():
            self.stop_latency_s = time.perf_counter() - self._stopped_at
        notes = map(sentence, dict.fromkeys(self.notes))
        self.say(kind, " ".join([text, *notes]))
        self._enter(state)


def sentence(text: str, name: str = "") -> str:
    """With a capital, unless it begins with `name`."""
    return text if name and text.startswith(name) else text[:1].upper() + text[1:]
