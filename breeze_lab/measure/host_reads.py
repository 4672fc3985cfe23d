"""Count the moments at which Python waits for the device to hand a value back.

MLX is lazy: building a graph costs microseconds and returns at once.  The wait hides in innocent words, `.item()`,
`float(x)`, `if x:`, `np.array(x)`.  Inside `count_host_reads()` each of them is counted, timed and remembered.

Not seen: `memoryview(x)` and other C-level users of the buffer protocol, and NumPy functions imported by name before
the block (`from numpy import array`).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

ARRAY_METHODS = (
    "item",
    "tolist",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__complex__",
    "__array__",
    "__dlpack__",
    "__repr__",
    "__str__",
    "__format__",
)
NUMPY_FUNCTIONS = ("array", "asarray", "ascontiguousarray", "asanyarray")
WAITS = ("eval", "synchronize")
SUBMITS = ("async_eval",)


@dataclass(frozen=True)
class Event:
    """One call seen: its kind ("item", "eval", "async_eval", ...), start and end in seconds from the block's start."""

    kind: str
    start: float
    end: float


@dataclass
class HostReads:
    """What a `count_host_reads()` block saw."""

    reads: list[Event] = field(default_factory=list)
    waits: list[Event] = field(default_factory=list)
    submits: list[Event] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """Values that Python took from the device."""
        return len(self.reads)

    @property
    def kinds(self) -> dict[str, int]:
        return dict(Counter(event.kind for event in self.reads))

    @property
    def seconds_waiting(self) -> float:
        """Seconds that Python stood still in reads and in `mx.eval`."""
        return sum(event.end - event.start for event in self.reads + self.waits)

    def __str__(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.items()) or "none"
        return f"{self.count} host reads ({kinds}), {len(self.waits)} waits, {len(self.submits)} asynchronous submits"


@contextmanager
def count_host_reads() -> Iterator[HostReads]:
    """Count host reads of every thread inside the block; everything is put back afterwards.

    >>> with count_host_reads() as seen:
    ...     value = mx.array(3).item()
    >>> seen.count
    1
    """
    seen = HostReads()
    began = time.perf_counter()
    inside = threading.local()

    def spy(owner: Any, name: str, log: list[Event], kind: str, wanted: Callable[[Any], bool]) -> tuple[Any, str, Any]:
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            if getattr(inside, "busy", False) or not wanted(args[0] if args else None):
                return original(*args, **kwargs)
            inside.busy = True
            start = time.perf_counter() - began
            try:
                return original(*args, **kwargs)
            finally:
                inside.busy = False
                log.append(Event(kind, start, time.perf_counter() - began))

        setattr(owner, name, counted)
        return owner, name, original

    undo = [spy(mx.array, name, seen.reads, name.strip("_"), _always) for name in ARRAY_METHODS]
    undo += [spy(np, name, seen.reads, f"np.{name}", _holds_mlx) for name in NUMPY_FUNCTIONS]
    undo += [spy(mx, name, seen.waits, name, _always) for name in WAITS]
    undo += [spy(mx, name, seen.submits, name, _always) for name in SUBMITS]
    try:
        yield seen
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)
        seen.seconds = time.perf_counter() - began


def _always(_: Any) -> bool:
    return True


def _holds_mlx(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, mx.array) for item in value)
    return isinstance(value, mx.array)
