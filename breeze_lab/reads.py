"""Reads by the host, counted."""

import mlx.core as mx
import numpy as np


class HostReads:
    """Counts the times the host waits for a value from the device. All reads of a generation go through one."""

    def __init__(self) -> None:
        self.count = 0

    def item(self, array: mx.array) -> int:
        """Read one integer."""
        self.count += 1
        return int(array.item())  # type: ignore[arg-type]

    def list(self, array: mx.array) -> list:
        """Read a whole array."""
        self.count += 1
        return array.tolist()  # type: ignore[return-value]

    def array(self, array: mx.array) -> np.ndarray:
        """Read a whole array into NumPy."""
        self.count += 1
        return np.array(array)
