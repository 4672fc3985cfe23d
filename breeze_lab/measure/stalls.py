"""Who waits for whom: a frame's host and device spans from measurements, and what a read costs.

The host builds a step's graph (`build` seconds), the device runs it (`run` seconds).  A read after each step makes
them take turns, build + run; without reads the device runs step n while the host builds step n + 1, so a step costs
the longer of the two.  Hence reads cost most where both are alike, and nothing where one dwarfs the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .host_reads import HostReads, count_host_reads
from .timing import Timing, alternate

Spans = list[tuple[float, float]]


@dataclass(frozen=True)
class Lanes:
    """Spans in milliseconds from the start of the block.

    building: the host runs Python. waiting: the host stands still in a read. working: the device has work handed to it
    and not yet read back; without an asynchronous submit that is the time of the read itself.
    """

    building: Spans
    waiting: Spans
    working: Spans

    def for_plot(self) -> dict[str, dict[str, Spans]]:
        return {
            "host": {"builds the graph": self.building, "waits for a value": self.waiting},
            "device": {"has work": self.working},
        }

    @property
    def idle(self) -> float:
        """Share of the time in which the device has nothing to do."""
        end = max(b for _, b in self.building + self.waiting)
        return 1 - sum(b - a for a, b in self.working) / end


def lanes(seen: HostReads) -> Lanes:
    """Spans of host and device from the events of a `count_host_reads` block."""
    waits = sorted((1e3 * e.start, 1e3 * e.end) for e in seen.reads + seen.waits)
    submits = sorted(1e3 * e.start for e in seen.submits)
    edges = [0.0, *(t for span in waits for t in span), 1e3 * seen.seconds]
    building = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    working: Spans = []
    for start, end in waits:
        since = working[-1][1] if working else 0.0
        queued = [t for t in submits if since <= t <= start]
        working.append((queued[0] if queued else start, end))
    return Lanes(building, waits, working)


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
