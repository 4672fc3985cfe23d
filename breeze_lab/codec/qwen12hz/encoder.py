"""Sound to codes: the encoder of a Mimi model (SEANet, windowed transformer, downsampling, split RVQ).

All arrays are [T, C]; T shrinks from samples to frames.
"""

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from ..conv import CausalConv, StridedConv
from ..rvq import SplitRVQ
from .transformer import EncoderTransformer

if TYPE_CHECKING:
    from .config import CodecConfig, EncoderConfig


class ResidualBlock(nn.Module):
    """ELU, dilated convolution into fewer channels, ELU, convolution of one tap back, around a residual."""

    def __init__(self, dims: int, hidden: int, kernel: int, dilation: int):
        super().__init__()
        self.block = [nn.ELU(), CausalConv(dims, hidden, kernel, dilation), nn.ELU(), CausalConv(hidden, dims, 1)]

    def __call__(self, x: mx.array) -> mx.array:
        out = x
        for layer in self.block:
            out = layer(out)
        return x + out


class SEANet(nn.Module):
    """float32 [N, 1] -> [ceil(N / product of ratios), hidden_size]."""

    def __init__(self, c: "EncoderConfig"):
        super().__init__()
        dims = c.num_filters
        layers: list[nn.Module] = [CausalConv(1, dims, c.kernel_size)]
        for ratio in reversed(c.upsampling_ratios):
            for index in range(c.num_residual_layers):
                dilation = c.dilation_growth_rate**index
                layers.append(ResidualBlock(dims, dims // c.compress, c.residual_kernel_size, dilation))
            layers += [nn.ELU(), StridedConv(dims, 2 * dims, ratio)]
            dims *= 2
        self.layers = [*layers, nn.ELU(), CausalConv(dims, c.hidden_size, c.last_kernel_size)]

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = layer(x)
        return x


class Downsample(StridedConv):
    """The step from the transformer's rate to the frame rate: no bias, edges repeated."""

    def __init__(self, dims: int, stride: int):
        super().__init__(dims, dims, stride, bias=False, edge=True)


class Encoder(nn.Module):
    """float32 [N] -> int32 [ceil(N / frame_size), K]. Attribute paths are the checkpoint's names."""

    def __init__(self, config: "CodecConfig"):
        super().__init__()
        c = config.encoder
        self.encoder = SEANet(c)
        self.encoder_transformer = EncoderTransformer(c)
        self.downsample = Downsample(c.hidden_size, config.downsample)
        self.quantizer = SplitRVQ(
            config.num_codebooks,
            c.codebook_size,
            c.hidden_size,
            c.codebook_dim,
            semantic=c.num_semantic_quantizers,
            decodes=False,
        )

    def latents(self, samples: mx.array) -> mx.array:
        """float32 [N] -> [ceil(N / frame_size), hidden_size], what the quantizer sees."""
        return self.downsample(self.encoder_transformer(self.encoder(samples[:, None])))

    def __call__(self, samples: mx.array) -> mx.array:
        return self.quantizer.encode(self.latents(samples))
