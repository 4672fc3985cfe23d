"""The exact GELU, x Phi(x), without an error function on a CPU."""

import math

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from numpy.polynomial import chebyshev

_END = 5.0  # Phi(5) = 1 - 3e-7


def _fit() -> list[float]:
    """Coefficients in s = 2 x^2 / 25 - 1 of (Phi(x) - 1/2) / x on |x| <= 5, from the constant up: degree 12."""

    def tail(s: np.ndarray) -> np.ndarray:
        x = _END * np.sqrt((s + 1) / 2)
        return np.vectorize(math.erf)(x / math.sqrt(2)) / (2 * x)

    return chebyshev.cheb2poly(chebyshev.chebinterpolate(tail, 12)).tolist()  # type: ignore[call-overload, arg-type]


_COEFFICIENTS = _fit()


def gelu(x: mx.array) -> mx.array:
    """x Phi(x). On a CPU by a polynomial, off by at most 4e-7 max(1, |x|): MLX's erf takes 50 ns a number there, a
    multiplication 1.5."""
    if mx.default_device() != mx.cpu or x.dtype != mx.float32:
        return nn.gelu(x)
    inner = mx.clip(x, -_END, _END)
    s = mx.square(inner) * (2 / _END**2) - 1
    y = s * _COEFFICIENTS[-1] + _COEFFICIENTS[-2]
    for c in _COEFFICIENTS[-3::-1]:
        y = y * s + c
    return x * (inner * y + 0.5)
