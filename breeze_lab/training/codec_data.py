"""Audio for codec training: one int16 stream on the device, crops with random pitch and gain drawn there.

    python -m breeze_lab.training.codec_data pack CORPUS packs --leave-out split.json --megabytes 60  # packs/0, packs/1
    python -m breeze_lab.training.codec_data decode packs/0 audio/train_0.npy

A pack is `index.json` and `audio.bin`, Opus files end to end; a stream is trimmed speech at 24 kHz. Streams can be
added to a folder while a training run reads from it.
"""

import argparse
import io
import json
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .pitch import track

RATE = 24000


def trim(x: np.ndarray, floor: float = 0.008, lead: int = 1920, tail: int = 4800) -> np.ndarray:
    """Cuts silence at both ends of float samples [N], keeping `lead` and `tail` samples of it."""
    energy = np.sqrt(np.convolve(x.astype(np.float64) ** 2, np.ones(240) / 240, "same"))
    loud = np.flatnonzero(energy > floor)
    return x[max(0, loud[0] - lead) : loud[-1] + tail] if len(loud) else x[:0]


def _decode(job: tuple[str, int, int]) -> np.ndarray:
    import soundfile

    path, offset, length = job
    with open(path, "rb") as file:
        file.seek(offset)
        x, rate = soundfile.read(io.BytesIO(file.read(length)), dtype="float32")
    if rate != RATE or x.ndim != 1:
        raise ValueError(f"{path} at {offset}: {rate} Hz, {x.ndim} dimensions. Expected mono at {RATE} Hz.")
    return (trim(x).clip(-1, 1) * 32767).astype(np.int16)


def pack(files: list[tuple[Path, dict]], folder: Path) -> int:
    """Writes Opus files end to end with an index of their offsets; -> bytes written."""
    folder.mkdir(parents=True, exist_ok=True)
    index, offset = [], 0
    with open(folder / "audio.bin", "wb") as out:
        for path, record in files:
            data = path.read_bytes()
            index.append({**record, "offset": offset, "bytes": len(data)})
            out.write(data)
            offset += len(data)
    (folder / "index.json").write_text(json.dumps(index))
    return offset


def decode_pack(folder: Path, target: Path, workers: int) -> float:
    """Decodes a pack to an int16 stream (written whole, then renamed); -> hours of audio."""
    jobs = [
        (str(folder / "audio.bin"), r["offset"], r["bytes"]) for r in json.loads((folder / "index.json").read_text())
    ]
    with ProcessPoolExecutor(workers) as pool:
        stream = np.concatenate(list(pool.map(_decode, jobs, chunksize=16)))
    temporary = target.with_suffix(".part")
    with open(temporary, "wb") as out:
        np.save(out, stream)
    os.replace(temporary, target)
    return len(stream) / RATE / 3600


class Stream:
    """Training audio of a folder of .npy streams; `refresh` takes up files that came since."""

    taps = 16

    def __init__(self, folder: Path, device: str, pattern: str = "*.npy", hop: int = 240):
        self.folder, self.device, self.pattern, self.hop = folder, device, pattern, hop
        self.seen: set[Path] = set()
        self.samples = torch.zeros(0, dtype=torch.int16, device=device)
        self.hertz = torch.zeros(0, device=device)  # pitch around each multiple of `hop`, 0 where unvoiced
        self.refresh()

    @property
    def hours(self) -> float:
        return len(self.samples) / RATE / 3600

    def refresh(self) -> bool:
        new = sorted(p for p in self.folder.glob(self.pattern) if p not in self.seen)
        for path in new:
            self.seen.add(path)
            samples = torch.from_numpy(np.load(path)).to(self.device)
            samples = samples[: len(samples) // self.hop * self.hop]
            self.samples = torch.cat([self.samples, samples])
            self.hertz = torch.cat([self.hertz, track(samples.float() / 32768, RATE, self.hop)])
        return bool(new)

    def crops(self, count: int, length: int, augment: bool = True, middle: int = 0) -> tuple[Tensor, Tensor]:
        """Random crops [count, length] in [-1, 1], and their pitch in Hertz `middle` samples after each hop's start.

        augment: half are played faster or slower by up to 18 %, half are made quieter or a little louder.
        """
        device = self.device
        speed = torch.ones(count, device=device)
        gain = torch.ones(count, device=device)
        if augment:
            chosen = torch.rand(count, device=device) < 0.5
            speed = torch.where(chosen, torch.exp((torch.rand(count, device=device) - 0.5) * 0.33), speed)
            chosen = torch.rand(count, device=device) < 0.5
            gain = torch.where(chosen, 0.25 + 0.95 * torch.rand(count, device=device), gain)
        reach = int(length * 1.2) + 2 * self.taps
        start = (torch.rand(count, device=device, dtype=torch.float64) * (len(self.samples) - reach)).long() + self.taps
        offset = torch.arange(length, device=device)[None].double() * speed[:, None]
        whole = offset.floor()
        fraction = (offset - whole).float()
        base = start[:, None] + whole.long()
        cutoff = (1 / speed).clamp(max=1.0)[:, None]
        out = torch.zeros(count, length, device=device)
        for k in range(1 - self.taps // 2, self.taps // 2 + 1):  # windowed sinc, one tap at a time
            distance = fraction - k
            weight = (
                torch.sinc(distance * cutoff) * cutoff * torch.cos(distance * (torch.pi / (self.taps + 1))).square()
            )
            out += self.samples[base + k].float() * weight
        place = torch.arange(middle, length + middle, self.hop, device=device) * speed[:, None].double()
        place = (start[:, None] + place) / self.hop
        low = place.long().clamp(max=len(self.hertz) - 2)
        a, b = self.hertz[low], self.hertz[low + 1]
        between = torch.where((a > 0) & (b > 0), torch.lerp(a, b, (place - low).float()), 0.0)
        return (out * (gain[:, None] / 32768)).clamp(-1, 1), between * speed[:, None]


def choose(corpus: Path, leave_out: dict[str, list[str]], seed: int) -> list[tuple[Path, dict]]:
    """Sound files of a corpus folder (`manifest.jsonl`) in random order, without the voices and texts named."""
    voices = {*leave_out.get("held_out_voices", []), *leave_out.get("dropped_voices", [])}
    texts = set(leave_out.get("held_out_texts", []))
    rows = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["voice"] not in voices and row["text"] not in texts]
    random.Random(seed).shuffle(rows)
    return [(corpus / row["file"], {"voice": row["voice"]}) for row in rows]


def pack_all(args: argparse.Namespace) -> None:
    files = choose(args.corpus, json.loads(args.leave_out.read_text()) if args.leave_out else {}, args.seed)
    number, size, part = 0, 0, []
    for file in [*files, None]:
        length = file[0].stat().st_size if file else 0
        if part and (file is None or size + length > args.megabytes * 1e6):
            print(f"{args.out / str(number)}: {len(part)} files, {pack(part, args.out / str(number)) / 1e6:.1f} MB")
            number, size, part = number + 1, 0, []
        if file:
            part.append(file)
            size += length


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes packs of Opus speech, and decodes one to an int16 stream.")
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("pack", help="sound files of a corpus -> packs")
    p.add_argument("corpus", type=Path, help="folder with manifest.jsonl")
    p.add_argument("out", type=Path)
    p.add_argument("--leave-out", type=Path, help="JSON with held_out_voices, dropped_voices, held_out_texts")
    p.add_argument("--megabytes", type=float, default=60, help="a pack's size at most")
    p.add_argument("--seed", type=int, default=0)
    p.set_defaults(run=pack_all)
    p = commands.add_parser("decode", help="one pack -> .npy stream")
    p.add_argument("pack", type=Path, help="folder with index.json and audio.bin")
    p.add_argument("out", type=Path, help=".npy file to write")
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.set_defaults(run=lambda a: print(f"{a.out}: {decode_pack(a.pack, a.out, a.workers):.2f} h"))
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
