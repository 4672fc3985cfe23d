"""How many cores NumPy's BLAS takes for a frame."""

import time
from typing import Any

from threadpoolctl import ThreadpoolController

from . import blas


class Cores:
    """A context around each frame: BLAS on all cores as long as that is faster than on one.

    OpenBLAS's threads wait for one another in a busy loop. On free cores that halves a frame; on cores that other
    programs use as well it can take ten times as long. So the first frame runs on one core, the second on all, and the
    faster way is kept: a frame on all cores that is slower than the last on one core ends it for 50 frames, then for
    four times as many, and so on. Between frames NumPy has the threads that it had before.
    """

    def __init__(self) -> None:
        self.libraries = [
            library
            for library in ThreadpoolController().lib_controllers
            if library.user_api == "blas" and not blas.is_loaded(library.filepath)
        ]
        self.before = [library.get_num_threads() for library in self.libraries]
        self.walks = 1
        self.alone = 0.0  # seconds of a frame and sequence on one core
        self.pause, self.next_pause = 1, 50  # frames to run on one core

    def over(self, walks: int) -> "Cores":
        """The context for a frame of so many sequences: their number sets what it may take."""
        self.walks = walks
        return self

    def __enter__(self) -> None:
        if self.pause:
            self._set([1] * len(self.libraries))
        self.started = time.perf_counter()

    def __exit__(self, *_: Any) -> None:
        seconds = (time.perf_counter() - self.started) / self.walks
        self._set(self.before)
        if self.pause:
            self.alone, self.pause = seconds, self.pause - 1
        elif seconds > self.alone:
            self.pause, self.next_pause = self.next_pause, 4 * self.next_pause

    def _set(self, threads: list[int]) -> None:
        for library, count in zip(self.libraries, threads, strict=True):
            library.set_num_threads(count)
