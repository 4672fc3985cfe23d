"""What the models and the codecs stand on: norms, rotary positions, attention, gated MLP.

Shapes: B batch, S positions, H heads, D head dim, C channels.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
import numpy as np


class Cache(Protocol):
    """What attention asks of a key/value cache of one layer."""

    offset: int

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]: ...


UNPACKED = (1024, 1_000_000)
"""Up to this many outputs, and products, OpenBLAS multiplies a few rows by a matrix that it has not packed first: at
15 to 20 GB/s instead of 5 (0.3.31 on an AVX-512 Xeon, one thread)."""


class Linear(nn.Linear):
    """y = x W^T + b. On a CPU a few rows meet a large matrix in blocks of its outputs, see `UNPACKED`."""

    def __call__(self, x: mx.array) -> mx.array:
        outputs, inputs = self.weight.shape
        rows = x.size // inputs
        few = 0 < rows <= 8 and x.dtype == mx.float32 and mx.default_device() == mx.cpu
        blocks = _blocks(rows, outputs, inputs) if few else 1
        if blocks == 1:
            return super().__call__(x)
        weight = self.weight.reshape(blocks, outputs // blocks, inputs)
        y = x.reshape(rows, inputs) @ weight.swapaxes(1, 2)
        y = (y if rows == 1 else y.swapaxes(0, 1)).reshape(*x.shape[:-1], outputs)
        return y + self.bias if "bias" in self else y


@lru_cache
def _blocks(rows: int, outputs: int, inputs: int) -> int:
    """The fewest equal blocks of outputs within the limits; 1 where 64 are not enough."""
    most = min(UNPACKED[0], UNPACKED[1] // (rows * inputs))
    return next((n for n in range(1, 65) if outputs % n == 0 and outputs // n <= most), 1)


class OffsetRMSNorm(nn.Module):
    """Gemma's norm: the learned weight is an offset from one, applied in float32."""

    def __init__(self, dims: int, eps: float):
        super().__init__()
        self.weight = mx.zeros((dims,))
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, 1.0 + self.weight.astype(mx.float32), self.eps).astype(x.dtype)


class Rope:
    """Rotary position embedding on [B, H, S, D], halves rotated.

    Args:
        dims: D.
        theta: base of the wavelengths.
        factor: "linear" scaling; positions are divided by it.
        llama3: a rope_scaling object of type llama3, or None. Long wavelengths are stretched by its factor, short
            ones kept, those between interpolated (Llama 3.1 reference implementation).
    """

    def __init__(self, dims: int, theta: float, factor: float = 1.0, llama3: dict[str, Any] | None = None):
        self.dims, self.theta, self.scale = dims, theta, 1.0 / factor
        # NumPy, so that the table is a plain constant that any thread may use.
        periods = None if llama3 is None else _llama3_periods(dims, theta, llama3)
        self.wavelengths = None if periods is None else mx.array(periods)
        exact = theta ** (np.arange(0, dims, 2, dtype=np.float64) / dims) if periods is None else periods
        self.frequencies = self.scale / exact  # float64 [D/2], radians a position
        self._turns = lru_cache(maxsize=64)(lambda position: mx.array(_turn(position * self.frequencies)))

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        single = x.shape[2] == 1 and x.dtype == mx.float32
        if single and isinstance(offset, int) and mx.default_device() == mx.cpu:
            # One product instead of the ten operations that mx.fast.rope falls back to on a CPU.
            return x @ self._turns(offset)
        base = None if self.wavelengths is not None else self.theta
        return mx.fast.rope(
            x, self.dims, traditional=False, base=base, scale=self.scale, offset=offset, freqs=self.wavelengths
        )


def _turn(angles: np.ndarray) -> np.ndarray:
    """float32 [D, D] that rotates a row [x1, x2] of D = 2 n values by `angles` [n]: a matrix for one position."""
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.block([[cos, sin], [-sin, cos]]).astype(np.float32)


def _llama3_periods(dims: int, theta: float, scaling: dict[str, Any]) -> np.ndarray:
    """float32 [D/2] inverse frequencies after llama3 scaling."""
    periods = theta ** (np.arange(0, dims, 2, dtype=np.float64) / dims)
    factor, low, high = (scaling[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = scaling["original_max_position_embeddings"] / (2 * np.pi * periods)  # rotations within the old context
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (periods / ((1 - kept) / factor + kept)).astype(np.float32)


class Attention(nn.Module):
    """Grouped-query attention over [B, S, C].

    Args:
        norm: makes the norm of queries and keys per head (Qwen3, T5Gemma2), or None (Llama).
    """

    def __init__(
        self,
        dims: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rope: Rope,
        *,
        scale: float | None = None,
        norm: Callable[[int], nn.Module] | None = None,
    ):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        self.scale = head_dim**-0.5 if scale is None else scale
        self.rope = rope
        self.q_proj = Linear(dims, heads * head_dim, bias=False)
        self.k_proj = Linear(dims, kv_heads * head_dim, bias=False)
        self.v_proj = Linear(dims, kv_heads * head_dim, bias=False)
        self.o_proj = Linear(heads * head_dim, dims, bias=False)
        self.has_norm = norm is not None
        if norm is not None:
            self.q_norm, self.k_norm = norm(head_dim), norm(head_dim)

    def __call__(self, x: mx.array, mask: mx.array | str | None = None, cache: Cache | None = None) -> mx.array:
        q, k, v = (
            _split_heads(projection(x), heads)
            for projection, heads in (
                (self.q_proj, self.heads),
                (self.k_proj, self.kv_heads),
                (self.v_proj, self.kv_heads),
            )
        )
        if self.has_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        offset = 0 if cache is None else cache.offset
        q, k = self.rope(q, offset), self.rope(k, offset)
        if cache is not None:
            k, v = cache.update_and_fetch(k, v)
        return self.o_proj(_join_heads(mx.fast.scaled_dot_product_attention(q, k, v, scale=self.scale, mask=mask)))


def _split_heads(x: mx.array, heads: int) -> mx.array:
    """[B, S, H * D] -> [B, H, S, D]; for one position that is a reshape alone."""
    B, S, width = x.shape
    if S == 1:
        return x.reshape(B, heads, 1, width // heads)
    return x.reshape(B, S, heads, width // heads).transpose(0, 2, 1, 3)


def _join_heads(x: mx.array) -> mx.array:
    """[B, H, S, D] -> [B, S, H * D]."""
    B, H, S, D = x.shape
    return (x if S == 1 else x.transpose(0, 2, 1, 3)).reshape(B, S, H * D)


def silu(x: mx.array) -> mx.array:
    """x sigmoid(x); a plain function, so that models can be copied, which MLX's compiled one cannot be."""
    return nn.silu(x)


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)) on [B, S, C]."""

    def __init__(self, dims: int, hidden: int, activation: Callable[[mx.array], mx.array] = silu):
        super().__init__()
        self.activation = activation
        self.gate_proj = Linear(dims, hidden, bias=False)
        self.up_proj = Linear(dims, hidden, bias=False)
        self.down_proj = Linear(hidden, dims, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Pre-norm block of Llama and Qwen3 on [B, S, C]."""

    def __init__(self, dims: int, hidden: int, attention: Attention, eps: float):
        super().__init__()
        self.self_attn = attention
        self.mlp = GatedMLP(dims, hidden)
        self.input_layernorm = nn.RMSNorm(dims, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(dims, eps=eps)

    def __call__(self, x: mx.array, mask: mx.array | str | None = None, cache: Cache | None = None) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


def run_causal(layers: list, x: mx.array, caches: list | None) -> mx.array:
    """Run decoder layers over [B, S, C]: causal within S, and over everything the caches hold already."""
    mask = "causal" if x.shape[1] > 1 else None
    for index, layer in enumerate(layers):
        x = layer(x, mask, None if caches is None else caches[index])
    return x
