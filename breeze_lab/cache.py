"""Key/value caches and what they cost in bytes.

Both follow the protocol of mlx-lm (`offset`, `update_and_fetch`), one object a layer, so either may be passed where
the other is. Shapes: B batch, H key/value heads, S positions, D head dim, K codebooks.
"""

from typing import Any

import mlx.core as mx


class KVCache:
    """Grows in steps of `step` positions: the backbone's, whose length is not known beforehand.

    Buffers are [B, H, capacity, D] in the dtype of the first keys.
    """

    step = 250
    """Not 256: attention of one query over a buffer of a multiple of 256 positions, MLX gives to cuDNN on an NVIDIA
    GPU, whose 16-bit sums differ from call to call, so that a seed would not repeat (MLX 0.32.4, H200)."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append [B, H, S, D] keys and values; return all that are held, [B, H, offset, D]."""
        start, self.offset = self.offset, self.offset + keys.shape[2]
        if self.keys is None or self.offset > self.keys.shape[2]:
            self._grow(keys, values, start)
        self.keys[:, :, start : self.offset] = keys  # type: ignore[index]
        self.values[:, :, start : self.offset] = values  # type: ignore[index]
        return self.keys[:, :, : self.offset], self.values[:, :, : self.offset]  # type: ignore[index]

    def _capacity(self) -> int:
        return -(-self.offset // self.step) * self.step

    def _grow(self, keys: mx.array, values: mx.array, start: int) -> None:
        shape = (*keys.shape[:2], self._capacity() - start)
        new_keys = mx.zeros((*shape, keys.shape[3]), keys.dtype)
        new_values = mx.zeros((*shape, values.shape[3]), values.dtype)
        if self.keys is None:
            self.keys, self.values = new_keys, new_values
        else:
            self.keys = mx.concatenate([self.keys[:, :, :start], new_keys], axis=2)
            self.values = mx.concatenate([self.values[:, :, :start], new_values], axis=2)  # type: ignore[index]

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers as allocated, unused positions included."""
        return 0 if self.keys is None else self.keys.nbytes + self.values.nbytes  # type: ignore[union-attr]


class FrameCache(KVCache):
    """Exactly the positions of one frame: the depth decoder's. One more than `positions` is an error."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.positions = positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """As KVCache. Raises IndexError past the last position."""
        if self.offset + keys.shape[2] > self.positions:
            raise IndexError(f"a frame has {self.positions} positions; start a new FrameCache for the next frame")
        return super().update_and_fetch(keys, values)

    def _capacity(self) -> int:
        return self.positions


def bytes_per_position(config: Any, itemsize: int = 2) -> int:
    """Bytes that one position takes in the caches of all layers of a stack: keys and values.

    Args:
        config: a BackboneConfig or DepthConfig.
        itemsize: bytes of one element; 2 for bfloat16, 4 for float32.
    """
    return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * itemsize


def cache_bytes(config: Any, positions: int, *, step: int = 1, itemsize: int = 2) -> int:
    """Bytes allocated for `positions`, when buffers grow in steps of `step` positions."""
    return -(-positions // step) * step * bytes_per_position(config, itemsize)


def positions_per_frame(method: str, num_codebooks: int = 16) -> int:
    """Positions that the depth stack computes in one frame of `num_codebooks` codes (K).

    `recompute` runs prefixes of 2, 3, ... K positions; every cached walk runs each of the K positions once.
    """
    K = num_codebooks
    return K * (K + 1) // 2 - 1 if method == "recompute" else K
