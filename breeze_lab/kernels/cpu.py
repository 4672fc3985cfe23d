"""What one position of a decoder stack takes on one CPU core, compiled by Numba: the rung `host` runs on it. And
functions of single numbers, which in MLX are a pass over memory an operation.

A decode step reads every weight once for a product or two, so bytes are what it costs. Weights whose values are
bfloat16's, as those of published checkpoints are, are read as such and widened in registers: half of float32's bytes,
and the very same numbers. All arithmetic is float32.
Shapes: L layers, B sequences, C channels, H heads, G key/value heads, D head dim, P positions, M hidden width.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

AHEAD = 4096
"""Bytes of weights that are asked for before they are needed. A core that only reads on has too few reads under way to
use the memory's bandwidth, and its own prefetching stops at every page: 1.3 to 1.6 times as fast on a shared Xeon."""
REORDER = {"reassoc", "contract", "nsz"}
"""What the compiler may do with sums, so that it can use vectors. Infinities and NaN stay what they are."""
OPTIONS = {"nogil": True, "fastmath": REORDER, "error_model": "numpy"}
KERNELS: list[str] = []


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled when first called, once for all processes where there is a place to keep it; runs without the GIL."""
    KERNELS.append(function.__name__)
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder can be written
        return njit(**OPTIONS)(function)


def compile_all() -> None:
    """Compile or read all kernels now; anew and for this process alone where what was kept is damaged, or disks full.

    Compiling takes some seconds once on a machine.
    """
    try:
        _call_all()
    except Exception:
        for name in KERNELS:
            globals()[name] = njit(**OPTIONS)(globals()[name].py_func)
        _call_all()


def _call_all() -> None:
    """Every kernel with every kind of arguments."""
    x, one = np.zeros((1, 2), np.float32), np.ones(2, np.float32)
    for dtype in (np.uint16, np.float32):
        product(np.zeros((1, 2, 2), dtype), 0, x)
    rms_norm(x, one, np.float32(1))
    cache = np.zeros((2, 1, 1, 1, 2), np.float32)
    attention(np.zeros((1, 6), np.float32), one, one, np.float32(1), np.float32(1), x, x, np.zeros(1, np.int64), *cache)
    gated(x)
    snake(x, one, np.zeros((6, 2), np.float32))


def halves(matrix: np.ndarray) -> np.ndarray:
    """float32 -> uint16, the upper halves, where they say all; the matrix itself where they do not."""
    words = matrix.view(np.uint16).reshape(*matrix.shape, 2)
    return matrix if words[..., 0].any() else np.ascontiguousarray(words[..., 1])


def widen(weight):  # no annotations: Numba compares the signature with the lambdas' below
    """A weight as float32."""
    raise NotImplementedError


@overload(widen, inline="always")
def _widen(weight):
    if weight == types.uint16:
        return lambda weight: np.uint32(np.uint32(weight) << np.uint32(16)).view(np.float32)
    return lambda weight: weight


@intrinsic
def prefetch(typing, array, index):
    """Ask for the cache line of an element of a contiguous array, into the second level. Any index will do."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        takes = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, takes, "llvm.prefetch.p0")
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [place, number(0), number(2), number(1)])  # to read, second level, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@kernel
def product(matrix: np.ndarray, index: int, x: np.ndarray) -> np.ndarray:
    """`matrix` [L, rows, columns] at `index` times each row of `x` float32 [B, columns] -> float32 [B, rows]."""
    B, columns = x.shape
    rows, flat = matrix.shape[1], matrix.reshape(-1)
    line, ahead = 64 // matrix.itemsize, AHEAD // matrix.itemsize
    y = np.empty((B, rows), np.float32)
    for row in range(rows):
        start = (index * rows + row) * columns
        for column in range(0, columns, line):
            prefetch(flat, start + ahead + column)  # type: ignore[call-arg]
        for b in range(B):
            total = np.float32(0)
            for column in range(columns):
                total += widen(matrix[index, row, column]) * x[b, column]
            y[b, row] = total
    return y


@kernel
def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Over the last axis of float32 [n, C]."""
    y = np.empty_like(x)
    for row in range(x.shape[0]):
        squares = np.float32(0)
        for column in range(x.shape[1]):
            squares += x[row, column] * x[row, column]
        factor = np.float32(1 / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(eps)))
        for column in range(x.shape[1]):
            y[row, column] = x[row, column] * factor * weight[column]
    return y


@kernel
def attention(
    qkv: np.ndarray,
    q_norm: np.ndarray,
    k_norm: np.ndarray,
    eps: float,
    scale: float,
    cos: np.ndarray,
    sin: np.ndarray,
    offsets: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """The next position of B sequences looks back over its own.

    Args:
        qkv: float32 [B, (H + 2G) D]; queries and keys are normed and rotated in place.
        q_norm, k_norm: float32 [D], or [0] for none.
        cos, sin: float32 [B, D / 2] of the new positions; halves are rotated.
        offsets: int [B], how many positions each sequence has.
        keys, values: float32 [B, G, P, D]; get the new ones.

    Returns:
        float32 [B, H D].
    """
    B, G, P, D = keys.shape
    H, half = qkv.shape[1] // D - 2 * G, D // 2
    mixed, scores = np.zeros((B, H * D), np.float32), np.empty(P, np.float32)
    for b in range(B):
        end = offsets[b]
        for head in range(H + G):
            start = head * D
            if q_norm.size:
                squares = np.float32(0)
                for d in range(D):
                    squares += qkv[b, start + d] * qkv[b, start + d]
                factor = np.float32(1 / np.sqrt(squares / np.float32(D) + np.float32(eps)))
                for d in range(D):
                    qkv[b, start + d] *= factor * (q_norm[d] if head < H else k_norm[d])
            for d in range(half):
                low, high = qkv[b, start + d], qkv[b, start + half + d]
                qkv[b, start + d] = low * cos[b, d] - high * sin[b, d]
                qkv[b, start + half + d] = high * cos[b, d] + low * sin[b, d]
        for g in range(G):
            for d in range(D):
                keys[b, g, end, d] = qkv[b, (H + g) * D + d]
                values[b, g, end, d] = qkv[b, (H + G + g) * D + d]
        for head in range(H):
            g, start, largest = head // (H // G), head * D, np.float32(-np.inf)
            for p in range(end + 1):
                score = np.float32(0)
                for d in range(D):
                    score += qkv[b, start + d] * keys[b, g, p, d]
                scores[p] = score * np.float32(scale)
                largest = max(largest, scores[p])
            total = np.float32(0)
            for p in range(end + 1):
                scores[p] = np.exp(scores[p] - largest)
                total += scores[p]
            for p in range(end + 1):
                weight = scores[p] / total
                for d in range(D):
                    mixed[b, start + d] += weight * values[b, g, p, d]
    return mixed


@kernel
def gated(gate_up: np.ndarray) -> np.ndarray:
    """SiLU of the first half of float32 [B, 2M] times the second half -> [B, M]."""
    B, M = gate_up.shape[0], gate_up.shape[1] // 2
    y = np.empty((B, M), np.float32)
    for b in range(B):
        for i in range(M):
            gate = gate_up[b, i]
            y[b, i] = gate / (np.float32(1) + np.exp(-gate)) * gate_up[b, M + i]
    return y


@kernel
def snake(x: np.ndarray, turns: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """x + r^2 p(r^2), r the distance of `turns` x from a whole number, of each channel of float32 [T, C].

    Args:
        turns: float32 [C].
        terms: float32 [6, C], the coefficients of each channel's polynomial p, from the constant up.
    """
    y = np.empty_like(x)
    a, b, c, d, e, f = terms[0], terms[1], terms[2], terms[3], terms[4], terms[5]
    for row in range(x.shape[0]):
        for n in range(x.shape[1]):
            r = x[row, n] * turns[n]
            r -= np.rint(r)
            r *= r
            y[row, n] = x[row, n] + r * (a[n] + r * (b[n] + r * (c[n] + r * (d[n] + r * (e[n] + r * f[n])))))
    return y
