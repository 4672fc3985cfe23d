"""Times that can be trusted on a shared machine: warm-up apart, medians, and ratios of neighbours.

A single time on a busy machine says little.  Two things measured in turns, again and again, meet the same weather; so
the ratio of neighbours is steady where the times are not.  Notebooks show times and assert only ratios.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mlx.core as mx


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls, in order; `warmup` is the first call of all, with compilation and first touches."""

    samples: tuple[float, ...]
    warmup: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def ms(self) -> float:
        """Median in milliseconds."""
        return 1e3 * self.median

    @property
    def best(self) -> float:
        return min(self.samples)

    def __str__(self) -> str:
        low, high = min(self.samples), max(self.samples)
        return f"{self.ms:.3g} ms (of {len(self.samples)}: {1e3 * low:.3g} to {1e3 * high:.3g})"


def measure(fn: Callable[[], Any], repeat: int = 7, warmup: int = 2) -> Timing:
    """Time `fn()`, evaluating the arrays that it returns."""
    return alternate({"": fn}, repeat, warmup)[""]


def alternate(fns: Mapping[Any, Callable[[], Any]], repeat: int = 7, warmup: int = 2) -> dict[Any, Timing]:
    """Time several functions in turns, one call each a round, so that all meet the same load.

    Args:
        fns: name -> function without arguments; returned arrays are evaluated inside the timed span.
        repeat: rounds that count.
        warmup: rounds before them that do not.
    """
    first = {name: _once(fn) for name, fn in fns.items()}
    for _ in range(warmup - 1):
        for fn in fns.values():
            _once(fn)
    rounds = [{name: _once(fn) for name, fn in fns.items()} for _ in range(repeat)]
    return {name: Timing(tuple(r[name] for r in rounds), first[name]) for name in fns}


def ratio(slow: Timing, fast: Timing) -> float:
    """Median over the rounds of `slow / fast`; both from one `alternate` call."""
    return statistics.median(s / f for s, f in zip(slow.samples, fast.samples, strict=True))


def _once(fn: Callable[[], Any]) -> float:
    mx.synchronize()
    start = time.perf_counter()
    _settle(fn())
    return time.perf_counter() - start


def _settle(result: Any) -> None:
    """Wait for the device: evaluate a tree of arrays; anything else is past work."""
    if isinstance(result, (list, tuple, dict, mx.array)):
        mx.eval(result)
    mx.synchronize()


def has_gpu() -> bool:
    """Does MLX have a GPU back end here (Metal or CUDA)?"""
    return mx.is_available(mx.gpu)


def device_name() -> str:
    """The device that MLX computes on, in words."""
    if not has_gpu() or mx.default_device() == mx.cpu:
        return cpu_name()
    try:
        info: Mapping[str, Any] = mx.device_info()
    except (RuntimeError, ValueError, AttributeError):
        info = {}
    return str(info.get("device_name") or info.get("name") or "GPU")


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The processor's own name, or its architecture where the system does not tell."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def backend() -> str:
    """metal, cuda or cpu: where MLX works by default."""
    if not has_gpu() or mx.default_device() == mx.cpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def machine() -> dict[str, Any]:
    """This machine in a few plain words, fit for a record: no host name, no user, no path."""
    return {
        "device": device_name(),
        "backend": backend(),
        "cpu": cpu_name(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions(*names: str) -> dict[str, str]:
    """Versions of Python and of the installed ones of `names` (default: what the measurements rest on)."""
    found = {"python": platform.python_version()}
    for name in names or ("breeze-lab", "mlx", "mlx-cuda-13", "mlx-cuda-12", "mlx-audio", "numpy", "cmeel-openblas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
