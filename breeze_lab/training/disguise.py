"""Few voices -> very many: utterances in disguise, for learning to clone.

    python -m breeze_lab.training.disguise waves --codec data/waft/audio_tokenizer --out codes --hours 60
    python -m breeze_lab.training.disguise waves --device cpu --out disguised --hours 60 --seed 1

Some utterances of one voice get the same new vocal tract (formants moved and bent), size (resampling), color and
breath, so that they are a new person; what was learned of the few voices by heart is no help with these, the reference
is. In each such group the first utterance is a reference alone and may also get a recording's faults, noise and a room,
which the others don't have. `waves` are the shards of `pack make --waves`, looked for again while it runs. Without
--codec the audio is written as such shards, for `pack encode`: beside a training on the GPU, CPU cores (40 x real time
each) do it faster.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from . import pack, traits
from .batches import MARK
from .teachers import HEART, RATE

N_FFT, HOP, LIFTER = 1024, 256, 40
BINS = N_FFT // 2 + 1
GROUP = 3  # utterances of one disguise
COLORS = 8  # ripples of the color, at most three octaves apart along a mel-like axis


@dataclass(frozen=True)
class Disguise:
    """A new voice made of an old one."""

    size: float  # resampling: pitch, formants and pace go up together
    formants: float  # then the spectral envelope alone is stretched by this
    bend: tuple[float, float]  # and this much more in its lower and its upper formants
    color: np.ndarray  # dB of each ripple along the frequency axis
    breath: float  # share of noise in the high bands


def draw_disguise(rng: np.random.Generator) -> Disguise:
    """One of endlessly many; pitch and formants both move by up to a third, mostly by less."""
    size = float(np.exp(rng.uniform(np.log(0.8), np.log(1.22))))
    tract = float(np.exp(np.clip(rng.normal(0, 0.12), -0.25, 0.25)))  # the formants' own size, whatever the pitch
    bend = (float(np.clip(rng.normal(0, 0.05), -0.1, 0.1)), float(np.clip(rng.normal(0, 0.04), -0.08, 0.08)))
    color = rng.normal(0, 1, COLORS) * (4.2 / np.sqrt(1 + np.arange(COLORS)))
    return Disguise(size, float(np.clip(tract / size**0.5, 0.77, 1.3)), bend, color, float(rng.beta(1, 2) * 0.7))


def warp_of(disguise: Disguise) -> tuple[np.ndarray, np.ndarray]:
    """(bin of the old envelope for every bin of the new one, color in dB), float [BINS] each."""
    hertz = np.arange(BINS) * RATE / N_FFT
    low, high = disguise.bend
    local = low * np.exp(-(((hertz - 700) / 600) ** 2)) + high * np.exp(-(((hertz - 2600) / 1200) ** 2))
    source = np.maximum.accumulate(hertz / (disguise.formants * (1 + local)))
    axis = np.log1p(hertz / 700) / np.log1p(RATE / 2 / 700)
    ripples = np.cos(np.pi * np.outer(np.arange(1, COLORS + 1), axis))
    color = disguise.color @ ripples
    return np.minimum(source * N_FFT / RATE, BINS - 1), color - color[10:170].mean()


def stretched(x: Tensor, size: float) -> Tensor:
    """Samples [N] resampled to N / size, by their spectrum."""
    n = len(x) + -len(x) % 240
    m = round(n / size)
    spectrum = torch.fft.rfft(F.pad(x, (0, n - len(x))))
    return torch.fft.irfft(spectrum[: m // 2 + 1], m) * (m / n)


def envelope(magnitude: Tensor) -> Tensor:
    """Log spectral envelope of [B, BINS, T] magnitudes: a cepstrally smoothed curve that lies on the harmonics."""
    log = (magnitude + 1e-5).log()
    lifter = torch.zeros(N_FFT, device=log.device)
    lifter[:LIFTER] = 1.0
    lifter[LIFTER : LIFTER + 12] = torch.linspace(1, 0, 12, device=log.device)
    lifter[-(LIFTER + 12) :] = lifter[1 : LIFTER + 13].flip(0)
    smooth = None
    for _ in range(4):
        target = log if smooth is None else torch.maximum(log, smooth)
        smooth = torch.fft.rfft(torch.fft.irfft(target, N_FFT, dim=1) * lifter[:, None], dim=1).real
    return smooth


def transform(x: Tensor, disguises: list[Disguise], generator: torch.Generator) -> Tensor:
    """Samples [B, N], row i in disguise i (but for the size); same shape."""
    window = torch.hann_window(N_FFT, device=x.device)
    spectrum = torch.stft(x, N_FFT, HOP, window=window, return_complex=True)
    magnitude = spectrum.abs()
    old = envelope(magnitude)
    warps, colors = (torch.tensor(np.stack(a), dtype=torch.float32, device=x.device) for a in
                     zip(*map(warp_of, disguises), strict=True))  # fmt: skip
    below = warps.long().clamp(max=BINS - 2)
    part = (warps - below)[..., None]
    index = below[..., None].expand(-1, -1, old.shape[-1])
    new = old.gather(1, index) * (1 - part) + old.gather(1, index + 1) * part
    gain = (new - old).clamp(-3.0, 2.5) + colors[..., None] * 0.1151
    hertz = torch.arange(BINS, device=x.device) * RATE / N_FFT
    breath = torch.tensor([d.breath for d in disguises], device=x.device)[:, None] * torch.sigmoid((hertz - 2800) / 700)
    noise = torch.complex(*torch.randn(2, *magnitude.shape, device=x.device, generator=generator)) * 0.7
    smoothed = F.avg_pool1d(magnitude.transpose(1, 2), 9, 1, 4, count_include_pad=False).transpose(1, 2)
    mixed = spectrum * (1 - breath[..., None]).sqrt() + smoothed * noise * breath[..., None].sqrt()
    return torch.istft(mixed * gain.exp(), N_FFT, HOP, window=window, length=x.shape[-1])


def recorded(x: Tensor, rng: np.random.Generator, generator: torch.Generator) -> Tensor:
    """Samples [N] as an ordinary recording: often with a room and with noise 18 to 50 dB under the speech."""
    if rng.random() < 0.35:
        seconds, direct = rng.uniform(0.12, 0.6), rng.uniform(3, 15)  # reverberation time, dB over the room
        t = torch.arange(int(seconds * RATE), device=x.device) / RATE
        tail = torch.randn(len(t), device=x.device, generator=generator) * torch.exp(-6.9 * t / seconds) * (t > 0.002)
        tail = tail / tail.square().sum().sqrt() * 10 ** (-direct / 20)
        n = len(x) + len(tail)
        x = x + torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(tail, n), n)[: len(x)]
    if rng.random() < 0.6:
        noise = torch.fft.rfft(torch.randn(len(x), device=x.device, generator=generator))
        hertz = torch.fft.rfftfreq(len(x), 1 / RATE, device=x.device)
        noise = torch.fft.irfft(noise * (hertz + 60) ** -rng.uniform(0, 1), len(x))
        x = x + noise * (x.square().mean() / noise.square().mean()).sqrt() * 10 ** (-rng.uniform(18, 50) / 20)
    return x


def leveled(x: Tensor, decibels: float) -> Tensor:
    """Samples [N] at the corpus's level, this much louder; as `traits.level` and `pack.variants` do it."""
    power = x[: len(x) // 480 * 480].view(-1, 480).square().mean(1)
    loud = power > power.max() * 10**-3.5
    x = x * (traits.LEVEL * 10 ** (decibels / 20) / (power * loud).sum().div(loud.sum()).sqrt().clamp(min=1e-4))
    return x / (x.abs().max() / 0.98).clamp(min=1.0)


class Maker:
    """Groups of utterances in disguise from the shards of a folder."""

    def __init__(self, folders: list[Path], seed: int, device: str, heart_share: float = 0.12):
        self.folders, self.device, self.heart_share = folders, device, heart_share
        self.rng, self.generator = np.random.default_rng(seed), torch.Generator(device).manual_seed(seed)
        self.known: set[Path] = set()
        self.voices: dict[str, list[pack.Variant]] = {}
        self.count, self.seed = 0, seed

    def refresh(self) -> None:
        """Take in the shards that are new: utterances at their own speed and loudness, 1 to 9 s."""
        for path in (p for folder in self.folders for p in sorted(folder.glob("*.jsonl"))):
            if path not in self.known:
                self.known.add(path)
                for v in pack.prepared(path):
                    ordinary = not {"@", MARK} & set(v.row["voice"]) and not v.row["loudness"]
                    crowded = v.row["voice"] == HEART and len(self.voices.get(HEART, ())) > 4000
                    if ordinary and not crowded and 1.0 < len(v.audio) / RATE < 9.0:
                        kept = pack.Variant((v.audio * 32767).astype(np.int16), v.row)
                        self.voices.setdefault(v.row["voice"], []).append(kept)

    def group(self) -> tuple[Disguise, list[pack.Variant]]:
        names = [v for v, some in self.voices.items() if len(some) >= GROUP and v != HEART]
        few = len(self.voices.get(HEART, ())) < GROUP
        voice = (
            HEART if not few and (not names or self.rng.random() < self.heart_share) else str(self.rng.choice(names))
        )
        some = self.rng.choice(len(self.voices[voice]), GROUP, replace=False)
        return draw_disguise(self.rng), [self.voices[voice][i] for i in some]

    def make(self, groups: int) -> list[pack.Variant]:
        """So many groups of GROUP utterances, disguised."""
        drawn = [self.group() for _ in range(groups)]
        clips = [(d, v, n) for d, some in drawn for n, v in enumerate(some)]
        sound = [stretched(torch.from_numpy(v.audio).to(self.device).float() / 32767, d.size) for d, v, _ in clips]
        order = sorted(range(len(clips)), key=lambda i: len(sound[i]))
        made: dict[int, pack.Variant] = {}
        for at in range(0, len(order), 24):
            some = order[at : at + 24]
            longest = max(len(sound[i]) for i in some)
            x = torch.stack([F.pad(sound[i], (0, longest - len(sound[i]))) for i in some])
            for i, y in zip(some, transform(x, [clips[i][0] for i in some], self.generator), strict=True):
                _, v, n = clips[i]
                y = y[: len(sound[i])]
                if n == 0:
                    y = recorded(y, self.rng, self.generator)
                y = leveled(y, self.rng.uniform(-3, 3))
                pace = traits.pace(v.row["text"], len(y) / RATE)
                row = {"voice": f"{v.row['voice']}{MARK}{self.seed}-{self.count + i // GROUP}", "text": v.row["text"]}
                row |= {"gender": None, **traits.classes("female", 0.0, pace, None), "normal": False}
                made[i] = pack.Variant(y.cpu().numpy(), row | {"reference": n == 0})
        self.count += groups
        return [made[i] for i in range(len(clips))]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("waves", type=Path, nargs="+")
    parser.add_argument("--codec", type=Path, help="audio_tokenizer folder; without it audio is written")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=60, help="stop after so much speech")
    parser.add_argument("--groups", type=int, default=100, help="groups a file")
    parser.add_argument("--until", type=Path, help="stop when this file is there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    encode = pack.load_encoder(args.codec, args.device) if args.codec else None
    maker = Maker(args.waves, args.seed, args.device)
    seconds, number = 0.0, 0
    while seconds < args.hours * 3600 and not (args.until and args.until.exists()):
        maker.refresh()
        if not any(len(some) >= GROUP for some in maker.voices.values()):
            time.sleep(1)
            continue
        made, stem = maker.make(args.groups), args.out / f"disguise-{args.seed}-{number:04d}"
        if encode is None:
            pack.write_waves(stem, made)
        else:
            longest = 120.0 if args.device == "cpu" else 600.0
            pack.save(stem.with_suffix(".npz"), *pack.encode_all(made, encode, longest))
        seconds, number = seconds + sum(len(v.audio) for v in made) / RATE, number + 1
        print(f"{number}: {seconds / 3600:.2f} h of {len(maker.voices)} voices", flush=True)


if __name__ == "__main__":
    main()
