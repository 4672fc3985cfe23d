"""Work in a thread beside the caller's."""

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import mlx.core as mx


class Beside:
    """Calls functions one after another in a thread of its own, until nobody holds this object; see `beside`.

    MLX's arrays that are not computed yet belong to the thread that made them: what one call leaves to the next may be
    such arrays, what the caller passes and gets should be computed ones, or NumPy's.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue = SimpleQueue()
        self._guard, self._ended = threading.Lock(), threading.Event()
        thread = threading.Thread(target=_work, args=(self._calls,), daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._calls, self._guard, self._ended, thread)  # at the interpreter's exit too

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Start a call; the future has its result, or raises what it raised.

        Raises:
            RuntimeError: the interpreter is ending, as for a thread that still speaks then.
        """
        future: Future = Future()
        with self._guard:
            if self._ended.is_set():
                raise RuntimeError("The interpreter is ending: no call can be started.")
            self._calls.put((future, function, arguments))
        return future


def _work(calls: SimpleQueue) -> None:
    try:
        while (call := calls.get()) is not None:
            future, function, arguments = call
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
            del call, future, function, arguments
    finally:
        mx.clear_streams()  # MLX may abort at exit where a thread ends without


def _end(calls: SimpleQueue, guard: threading.Lock, ended: threading.Event, thread: threading.Thread) -> None:
    with guard:  # a call after the last one would never be answered
        ended.set()
        calls.put(None)
    while thread.is_alive():
        with suppress(KeyboardInterrupt):  # it has only one call to finish
            thread.join()


_idle: list[Beside] = []


@contextmanager
def beside() -> Iterator[Beside]:
    """An idle one, or a new one. It is kept for the next who asks: every new thread costs memory for good."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = Beside()
    try:
        yield worker
    finally:
        _idle.append(worker)
