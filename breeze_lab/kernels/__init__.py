"""Loops that are compiled for one kind of device, and whether they run here."""

from functools import lru_cache
from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np

from ..errors import BreezeLabError


@lru_cache
def _kernels() -> tuple[Any, str]:
    """`breeze_lab.kernels.cpu`, compiled, and ""; or None and why not. It takes a while: only who needs it asks."""
    try:
        if import_module("numba").config.DISABLE_JIT:
            return None, "NUMBA_DISABLE_JIT is set"
        module = import_module(".cpu", __package__)
        module.compile_all()
        return module, ""
    except Exception as error:  # whatever is wrong with an installation, there are other rungs
        return None, " ".join(str(error).split()) or type(error).__name__


def loops() -> Any:
    """`breeze_lab.kernels.cpu`.

    Raises:
        BreezeLabError: Numba is not there, or does not work.
    """
    module, reason = _kernels()
    if module is None:
        raise BreezeLabError(f"method 'host' needs Numba: {reason}. Mend that, or use method='device'.")
    return module


def why_not() -> str:
    """Why compiled loops cannot run on this machine's CPU; empty where they can."""
    return _kernels()[1]


def loops_run_here() -> bool:
    """Whether the default device is the CPU, whose memory NumPy sees, and Numba works."""
    return mx.default_device() == mx.cpu and not why_not()


def shared(array: mx.array) -> np.ndarray:
    """The same memory as a NumPy array.

    Raises:
        BreezeLabError: not float32, or not on the CPU.
    """
    if array.dtype != mx.float32 or mx.default_device() != mx.cpu:
        raise BreezeLabError(
            "method 'host' needs a CPU and float32 weights. Load with dtype='float32' on a CPU, or use method='device'."
        )
    return np.asarray(memoryview(array))  # type: ignore[arg-type]
