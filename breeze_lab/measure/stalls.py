"""Who waits for whom: a frame's host and device spans from measurements, and what a read costs.

The host builds a step's graph (`build` seconds), the device runs it (`run` seconds).  A read after each step makes
them take turns, build + run; without reads the device runs step n while the host builds step n + 1, so a step costs
the longer of the two.  Hence reads cost most where both are alike, and nothing where one dwarfs the other.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from ..beside import beside
from .host_reads import HostReads, count_host_reads
from .timing import Timing, alternate

if TYPE_CHECKING:
    from ..checkpoint import SpeechModel

Spans = list[tuple[float, float]]


@dataclass(frozen=True)
class Lanes:
    """Spans in milliseconds from the start of the block.

    building: the host runs Python. submitting: inside `async_eval`, which blocks while the device's queue is full.
    waiting: it stands still in a read. working: the device has work handed to it and not yet read back; without an
    asynchronous submit that is the time of the read itself.
    """

    building: Spans
    submitting: Spans
    waiting: Spans
    working: Spans

    def for_plot(self) -> dict[str, dict[str, Spans]]:
        host = {"builds": self.building, "submits": self.submitting, "waits for a value": self.waiting}
        return {"host": host, "device": {"has work": self.working}}

    @property
    def idle(self) -> float:
        """Share of the time in which the device has nothing to do."""
        end = max(b for _, b in self.building + self.waiting)
        return 1 - sum(b - a for a, b in self.working) / end


LANE_COLORS = {"builds": "blue", "submits": "sky", "waits for a value": "orange", "has work": "green"}


def lanes(seen: HostReads, submits_a_read: int | None = None) -> Lanes:
    """Spans of host and device from the events of a `count_host_reads` block.

    Args:
        submits_a_read: how many submits a read waits for; None for all before it.
    """
    waits = sorted((1e3 * e.start, 1e3 * e.end) for e in seen.reads + seen.waits)
    submits = sorted((1e3 * e.start, 1e3 * e.end) for e in seen.submits)
    end = 1e3 * seen.seconds
    edges = [0.0, *(t for span in sorted(waits + submits) for t in span), end]
    building = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    working: Spans = []
    since, queued = 0.0, 0
    for start, stop, is_read in sorted([(*w, True) for w in waits] + [(*s, False) for s in submits]):
        if queued == 0:
            since = start
        queued = max(0, queued - (submits_a_read or queued)) if is_read else queued + 1
        if is_read and queued == 0:
            working.append((since, stop))
    if queued:
        working.append((since, end))
    return Lanes(building, submits, waits, working)


def watch(run: Callable[[], Any], warmup: int = 2) -> HostReads:
    """Run `run()` a few times, the last time watched."""
    for _ in range(warmup):
        run()
    with count_host_reads() as seen:
        run()
    return seen


@dataclass(frozen=True)
class StepCosts:
    """Milliseconds of one depth step: the host builds, the device runs."""

    build: float
    run: float

    @property
    def with_reads(self) -> float:
        return self.build + self.run

    @property
    def without_reads(self) -> float:
        return max(self.build, self.run)

    @property
    def gain(self) -> float:
        """How many times faster a frame gets without the reads, at best."""
        return gain(self.build, self.run)


def gain(build: float, run: float) -> float:
    """(build + run) / max(build, run): 2 where both are alike, towards 1 where one dwarfs the other."""
    return (build + run) / max(build, run)


def step_costs(seen: HostReads) -> StepCosts:
    """Median build and wait of the steps between reads, from a watched frame that reads every code."""
    spans = lanes(seen)
    builds = sorted(b - a for a, b in spans.building)
    waits = sorted(b - a for a, b in spans.waiting)
    return StepCosts(builds[len(builds) // 2], waits[len(waits) // 2])


def compare(work: Callable[[str], Any], methods: Mapping[str, str] | list[str], repeat: int = 9) -> dict[str, Timing]:
    """Frame times of several rungs, in turns."""
    return alternate({name: lambda name=name: work(name) for name in methods}, repeat)


def read_cost(chain: int = 100, repeat: int = 9) -> tuple[Timing, Timing]:
    """A chain of tiny additions: each result read by the host, and only the last one."""
    x = mx.zeros((8,))
    mx.eval(x)

    def each() -> None:
        y = x
        for _ in range(chain):
            y = y + 1
            y[0].item()

    def last() -> None:
        y = x
        for _ in range(chain):
            y = y + 1
        y[0].item()

    times = alternate({"each": each, "last": last}, repeat)
    return times["each"], times["last"]


def read_beside(operations: int, reads: int = 100) -> float:
    """Mean milliseconds to read the end of 30 tiny additions while another thread computes, if `operations` are not 0.

    That thread hands MLX so many products of matrices at a time. The reads come 2 ms apart, at any moment of them.
    """
    matrix, stop = mx.full((256, 256), 1 / 256), threading.Event()
    mx.eval(matrix)

    def compute() -> None:
        while not stop.is_set():
            x = matrix
            for _ in range(operations):
                x = x @ matrix
            mx.eval(x)

    def read() -> float:
        time.sleep(0.002)
        began, y = time.perf_counter(), mx.zeros(())
        for _ in range(30):
            y = y + 1
        y.item()
        return time.perf_counter() - began

    with beside() as start:
        other = start(compute) if operations else None
        try:
            return 1e3 * fmean([read() for _ in range(reads)])
        finally:
            stop.set()
            if other is not None:
                other.result()


def watch_loop(
    model: "SpeechModel", text: str, *, ahead: bool, frames: int = 6, seed: int = 7
) -> tuple[HostReads, list[list[int]]]:
    """The frame loop with the rung "device", watched: one frame ahead, or each frame read before the next is built."""
    from ..keys import KeySequence
    from ..loop import FrameLoop
    from ..prompt import PromptBuilder
    from ..samplers import Sampling

    prompt = PromptBuilder(model, instruct=None, guided=False, speaker="S0").build(text)
    for limit in (2, frames):  # two frames to warm up
        loop = FrameLoop(model, KeySequence(seed), Sampling(), 1.0, "device", limit, None)
        loop.ahead = ahead
        loop.prefill(prompt)
        with count_host_reads() as seen:
            codes = list(loop.frames())
    return seen, codes
