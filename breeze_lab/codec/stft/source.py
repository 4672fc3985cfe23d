"""Pitch from the codes, and the spectra of a pulse train at that pitch: what the decoder's phases go by.

A convolution cannot know where the last period of a voice ended; a sum over the pitch can, and is all that a stream
must keep for it. The sum never forgets, so it must not depend on how a stream was cut: the pitch is computed frame by
frame, and phases are added as whole numbers.

Shapes: F frames, S hops, K bins of the decoder's spectra.
"""

import math

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ...layers import Linear
from ..base import StreamState
from .config import StftCodecConfig

LOW, OCTAVES = 55.0, 3.2  # the pitches that are told apart: 55 to 505 Hz
NEAR = 4  # bins of pitch on both sides of the best that its mean is taken over
TURN = 1 << 22  # phases are whole numbers of such parts of a turn
SLOPE = 0.05  # a pitch changes by at most such a share within a hop


def hann(size: int, divisor: float = 1.0) -> mx.array:
    """Periodic Hann window [size], divided."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    return mx.array((window / divisor).astype(np.float32))  # NumPy's, as a lazy one would belong to its thread


class Pitch(nn.Module):
    """Sums of codebook entries [F, 2 codebook_dim] -> pitch in Hertz [S] and the odds of a voice as a share [S]."""

    def __init__(self, config: StftCodecConfig):
        super().__init__()
        width = config.pitch_width
        self.frames, self.bins = config.pitch_frames, config.pitch_bins
        self.input = Linear(2 * config.codebook_dim * config.pitch_frames, width)
        self.middle = Linear(width, width)
        self.output = Linear(width, config.hops_per_frame * (config.pitch_bins + 1))
        self._places = mx.array(np.arange(config.pitch_bins, dtype=np.float32))

    def __call__(self, entries: mx.array, state: StreamState) -> tuple[mx.array, mx.array]:
        past = state.behind(entries, self.frames - 1)
        frames = [self.frame(past[f : f + self.frames].reshape(1, -1)) for f in range(entries.shape[0])]
        return mx.concatenate([hertz for hertz, _ in frames]), mx.concatenate([voiced for _, voiced in frames])

    def frame(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """One frame and those before it [1, pitch_frames * 2 codebook_dim] -> the pitch and voicing of its hops."""
        x = self.output(nn.gelu(self.middle(nn.gelu(self.input(x))))).reshape(-1, self.bins + 1)
        odds, voicing = x[:, :-1], x[:, -1]
        near = mx.abs(self._places - mx.argmax(odds, axis=-1, keepdims=True)) <= NEAR
        share = mx.softmax(mx.where(near, odds, -math.inf), axis=-1)
        place = (share * self._places).sum(axis=-1)
        return LOW * mx.exp(place * (OCTAVES / (self.bins - 1) * math.log(2))), mx.sigmoid(voicing)


class Pulses(nn.Module):
    """Pitch [S] -> real and imaginary parts [S, K] of pulses under the decoder's window; their harmonics peak at 1.

    The pitch of hop i is that in the middle of window i, and goes straight on from the one before.
    """

    def __init__(self, config: StftCodecConfig):
        super().__init__()
        self.hop, self.rate = config.hop, config.sample_rate
        half = config.n_fft // 2
        self._window = hann(config.n_fft, half / 2)
        self._times = mx.array(np.arange(-half, half, dtype=np.float32))

    def __call__(self, hertz: mx.array, state: StreamState) -> tuple[mx.array, mx.array]:
        before = state.behind(hertz, 1)[:-1]
        before = mx.where(before > 0, before, hertz)
        half = state.behind(mx.round(hertz * (self.hop / self.rate / 2 * TURN)).astype(mx.uint32), 1)
        phase = (state.total(half[1:] + half[:-1]) & (TURN - 1)).astype(mx.float32) / TURN
        change = hertz - before
        slope = mx.minimum(mx.abs(change), hertz * SLOPE) * mx.sign(change) / self.hop
        t = self._times
        turns = phase[:, None] + (hertz[:, None] + 0.5 * slope[:, None] * t) * (t / self.rate)
        turns = turns - mx.round(turns)
        count = 2 * mx.floor(0.49 * self.rate / hertz)[:, None] + 1
        ratio = mx.sin(math.pi * count * turns) / mx.sin(math.pi * turns)
        wave = 0.5 * mx.where(mx.abs(turns) < 1e-6, count, ratio) - 0.5  # all harmonics below 0.49 of the sample rate
        spectrum = mx.fft.rfft(wave * self._window)
        return mx.real(spectrum), mx.imag(spectrum)
