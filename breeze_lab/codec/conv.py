"""Causal convolutions on [T, C], as sums of matrix products over shifted rows.

On a CPU, MLX runs dilated and transposed convolutions 10 to 20 times slower than the same arithmetic written as
matrix products (one per tap, accumulated in place); so that is how they are written here. Strided and transposed
convolutions whose kernel is twice their stride are two-tap convolutions over rows of `stride` samples.

Each layer looks back `kernel - 1` rows. In a stream those rows come from a `StreamState`; without one they are zeros.
"""

import mlx.core as mx
import mlx.nn as nn

from .base import StreamState, zeros_before


def on_gpu() -> bool:
    """Whether arrays are computed on a GPU, where the number of operations counts more than how each is written."""
    return mx.default_device() == mx.gpu


def _behind(x: mx.array, rows: int, state: StreamState | None) -> mx.array:
    if rows == 0:
        return x
    return zeros_before(x, rows) if state is None else state.behind(x, rows)


def tap_sum(x: mx.array, weight: mx.array, bias: mx.array | None, dilation: int = 1) -> mx.array:
    """Valid convolution of x [T + (k - 1) * dilation, C] with weight [k, O, C] -> [T, O].

    Each tap's weight is stored [O, C], as in a linear layer: with few rows that is up to twice as fast as [C, O].
    """
    taps, channels = weight.shape[0], x.shape[1]
    rows = x.shape[0] - (taps - 1) * dilation
    if taps > 1 and rows > 1 and on_gpu():  # MLX's CUDA kernel for one row reads outside such windows (0.32.4)
        windows = mx.as_strided(mx.contiguous(x), (taps, rows, channels), (dilation * channels, channels, 1))
        out = (windows @ weight.swapaxes(1, 2)).sum(axis=0)
        return out if bias is None else out + bias
    # Slices: `weight[tap]` would copy it.
    first, *rest = (weight[tap : tap + 1].squeeze(0).T for tap in range(taps))
    out = x[:rows] @ first if bias is None else mx.addmm(bias, x[:rows], first)
    for tap, matrix in enumerate(rest, 1):
        start = tap * dilation
        out = mx.addmm(out, x[start : start + rows], matrix)
    return out


class CausalConv(nn.Module):
    """Causal convolution [T, C] -> [T, O], `dilation` rows between taps. weight [k, O, C], bias [O].

    `upstream` is the weight's shape in a PyTorch checkpoint, and `adopt` brings it from there.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1):
        super().__init__()
        self.dilation = dilation
        self.upstream = (outputs, inputs, kernel)
        self.weight = mx.zeros((kernel, outputs, inputs))
        self.bias = mx.zeros((outputs,))

    @staticmethod
    def adopt(weight: mx.array) -> mx.array:
        """[O, C, k] -> [k, O, C]."""
        return weight.transpose(2, 0, 1)

    def __call__(self, x: mx.array, state: StreamState | None = None) -> mx.array:
        x = _behind(x, (self.weight.shape[0] - 1) * self.dilation, state)
        return tap_sum(x, self.weight, self.bias, self.dilation)


class DepthwiseConv(nn.Module):
    """Causal convolution of each channel with its own taps, [T, C] -> [T, C]. weight [k, C], bias [C]."""

    def __init__(self, channels: int, kernel: int):
        super().__init__()
        self.upstream = (channels, 1, kernel)
        self.weight = mx.zeros((kernel, channels))
        self.bias = mx.zeros((channels,))

    @staticmethod
    def adopt(weight: mx.array) -> mx.array:
        """[C, 1, k] -> [k, C]."""
        return weight[:, 0].T

    def __call__(self, x: mx.array, state: StreamState | None = None) -> mx.array:
        taps, channels = self.weight.shape
        x = mx.contiguous(_behind(x, taps - 1, state))
        windows = mx.as_strided(x, (x.shape[0] - taps + 1, taps, channels), (channels, channels, 1))
        return (windows * self.weight).sum(axis=1) + self.bias


class TransposedConv(nn.Module):
    """Causal transposed convolution [T, C] -> [T * stride, O]; the kernel is a whole number of strides.

    A row makes `kernel` samples, of which all but the first `stride` fall on the following rows' places. weight
    [kernel / stride, stride * O, C], latest row last; bias [O].
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int):
        super().__init__()
        if kernel % stride:
            raise ValueError(f"kernel {kernel} is not a multiple of stride {stride}")
        self.upstream = (inputs, outputs, kernel)
        self.stride = stride
        self.weight = mx.zeros((kernel // stride, stride * outputs, inputs))
        self.bias = mx.zeros((outputs,))

    def adopt(self, weight: mx.array) -> mx.array:
        """[C, O, k] -> [k / stride, stride * O, C]."""
        inputs, outputs, kernel = weight.shape
        taps = weight.reshape(inputs, outputs, kernel // self.stride, self.stride).transpose(2, 3, 1, 0)
        return taps.reshape(kernel // self.stride, self.stride * outputs, inputs)[::-1]

    def __call__(self, x: mx.array, state: StreamState | None = None) -> mx.array:
        x = _behind(x, self.weight.shape[0] - 1, state)
        out = tap_sum(x, self.weight, mx.tile(self.bias, self.stride))
        return out.reshape(out.shape[0] * self.stride, -1)


class StridedConv(nn.Module):
    """Causal convolution [T, C] -> [ceil(T / stride), O] with kernel = 2 * stride. weight [2, O, stride * C].

    `stride` rows of padding stand in front, and as many as needed behind to fill the last step: zeros, or with
    `edge` the first and the last row.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, bias: bool = True, edge: bool = False):
        super().__init__()
        self.upstream = (outputs, inputs, 2 * stride)
        self.stride, self.edge = stride, edge
        self.weight = mx.zeros((2, outputs, stride * inputs))
        if bias:
            self.bias = mx.zeros((outputs,))

    def adopt(self, weight: mx.array) -> mx.array:
        """[O, C, 2 * stride] -> [2, O, stride * C]."""
        outputs, inputs, _ = weight.shape
        taps = weight.reshape(outputs, inputs, 2, self.stride).transpose(2, 0, 3, 1)
        return taps.reshape(2, outputs, self.stride * inputs)

    def __call__(self, x: mx.array) -> mx.array:
        rows, channels = x.shape
        padded = mx.pad(x, [(self.stride, -rows % self.stride), (0, 0)], mode="edge" if self.edge else "constant")
        return tap_sum(padded.reshape(-1, self.stride * channels), self.weight, self.get("bias"))
