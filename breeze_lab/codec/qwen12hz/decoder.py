"""Codes to sound: split RVQ, a windowed transformer, and causal upsampling from 12.5 Hz to the sample rate.

All arrays are [T, C]; T grows from frames to samples.
"""

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ...gelu import gelu
from ...kernels import loops, loops_run_here, shared
from ...layers import Linear
from ..base import StreamState
from ..conv import CausalConv, DepthwiseConv, TransposedConv, on_gpu
from ..rvq import SplitRVQ
from .transformer import DecoderTransformer

if TYPE_CHECKING:
    from .config import DecoderConfig

# sin(pi r)^2 = r^2 * p(r^2) for |r| <= 1/2, coefficients of p from the constant up: a Chebyshev fit, off by at most
# 3e-8. MLX's sin takes 25 to 30 ns an element on an x86 CPU, one multiplication 0.4 ns.
SIN_SQUARED = (9.86960431, -32.46967117, 42.72719634, -30.10146584, 13.05009892, -3.35659262)


class SnakeBeta(nn.Module):
    """x + sin(frequency * x)^2 / size, per channel of [T, C].

    A checkpoint stores log frequency (`alpha`) and log size (`beta`); `adopt` turns them into what the polynomial
    takes: `turns` [C] half turns a unit, and `terms` [6, C] its coefficients divided by the size.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.turns = mx.ones((channels,))
        self.terms = mx.zeros((len(SIN_SQUARED), channels))

    @staticmethod
    def adopt(alpha: mx.array, beta: mx.array) -> dict[str, mx.array]:
        """log frequency [C], log size [C] -> the parameters."""
        scale = 1.0 / (mx.exp(beta) + 1e-9)
        return {"turns": mx.exp(alpha) / mx.pi, "terms": mx.array(SIN_SQUARED)[:, None] * scale}

    def __call__(self, x: mx.array) -> mx.array:
        if on_gpu():
            return _fused_snake(x, self.turns, *_rows(self.terms))
        if x.dtype == mx.float32 and loops_run_here():
            return _looped_snake(x, self.turns, self.terms)  # type: ignore[return-value]
        return _snake(x, self.turns, *_rows(self.terms))


def _rows(terms: mx.array) -> list[mx.array]:
    return [terms[i : i + 1] for i in range(len(SIN_SQUARED))]  # slices: an index would copy


def _snake(x: mx.array, turns: mx.array, *terms: mx.array) -> mx.array:
    r = x * turns
    r = mx.square(r - mx.round(r))
    wave = terms[-1]
    for term in terms[-2::-1]:
        wave = wave * r + term
    return x + wave * r


# One kernel instead of sixteen. On a CPU that would need a C++ compiler at run time.
_fused_snake = mx.compile(_snake, shapeless=True)


@mx.custom_function
def _looped_snake(x: mx.array, turns: mx.array, terms: mx.array) -> mx.array:
    """One pass over memory instead of sixteen; computes what it is given at once, but within `mx.compile` or `vmap`."""
    try:
        arrays = [np.ascontiguousarray(shared(array)) for array in (x, turns, terms)]
    except (RuntimeError, ValueError):  # being traced
        return _snake(x, turns, *_rows(terms))
    return mx.array(loops().snake(*arrays))


@_looped_snake.vjp
def _looped_snake_vjp(primals: list[mx.array], cotangent: mx.array, _: mx.array) -> list[mx.array]:
    return mx.vjp(lambda x, turns, terms: _snake(x, turns, *_rows(terms)), primals, [cotangent])[1]


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution over time, then an MLP over channels, around a residual."""

    def __init__(self, dims: int):
        super().__init__()
        self.dwconv = DepthwiseConv(dims, 7)
        self.norm = nn.LayerNorm(dims, eps=1e-6)
        self.pwconv1 = Linear(dims, 4 * dims)
        self.pwconv2 = Linear(4 * dims, dims)
        self.gamma = mx.ones((dims,))

    def __call__(self, x: mx.array, state: StreamState) -> mx.array:
        return x + self.gamma * self.pwconv2(gelu(self.pwconv1(self.norm(self.dwconv(x, state)))))


class ResidualUnit(nn.Module):
    """Snake, dilated convolution of 7 taps, snake, convolution of one tap, around a residual."""

    def __init__(self, dims: int, dilation: int):
        super().__init__()
        self.act1, self.conv1 = SnakeBeta(dims), CausalConv(dims, dims, 7, dilation)
        self.act2, self.conv2 = SnakeBeta(dims), CausalConv(dims, dims, 1)

    def __call__(self, x: mx.array, state: StreamState) -> mx.array:
        return x + self.conv2(self.act2(self.conv1(self.act1(x), state)))


class UpsampleBlock(nn.Module):
    """[T, inputs] -> [T * rate, inputs / 2]."""

    def __init__(self, inputs: int, rate: int):
        super().__init__()
        outputs = inputs // 2
        self.block = [
            SnakeBeta(inputs),
            TransposedConv(inputs, outputs, 2 * rate, rate),
            *(ResidualUnit(outputs, dilation) for dilation in (1, 3, 9)),
        ]

    def __call__(self, x: mx.array, state: StreamState) -> mx.array:
        snake, *layers = self.block
        x = snake(x)
        for layer in layers:
            x = layer(x, state)
        return x


class Decoder(nn.Module):
    """int [F, K] -> float32 [F * frame_size] in [-1, 1]. Attribute paths are the checkpoint's names."""

    def __init__(self, c: "DecoderConfig"):
        super().__init__()
        self.quantizer = SplitRVQ(
            c.num_quantizers,
            c.codebook_size,
            c.codebook_dim,
            c.codebook_dim // 2,
            semantic=c.num_semantic_quantizers,
            encodes=False,
        )
        self.pre_conv = CausalConv(c.codebook_dim, c.latent_dim, 3)
        self.pre_transformer = DecoderTransformer(c)
        self.upsample = [
            [TransposedConv(c.latent_dim, c.latent_dim, ratio, ratio), ConvNeXtBlock(c.latent_dim)]
            for ratio in c.upsampling_ratios
        ]
        last = c.decoder_dim >> len(c.upsample_rates)
        self.decoder = [
            CausalConv(c.latent_dim, c.decoder_dim, 7),
            *(UpsampleBlock(c.decoder_dim >> i, rate) for i, rate in enumerate(c.upsample_rates)),
            SnakeBeta(last),
            CausalConv(last, 1, 7),
        ]

    def __call__(self, codes: mx.array, state: StreamState) -> mx.array:
        with state.advance(codes.shape[0]):
            x = self.pre_conv(self.quantizer.decode(codes), state)
            x = self.pre_transformer(x, state)
            for raise_rate, block in self.upsample:
                x = block(raise_rate(x, state), state)
            *layers, snake, last = self.decoder
            for layer in layers:
                x = layer(x, state)
            return mx.clip(last(snake(x), state).reshape(-1), -1.0, 1.0)
