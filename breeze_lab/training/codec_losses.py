"""What the codec is trained towards: spectra at several resolutions, and discriminators. Samples are [B, N]."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


def mel_filters(n_fft: int, sample_rate: int, bands: int, top: float | None = None, slaney: bool = False) -> Tensor:
    """Triangles of unit area on the mel scale, [bands, n_fft // 2 + 1].

    slaney: the scale, linear below 1 kHz, of speech recognizers.
    """
    hertz = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    top = top or sample_rate / 2
    if slaney:
        step = math.log(6.4) / 27
        high = 15 + math.log(top / 1000) / step if top > 1000 else top * 3 / 200
        mel = torch.linspace(0, high, bands + 2, dtype=torch.float64)
        edges = torch.where(mel < 15, mel * 200 / 3, 1000 * ((mel - 15) * step).exp())
    else:
        mel = torch.linspace(0, 2595 * math.log10(1 + top / 700), bands + 2, dtype=torch.float64)
        edges = 700 * (10 ** (mel / 2595) - 1)
    low, mid, up = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    filters = torch.minimum((hertz - low) / (mid - low), (up - hertz) / (up - mid)).clamp(min=0)
    empty = filters.sum(-1) == 0
    nearest = (hertz - mid).abs().argmin(-1)
    filters[empty, nearest[empty]] = 1.0
    return (filters * 2 / (up - low)).float()


class SpectralLoss(nn.Module):
    """Mean L1 distance of log10 mel spectra and of log10 magnitudes over several window lengths."""

    windows = {128: 20, 256: 40, 512: 64, 1024: 80, 2048: 128}
    fine = (256, 512, 1024)

    def __init__(self, sample_rate: int):
        super().__init__()
        for n, bands in self.windows.items():
            self.register_buffer(f"mel{n}", mel_filters(n, sample_rate, bands))
            self.register_buffer(f"hann{n}", torch.hann_window(n))

    def forward(self, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """-> (mel distance, magnitude distance), both means over the resolutions."""
        mel = magnitude = y.new_zeros(())
        for n in self.windows:
            hann, filters = getattr(self, f"hann{n}"), getattr(self, f"mel{n}")
            both = torch.stft(torch.cat([y, x]), n, n // 4, n, hann, return_complex=True).abs()
            a, b = torch.log10((filters @ both).clamp(min=1e-5)).chunk(2)
            mel = mel + (a - b).abs().mean() / len(self.windows)
            if n in self.fine:
                a, b = torch.log10(both.clamp(min=1e-4)).chunk(2)
                magnitude = magnitude + (a - b).abs().mean() / len(self.fine)
        return mel, magnitude


class LoudnessLoss(nn.Module):
    """How disturbing a copy's loudness is, after the disturbances of PESQ (ITU-T P.862), without its alignment.

    Powers in 49 bands of the Bark scale up to 8 kHz over windows of 32 ms become loudness (power 0.23); differences
    under a quarter of the softer one are masked. Noise that was added counts beyond what was left out.
    """

    bands, reach, exponent = 49, 8000.0, 0.23

    def __init__(self, sample_rate: int):
        super().__init__()
        self.n = round(0.032 * sample_rate)
        hertz = torch.arange(self.n // 2 + 1) * (sample_rate / self.n)
        edges = 650 * torch.sinh(torch.linspace(0, math.asinh(self.reach / 650), self.bands + 1))
        width = sample_rate / self.n  # each bin is a stripe so wide, shared between the bands that it touches
        low, high = (hertz - width / 2).clamp(min=0), hertz + width / 2
        shared = torch.minimum(high, edges[1:, None]) - torch.maximum(low, edges[:-1, None])
        self.register_buffer("filters", shared.clamp(min=0) / width)
        center = (edges[1:] + edges[:-1]) / 2
        self.register_buffer("threshold", 1 + (250 / center.clamp(min=30)) ** 6)  # what is just heard
        self.register_buffer("hann", torch.hann_window(self.n))

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        power = torch.stft(torch.cat([y, x]), self.n, self.n // 4, self.n, self.hann, return_complex=True)
        power = self.filters @ (power.real.square() + power.imag.square())
        copy, original = power.chunk(2)
        level = original.sum(1).mean(1)  # the same loudness whatever the gain, but for silence
        copy, original = (p * (2.0e6 / level.clamp(min=3.0))[:, None, None] for p in (copy, original))
        rest = self.threshold[:, None]
        a, b = (rest**self.exponent * ((0.5 + 0.5 * p / rest) ** self.exponent - 1) * 0.22 for p in (copy, original))
        apart = ((a - b).abs() - 0.25 * torch.minimum(a, b).clamp(min=0)).clamp(min=0)
        added = ((copy.detach() + 50) / (original + 50)) ** 1.2
        added = torch.where(added < 3, 0.0, added.clamp(max=12))
        scale = ((original.sum(1) + 1e5) / 1e7) ** 0.04
        symmetric = (apart.square().mean(1) + 1e-8).sqrt() * (0.1 * 18)
        return ((symmetric + (apart * added).mean(1) * (0.0309 * 18)) / scale).mean()


class PeriodDiscriminator(nn.Module):
    """Folds the samples at one period and looks along the columns."""

    def __init__(self, period: int, channels: list[int]):
        super().__init__()
        self.period = period
        pairs = list(zip([1, *channels[:-1]], channels, strict=True))
        self.layers = nn.ModuleList(
            [
                weight_norm(nn.Conv2d(i, o, (5, 1), (3 if n < len(pairs) - 1 else 1, 1), (2, 0)))
                for n, (i, o) in enumerate(pairs)
            ]
        )
        self.last = weight_norm(nn.Conv2d(channels[-1], 1, (3, 1), 1, (1, 0)))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = F.pad(x, (0, -x.shape[-1] % self.period)).view(x.shape[0], 1, -1, self.period)
        maps = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            maps.append(x)
        return self.last(x), maps


class SpectrumDiscriminator(nn.Module):
    """Looks at the complex spectrum of one window length with dilated 2-D convolutions."""

    def __init__(self, n_fft: int, channels: int):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("hann", torch.hann_window(n_fft), persistent=False)
        sizes = [(2, (1, 2), (1, 1))] + [(channels, (1, 2), (d, 1)) for d in (1, 2, 4)]
        self.layers = nn.ModuleList(
            [weight_norm(nn.Conv2d(i, channels, (3, 9), s, (d[0], 4), d)) for i, s, d in sizes]
            + [weight_norm(nn.Conv2d(channels, channels, 3, 1, 1))]
        )
        self.last = weight_norm(nn.Conv2d(channels, 1, 3, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        with torch.autocast(x.device.type, enabled=False):
            z = torch.stft(x.float(), self.n_fft, self.n_fft // 4, self.n_fft, self.hann, return_complex=True)
            x = (
                torch.view_as_real(z * (2 * self.n_fft**-0.5))
                .permute(0, 3, 2, 1)
                .contiguous(memory_format=torch.channels_last)
            )
        maps = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            maps.append(x)
        return self.last(x), maps


class Discriminators(nn.Module):
    """Five periods and three spectra; each gives (scores, feature maps)."""

    def __init__(self, small: bool = False):
        super().__init__()
        periods = [4, 8, 8] if small else [32, 64, 128, 256, 256]
        self.parts = nn.ModuleList(
            [PeriodDiscriminator(p, periods) for p in (2, 3, 5, 7, 11)]
            + [SpectrumDiscriminator(n, 4 if small else 32) for n in (2048, 1024, 512)]
        )

    def forward(self, x: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        return [part(x) for part in self.parts]


def discriminator_loss(real: list, fake: list) -> Tensor:
    """Least squares: real towards 1, fake towards 0; mean over the discriminators."""
    return sum(
        (1 - r.float()).square().mean() + f.float().square().mean() for (r, _), (f, _) in zip(real, fake, strict=True)
    ) / len(real)


def generator_losses(real: list, fake: list) -> tuple[Tensor, Tensor]:
    """-> (adversarial loss, feature distance relative to the features' size), means over discriminators and layers."""
    adversarial = sum((1 - f.float()).square().mean() for f, _ in fake) / len(fake)

    def size(x: Tensor) -> Tensor:  # the sum alone is float32: the maps are large, and their bytes are the cost
        return x.abs().mean(dtype=torch.float32)

    distances = [
        size(f - r.detach()) / size(r.detach()).clamp(min=1e-3)
        for (_, reals), (_, fakes) in zip(real, fake, strict=True)
        for r, f in zip(reals, fakes, strict=True)
    ]
    return adversarial, sum(distances) / len(distances)
