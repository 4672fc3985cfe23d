"""How far may two right answers lie apart?  Attention errors against float64, units in the last place, flipped codes.

Attention over one query and attention over many run through different kernels.  Both are right; they round
differently.  Everything here compares each with a float64 answer made by NumPy, never only with the other.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import mlx.core as mx
import numpy as np

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
UNIT_ROUNDOFF = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of the attention under test; the default is one frame of the full-size depth decoder."""

    heads: int = 8  # H
    kv_heads: int = 2
    positions: int = 16  # S
    head_dim: int = 128  # D


@dataclass(frozen=True)
class AttentionError:
    """Largest absolute differences of one dtype on one device.

    full: one causal pass over all positions, against float64.  single: one pass a query, against float64.
    gap: the one against the other.
    """

    dtype: str
    device: str
    full: float
    single: float
    gap: float


def random_attention(shape: AttentionShape = AttentionShape(), seed: int = 0) -> tuple[np.ndarray, ...]:
    """Unit normal q [1, H, S, D], k and v [1, KV, S, D] in float64."""
    rng = np.random.default_rng(seed)
    s = shape
    q = rng.standard_normal((1, s.heads, s.positions, s.head_dim))
    k, v = (rng.standard_normal((1, s.kv_heads, s.positions, s.head_dim)) for _ in range(2))
    return q, k, v


def attention_float64(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal grouped attention in float64: the answer that the others are measured against. [1, H, S, D]"""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, axis=1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def attention_full(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
    """One causal pass over all positions, as recompute and prefill do it. [1, H, S, D]"""
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal")


def attention_single(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
    """One query at a time over the positions so far, as the cached walk does it. [1, H, S, D]"""
    steps = [
        mx.fast.scaled_dot_product_attention(
            q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1], scale=q.shape[-1] ** -0.5
        )
        for i in range(q.shape[2])
    ]
    return mx.concatenate(steps, axis=2)


def round_tf32(x: mx.array) -> mx.array:
    """float32 rounded (to nearest even) to the 10 mantissa bits that TF32 products take in; still float32."""
    bits = x.astype(mx.float32).view(mx.uint32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & 0xFFFFE000).view(mx.float32)


def attention_tf32(q: mx.array, k: mx.array, v: mx.array, *, scale: float, mask: mx.array | str | None = None):
    """`mx.fast.scaled_dot_product_attention` as a GPU with TF32 may compute it: many-query products in TF32.

    A single query goes through MLX's own kernel, as it does there. Takes a causal mask or none. [B, H, S, D]
    """
    S, L = q.shape[2], k.shape[2]
    if S == 1 or q.dtype != mx.float32:
        return _sdpa(q, k, v, scale=scale, mask=mask)
    k, v = (mx.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = round_tf32(q * scale) @ round_tf32(k).swapaxes(-1, -2)
    if isinstance(mask, str):
        scores = mx.where(mx.tri(S, L, L - S, dtype=mx.bool_), scores, -mx.inf)
    weights = mx.softmax(scores, axis=-1, precise=True)
    return round_tf32(weights) @ round_tf32(v)


_sdpa = mx.fast.scaled_dot_product_attention


@contextmanager
def attention_replaced(attention: Callable[..., mx.array] = attention_tf32) -> Iterator[None]:
    """Inside, every model computes its attention by `attention`; put back afterwards."""
    mx.fast.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        mx.fast.scaled_dot_product_attention = _sdpa


def attention_error(dtype: str, device: str = "cpu", shape: AttentionShape = AttentionShape(), seed: int = 0):
    """Errors of the two ways for one dtype on one device ("cpu" or "gpu"), as an `AttentionError`.

    The inputs are rounded to the dtype first and the float64 answer uses the rounded ones: what is left is the
    kernel's own error (and the rounding of its result).
    """
    with mx.stream(mx.gpu if device == "gpu" else mx.cpu):
        q, k, v = (mx.array(x.astype(np.float32)).astype(DTYPES[dtype]) for x in random_attention(shape, seed))
        truth = attention_float64(*(to_float64(x) for x in (q, k, v)))
        full, single = (to_float64(f(q, k, v)) for f in (attention_full, attention_single))
    return AttentionError(dtype, device, max_error(full, truth), max_error(single, truth), max_error(full, single))


def attention_errors(shape: AttentionShape = AttentionShape(), seed: int = 0) -> list[AttentionError]:
    """All dtypes on all devices that are here."""
    devices = ["cpu", "gpu"] if mx.is_available(mx.gpu) else ["cpu"]
    return [attention_error(dtype, device, shape, seed) for device in devices for dtype in DTYPES]


def attention_errors_without_tf32(seed: int = 0, timeout: float = 120.0) -> list[AttentionError]:
    """The same in a fresh process with MLX_ENABLE_TF32=0, which MLX reads only when it starts."""
    command = [sys.executable, "-m", "breeze_lab.measure.tolerance", str(seed)]
    environment = os.environ | {"MLX_ENABLE_TF32": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=True)
    return [AttentionError(**row) for row in json.loads(done.stdout)]


def to_float64(x: mx.array) -> np.ndarray:
    """NumPy float64 copy of any MLX float array (NumPy has no bfloat16 view)."""
    return np.array(x.astype(mx.float32), dtype=np.float64)


def max_error(a: np.ndarray, b: np.ndarray) -> float:
    """Largest absolute difference; NaN anywhere counts as infinite."""
    worst = float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))))
    return worst if worst == worst else float("inf")


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    """`max_error` as a share of the largest |b|, or as it is where that is below 1."""
    return max_error(a, b) / max(1.0, float(np.max(np.abs(b))))


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many float32 numbers lie between a and b, elementwise (0 = same bits, +0 and -0 are the same)."""
    x, y = (_ordered(np.ascontiguousarray(v, dtype=np.float32)) for v in (a, b))
    return np.abs(x - y)


def _ordered(x: np.ndarray) -> np.ndarray:
    """float32 -> int64 so that neighbours differ by one across zero."""
    bits = x.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def softmax64(logits: np.ndarray) -> np.ndarray:
    z = np.exp(logits - logits.max(-1, keepdims=True))
    return z / z.sum(-1, keepdims=True)


def divergence(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """KL(reference || other) in nats of two sets of logits [..., V], a value a row."""
    p, q = (softmax64(np.asarray(x, np.float64)) for x in (reference, other))
    terms = np.where(p > 0, p * (np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-300))), 0.0)
    return terms.sum(-1)


@dataclass(frozen=True)
class Flips:
    """Of `rows` distributions, the share whose chosen code changes: by argmax, and by one sampled draw each."""

    rows: int
    argmax: float
    sampled: float


def flip_rates(
    logits: np.ndarray, errors: Sequence[float], draws: int = 64, temperature: float = 0.9, seed: int = 0
) -> list[Flips]:
    """How often noise in the logits changes the code, for several sizes of noise.

    Args:
        logits: [N, V] in any float dtype.
        errors: each logit gets independent noise, uniform in [-error, error].
        draws: sampled choices a row. Both sides use the same Gumbel draws, as the same random key would give.
        temperature: of the sampled choice.

    Only the best two candidates of each choice are followed; for each, the chance that the noise swaps them is exact.
    """
    rng = np.random.default_rng(seed)
    logits = np.asarray(logits, np.float64)
    sure = _gap(logits)
    drawn = np.stack([_gap(logits / temperature + rng.gumbel(size=logits.shape)) for _ in range(draws)])
    return [Flips(len(logits), _swap(sure, e), _swap(drawn, e / temperature)) for e in errors]


def _gap(scores: np.ndarray) -> np.ndarray:
    """Distance of the best two of each row [..., V]."""
    best = np.partition(scores, -2, axis=-1)[..., -2:]
    return best[..., 1] - best[..., 0]


def _swap(gap: np.ndarray, error: float) -> float:
    """Mean chance that noise uniform in +-error on both scores closes the gap: their difference is triangular."""
    return 0.0 if error == 0 else float(np.mean(np.maximum(2 * error - gap, 0.0) ** 2 / (8 * error**2)))


def suggest(reference: np.ndarray, dtype: str, depth: int) -> float:
    """An absolute tolerance for values like `reference` after about `depth` roundings in `dtype`.

    Rounding errors of independent steps add like a random walk: unit roundoff x largest value x sqrt(depth), with a
    factor of four for the tail.  dtype "tf32" is what a GPU may use for float32 products.
    """
    scale = float(np.max(np.abs(np.asarray(reference, np.float64))))
    return 4 * UNIT_ROUNDOFF[dtype] * scale * float(np.sqrt(depth))


if __name__ == "__main__":
    sys.stdout.write(json.dumps([asdict(row) for row in attention_errors(seed=int((sys.argv + ["0"])[1]))]))
