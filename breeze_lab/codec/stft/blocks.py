"""The two kinds of layers, on [T, C] with a stream's state: convolution blocks at hop rate, attention at frame rate."""

import mlx.core as mx
import mlx.nn as nn

from ...gelu import gelu
from ...layers import Linear
from ..base import StreamState
from .config import StftCodecConfig


def sliding(x: mx.array, rows: int, count: int, step: int = 1) -> mx.array:
    """`count` overlapping stretches of `rows` entries of x [T, ...], `step` apart, as a view -> [count, rows, ...]."""
    x = mx.contiguous(x)
    inner = 1
    strides = []
    for size in reversed(x.shape[1:]):
        strides.insert(0, inner)
        inner *= size
    return mx.as_strided(x, (count, rows, *x.shape[1:]), (step * inner, inner, *strides))


class Block(nn.Module):
    """Causal ConvNeXt block [S, C] -> [S, C]: depthwise taps, norm, two matmuls, scaled residual."""

    def __init__(self, width: int, expansion: int, kernel: int):
        super().__init__()
        self.taps = mx.zeros((kernel, width))
        self.taps_bias = mx.zeros((width,))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up = Linear(width, expansion * width)
        self.down = Linear(expansion * width, width)
        self.scale = mx.ones((width,))

    def __call__(self, x: mx.array, state: StreamState) -> mx.array:
        kernel = self.taps.shape[0]
        past = state.behind(x, kernel - 1)
        y = (sliding(past, kernel, x.shape[0]) * self.taps).sum(axis=1) + self.taps_bias
        return x + self.down(gelu(self.up(self.norm(y)))) * self.scale


class Layer(nn.Module):
    """Attention over the last `attention_window` frames and a gated MLP, both pre-normed, [F, C] -> [F, C]."""

    def __init__(self, config: StftCodecConfig):
        super().__init__()
        width = config.latent_width
        self.heads, self.window = config.num_heads, config.attention_window
        self.attention_norm = nn.RMSNorm(width, eps=1e-6)
        self.qkv = Linear(width, 3 * width, bias=False)
        self.out = Linear(width, width, bias=False)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-6)
        self.gate_up = Linear(width, 2 * config.mlp_width, bias=False)
        self.down = Linear(config.mlp_width, width, bias=False)

    def __call__(self, x: mx.array, state: StreamState) -> mx.array:
        frames, width = x.shape
        dims = width // self.heads
        qkv = self.qkv(self.attention_norm(x)).reshape(frames, 3, self.heads, dims).transpose(1, 2, 0, 3)
        q, k = (
            mx.fast.rope(a[None], dims, traditional=False, base=1e4, scale=1.0, offset=state.frames) for a in qkv[:2]
        )
        k = state.behind(k, self.window - 1, axis=2, pad=False)
        v = state.behind(qkv[2][None], self.window - 1, axis=2, pad=False)
        past = k.shape[2] - frames
        mask = None
        if frames > 1 or past >= self.window:
            distance = mx.arange(past, past + frames)[:, None] - mx.arange(past + frames)
            mask = (distance >= 0) & (distance < self.window)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=dims**-0.5, mask=mask)
        x = x + self.out(y[0].transpose(1, 0, 2).reshape(frames, width))
        gate, up = mx.split(self.gate_up(self.mlp_norm(x)), 2, axis=-1)
        return x + self.down(nn.silu(gate) * up)
