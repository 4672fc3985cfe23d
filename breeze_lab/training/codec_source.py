"""Pitch from the codes, and the spectra of a pulse train at that pitch: what the decoder's phases go by.

A convolution cannot know where the last period of a voice ended; a sum over the pitch can. Shapes: B batch, F frames,
S hops, K bins of the decoder's spectra.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from .codec_model import CodecShape

LOW, OCTAVES = 55.0, 3.2  # the pitches that are told apart: 55 to 505 Hz
NEAR = 4  # bins of pitch on both sides of the best that its mean is taken over
TURN = 1 << 22  # phases are whole numbers of such parts of a turn, so that sums of them are exact
SLOPE = 0.05  # a pitch changes by at most such a share within a hop
FLOOR = 0.01  # what counts as nothing beside a harmonic's peak


class Pitch(nn.Module):
    """Entries of the last `pitch_frames` frames -> pitch and voicing of each hop."""

    def __init__(self, shape: CodecShape):
        super().__init__()
        self.frames, self.hops, self.bins = shape.pitch_frames, shape.hops_per_frame, shape.pitch_bins
        self.input = nn.Linear(2 * shape.codebook_dim * shape.pitch_frames, shape.pitch_width)
        self.middle = nn.Linear(shape.pitch_width, shape.pitch_width)
        self.output = nn.Linear(shape.pitch_width, self.hops * (self.bins + 1))

    def forward(self, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Entries [B, F, 2 codebook_dim] -> log odds of pitch [B, S, bins], of voicing [B, S]."""
        frames = entries.shape[1]
        past = F.pad(entries, (0, 0, self.frames - 1, 0))
        x = torch.cat([past[:, k : k + frames] for k in range(self.frames)], -1)
        x = F.gelu(self.middle(F.gelu(self.input(x))))
        odds = self.output(x).float().view(len(x), frames * self.hops, self.bins + 1)
        return odds[..., :-1], odds[..., -1]

    def octaves(self, hertz: Tensor) -> Tensor:
        """Place of a pitch among the bins, from 0."""
        return torch.log2(hertz.clamp(min=LOW) / LOW) * ((self.bins - 1) / OCTAVES)

    def hertz(self, odds: Tensor) -> Tensor:
        """The mean around the likeliest pitch, [B, S]."""
        return LOW * torch.exp2(self.place(odds) * (OCTAVES / (self.bins - 1)))

    def place(self, odds: Tensor) -> Tensor:
        """The same in bins."""
        place = torch.arange(self.bins, device=odds.device)
        near = (place - odds.argmax(-1, keepdim=True)).abs() <= NEAR
        return (odds.masked_fill(~near, -math.inf).softmax(-1) * place).sum(-1)

    def loss(self, entries: Tensor, hertz: Tensor) -> tuple[Tensor, Tensor]:
        """-> cross entropy of the voiced hops' pitch and its distance, cross entropy of voicing.

        hertz [B, S], 0 where unvoiced.
        """
        odds, voicing = self(entries)
        voiced = (hertz > 0).float()
        place = torch.arange(self.bins, device=odds.device)
        truth = self.octaves(hertz)
        target = (-0.5 * ((truth[..., None] - place) / 1.5).square()).softmax(-1)
        miss = -(target * odds.log_softmax(-1)).sum(-1) + (self.place(odds) - truth).abs().clamp(max=NEAR)
        return (miss * voiced).sum() / voiced.sum().clamp(min=1), F.binary_cross_entropy_with_logits(voicing, voiced)


def pulses(hertz: Tensor, shape: CodecShape) -> Tensor:
    """Pitch [B, S] -> complex spectra [B, S, K] of pulses under the decoder's window; their harmonics peak at 1.

    The pitch of hop i is that in the middle of window i, and goes straight on from the one before.
    """
    before = F.pad(hertz, (1, 0))[:, :-1]
    half = (hertz * (shape.hop / shape.sample_rate / 2 * TURN)).round().long()
    phase = ((half + F.pad(half, (1, 0))[:, :-1]).cumsum(1) % TURN).float() / TURN
    before = torch.where(before > 0, before, hertz)
    slope = torch.minimum((hertz - before).abs(), hertz * SLOPE) * (hertz - before).sign() / shape.hop
    t = torch.arange(-shape.n_fft // 2, shape.n_fft // 2, device=hertz.device, dtype=torch.float32)
    turns = phase[..., None] + (hertz[..., None] + 0.5 * slope[..., None] * t) * (t / shape.sample_rate)
    turns = turns - turns.round()
    harmonics = torch.floor(0.49 * shape.sample_rate / hertz)[..., None]
    ratio = torch.sin(torch.pi * (2 * harmonics + 1) * turns) / torch.sin(torch.pi * turns)
    wave = 0.5 * torch.where(turns.abs() < 1e-6, 2 * harmonics + 1, ratio) - 0.5  # cosines of 1 to `harmonics` turns
    return torch.fft.rfft(wave * (torch.hann_window(shape.n_fft, device=hertz.device) * (4 / shape.n_fft)))
