"""One thread that does jobs in order, and ends in good order."""

import atexit
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future


class Worker:
    """`at_end` runs on the thread when it ends: MLX aborts the process at exit when the streams of a thread that is
    gone were not cleared on it. A daemon, so that an idle one never holds up the interpreter; `atexit` ends it.
    `interrupt` makes a job return soon.
    """

    def __init__(self, at_end: Callable[[], None], interrupt: Callable[[], None]):
        self._jobs: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_loop, args=(self._jobs, at_end), name="breeze-lab", daemon=True)
        self._thread.start()
        self._interrupt = interrupt
        atexit.register(_close, weakref.ref(self))

    def submit(self, job: Callable[[], None]) -> "Future[None]":
        future: Future[None] = Future()
        self._jobs.put((future, job))
        return future

    def close(self) -> None:
        """Interrupt the job at hand, and end. May be called twice."""
        self._interrupt()
        self._jobs.put(None)
        self._thread.join()

    def __del__(self) -> None:
        self._jobs.put(None)


def _loop(
    jobs: "queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None]", at_end: Callable[[], None]
) -> None:
    try:
        while (item := jobs.get()) is not None:
            future, job = item
            try:
                job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
            del future, job, item
    finally:
        at_end()


def _close(worker: "weakref.ref[Worker]") -> None:
    alive = worker()
    if alive is not None:
        alive.close()
