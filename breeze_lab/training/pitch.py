"""Pitch of speech, for training: peaks of the autocorrelation, joined to tracks by the Viterbi algorithm."""

import torch
import torch.nn.functional as F
from torch import Tensor

LOW, HIGH = 55.0, 500.0
STATES = 128
UNVOICED = 0.45  # what a peak must beat to count as voiced
SWITCH = 0.14  # price of a change between voiced and unvoiced
JUMP = 0.35  # price of an octave between neighbors
QUIET = 0.002  # samples that weigh as much as this noise count half


def correlations(samples: Tensor, rate: int, hop: int) -> Tensor:
    """Autocorrelation around each multiple of `hop` of float samples [N], without the window's own slope -> [S, lags].

    Three periods of the lowest pitch are seen.
    """
    lags, size = int(rate / LOW) + 3, int(3 * rate / LOW) // 2 * 2
    hann = torch.hann_window(size, device=samples.device)
    padded = F.pad(samples, (size // 2, size // 2))
    n = 1 << (size + lags - 1).bit_length()

    def power(x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x, n).abs().square(), n)[..., :lags]

    shape = power(hann)
    parts = padded.unfold(0, size, hop)[: len(samples) // hop].split(16384)
    floor = QUIET**2 * float(hann.square().sum())
    rows = [power(part * hann) for part in parts]
    return torch.cat([row / (row[:, :1] + floor) * (shape[0] / shape) for row in rows])


def path(scores: Tensor) -> Tensor:
    """Best states [B, S] of voiced scores [B, S, STATES]; the state STATES is unvoiced."""
    device = scores.device
    octave = torch.log2(torch.tensor(HIGH / LOW)) / (STATES - 1)
    place = torch.arange(STATES, device=device)
    cost = torch.full((STATES + 1, STATES + 1), SWITCH, device=device)
    cost[:STATES, :STATES] = (place[:, None] - place).abs() * octave * JUMP
    cost[STATES, STATES] = 0
    scores = F.pad(scores, (0, 1), value=UNVOICED)
    best, back = scores[:, 0], []
    for step in range(1, scores.shape[1]):
        best, origin = (best[:, None, :] - cost).max(-1)
        best = best + scores[:, step]
        back.append(origin.to(torch.uint8))
    states = [best.argmax(-1)]
    for origin in reversed(back):
        states.append(origin.gather(1, states[-1][:, None])[:, 0].long())
    return torch.stack(states[::-1], 1)


@torch.no_grad()
def track(samples: Tensor, rate: int, hop: int, segment: int = 500) -> Tensor:
    """Hertz [S] around each multiple of `hop` of samples [N] in [-1, 1]; 0 where unvoiced.

    The Viterbi algorithm runs over segments of so many hops side by side.
    """
    if len(samples) < hop:
        return torch.zeros(0, device=samples.device)
    r = correlations(samples, rate, hop)
    hertz = LOW * (HIGH / LOW) ** (torch.arange(STATES, device=r.device) / (STATES - 1))
    lag = rate / hertz
    low = lag.long()
    scores = torch.lerp(r[:, low], r[:, low + 1], lag - low) + 0.02 * torch.log2(hertz / LOW)
    count = len(r)
    scores = F.pad(scores, (0, 0, 0, -count % segment)).view(-1, segment, STATES)
    state = torch.cat([path(part) for part in scores.split(512)]).flatten()[:count]
    voiced = state < STATES
    lag = lag[state.clamp(max=STATES - 1)]
    near = torch.arange(-6, 7, device=r.device)  # the highest sample nearby, and the parabola through it
    index = (lag.round().long()[:, None] + near).clamp(1, r.shape[1] - 2)
    within = ((index / lag[:, None]).log2().abs() < 0.03) | (near == 0)
    peak = index.gather(1, r.gather(1, index).masked_fill(~within, -9).argmax(1, keepdim=True))
    a, b, c = (r.gather(1, peak + k)[:, 0] for k in (-1, 0, 1))
    shift = (0.5 * (a - c) / (a - 2 * b + c).clamp(max=-1e-6)).clamp(-0.5, 0.5)
    return torch.where(voiced, rate / (peak[:, 0] + shift), 0.0)
