"""Audio shards -> codes: the variants of each utterance, their traits, and the codec's codes, in one small file.

    python -m breeze_lab.training.pack encode --codec audio_tokenizer --out codes corpus/old corpus/voices corpus/heart
    python -m breeze_lab.training.pack make --codec audio_tokenizer --out codes --texts texts.txt --opus OLD_CORPUS \\
        --hours 22
    python -m breeze_lab.training.pack make --waves --out waves --texts texts.txt --drawn 6 --packs-folder voices
    python -m breeze_lab.training.pack encode --codec frozen.pt --device cuda --until stop --out codes waves
    python -m breeze_lab.training.pack merge --out train.npz codes

An utterance of the many-voiced teacher is packed as it is and once more resampled (0.85 to 1.16: another speaker's
pitch, formants and pace), the one of the default voice mostly as it is. `encode` writes one file a shard and goes on
where it stopped; `make` does the same without shards on disk: it reads Opus files and lets the teachers speak, with
many processes on a machine with a GPU. While the codec is still in training, `make --waves` writes shards of the
variants, and `encode` makes their codes later. `merge` joins the files. In the file: `low` uint8 and `high` (packed
bits) hold codes [F, K] of 9 bits, `rows` the JSON of the utterances (start, frames, voice, gender, text as the
tokenizer sees it, pitch, pace, loudness, normal).
"""

import argparse
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import soxr

from ..text import hibari_us
from . import traits
from .corpus import read_shard
from .teachers import HEART, RATE

FACTORS = (0.85, 0.92, 1.08, 1.16)
MAX_SECONDS = 14.0


@dataclass
class Variant:
    """One utterance as it will be encoded."""

    audio: np.ndarray
    row: dict


def variants(row: dict, audio: np.ndarray) -> Iterator[Variant]:
    """The versions of an utterance, chosen by a hash of what it is, so that they never change."""
    rng = np.random.default_rng(zlib.crc32(f"{row['voice']}|{row['speed']}|{row['text']}".encode()))
    audio = audio.astype(np.float32) / 32767
    text = hibari_us(row["text"])
    plans = [(1.0, None)]
    loud = [None, None, None, "quiet", "loud"][rng.integers(5)]
    factor = float(rng.choice(FACTORS))
    if row["voice"] != HEART:
        plans.append((factor, loud))
    elif rng.random() < 0.28:
        plans = [(factor if rng.random() < 0.6 else 1.0, loud)]
    for factor, loudness in plans:
        x = audio if factor == 1.0 else soxr.resample(audio, RATE * factor, RATE)
        jitter = rng.uniform(-3, 3) if row["voice"] != HEART else rng.uniform(-1, 1)
        jitter += {None: 0.0, "quiet": -13.0, "loud": 8.0}[loudness]
        x = x * (traits.LEVEL * 10 ** (jitter / 20) / max(traits.level(x), 1e-4))
        x = x / max(1.0, float(np.abs(x).max()) / 0.98)
        hertz, per_second = traits.pitch(x), traits.pace(text, len(x) / RATE)
        made = {
            "voice": row["voice"] if factor == 1.0 else f"{row['voice']}@{factor}",
            "gender": row["gender"],
            "text": text,
            **traits.classes(row["gender"], hertz, per_second, loudness),
        }
        made["normal"] = factor == 1.0 and not any(made[k] for k in ("pace", "loudness"))
        yield Variant(x, made)


def prepared(path: Path) -> Iterator[Variant]:
    """The variants of a shard: those that `make --waves` wrote as they are, else made here."""
    for row, audio in read_shard(path):
        if "normal" in row:
            kept = {k: v for k, v in row.items() if k not in ("start", "samples")}
            yield Variant(audio.astype(np.float32) / 32767, kept)
        else:
            yield from variants(row, audio)


def write_waves(stem: Path, made: Iterable[Variant]) -> None:
    """A shard of variants: STEM.npy and, once that is complete, STEM.jsonl."""
    rows, audio, start = [], [], 0
    for v in made:
        audio.append(np.round(v.audio * 32767).astype(np.int16))
        rows.append(json.dumps({"start": start, "samples": len(v.audio), **v.row}))
        start += len(v.audio)
    np.save(stem.with_suffix(".npy"), np.concatenate(audio))
    stem.with_suffix(".part").write_text("\n".join(rows) + "\n")
    stem.with_suffix(".part").rename(stem.with_suffix(".jsonl"))


def load_encoder(path: Path, device: str = "cpu") -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """Function: float32 arrays -> codes uint16 [F, K] each, by the PyTorch codec."""
    import torch
    from safetensors.torch import load_file

    from .codec_model import Codec, CodecShape

    if path.suffix == ".pt":  # a checkpoint of the codec's training
        state = torch.load(path, map_location="cpu", weights_only=True)
        config, weights = state["shape"], state["codec"]
    else:
        config, weights = json.loads((path / "config.json").read_text()), load_file(path / "model.safetensors")
    shape = CodecShape(**{k: v for k, v in config.items() if k in CodecShape.__dataclass_fields__})
    codec = Codec(shape)
    codec.load_state_dict({k: v.float() for k, v in weights.items()}, strict=path.suffix == ".pt")
    codec.eval().to(device)

    def encode(clips: list[np.ndarray]) -> list[np.ndarray]:
        longest = max(map(len, clips))
        batch = torch.zeros(len(clips), longest)
        for i, clip in enumerate(clips):
            batch[i, : len(clip)] = torch.from_numpy(clip)
        with torch.inference_mode():
            codes = codec.encode(batch.to(device)).to(torch.int16).cpu().numpy().astype(np.uint16)
        return [c[: -(-len(clip) // shape.frame_size)] for c, clip in zip(codes, clips, strict=True)]

    return encode


def encode_all(made: Iterable[Variant], encode, batch_seconds: float = 120.0) -> tuple[list[dict], np.ndarray]:
    """Rows and codes of the variants, encoded in order of length so that a batch wastes little."""
    ordered = sorted((v for v in made if 0.5 < len(v.audio) / RATE < MAX_SECONDS), key=lambda v: len(v.audio))
    rows, codes, start, batch = [], [], 0, []
    for i, v in enumerate(ordered):
        batch.append(v)
        if i + 1 == len(ordered) or (len(batch) + 1) * len(ordered[i + 1].audio) > batch_seconds * RATE:
            for item, c in zip(batch, encode([b.audio for b in batch]), strict=True):
                rows.append({"start": start, "frames": len(c), **item.row})
                codes.append(c)
                start += len(c)
            batch = []
    return rows, np.concatenate(codes)


def chunks_of(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Iterable[tuple[dict, np.ndarray]]]]]:
    """(name, function that yields rows with int16 audio) of every chunk of `make`: both teachers in turn."""
    from . import corpus

    train, held = corpus.read_texts(args.texts)
    parts = corpus.opus_chunks(args.opus, args.packs, held) if args.opus else []
    voiced = [(f"{args.opus.name}-{i:04d}", part) for i, part in enumerate(parts)]
    voiced += [(path.stem, path) for folder in args.shards for path in sorted(folder.glob("*.jsonl"))]
    lines, seconds, i = corpus.plan_heart(train), 0.0, 0
    while voiced or seconds < args.hours * 3600:
        if voiced:
            name, part = voiced.pop(0)
            yield name, partial(corpus.read_shard if isinstance(part, Path) else corpus.read_opus, part)
        if seconds < args.hours * 3600:
            some = [next(lines) for _ in range(100)]
            seconds += sum(len(line.text) for line in some) / 15.5
            yield f"heart-{i:04d}", partial(corpus.speak_lines, some)
            i += 1
    lines, seconds, i = corpus.plan_voices(train, 14 if args.fresh else 11, args.fresh), 0.0, 0
    while seconds < args.drawn * 3600:
        some = [next(lines) for _ in range(24)]
        seconds += sum(len(line.text) for line in some) / 15.5
        yield f"drawn-{i:04d}", partial(corpus.speak_lines, some, args.packs_folder)
        i += 1


def make_command(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    if args.codec is None and not args.waves:
        raise SystemExit("make needs --codec, or --waves to write audio")
    encode = None if args.waves else load_encoder(args.codec, args.device)
    for i, (name, read_rows) in enumerate(chunks_of(args)):
        target = args.out / f"{name}{'.jsonl' if args.waves else '.npz'}"
        if i % args.ranks != args.rank or target.exists():
            continue
        made = (v for row, audio in read_rows() for v in variants(row, audio))
        if encode is None:
            write_waves(args.out / name, made)
        else:
            save(target, *encode_all(made, encode))


def save(path: Path, rows: list[dict], codes: np.ndarray) -> None:
    part = path.with_suffix(".part.npz")
    text = np.frombuffer(zlib.compress(json.dumps(rows, ensure_ascii=False).encode(), 6), np.uint8)
    np.savez(part, low=(codes & 255).astype(np.uint8), high=np.packbits((codes >> 8).astype(np.uint8)), rows=text)
    part.rename(path)


def read(path: Path) -> tuple[list[dict], np.ndarray]:
    """(rows, codes int16 [F, K])."""
    with np.load(path) as z:
        low = z["low"].astype(np.int16)
        high = np.unpackbits(z["high"])[: low.size].reshape(low.shape).astype(np.int16)
        return json.loads(zlib.decompress(z["rows"].tobytes()).decode()), low | (high << 8)


def encode_command(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    encode, done = load_encoder(args.codec, args.device), False
    while not done:
        done = args.until is None or args.until.exists()
        for path in (p for folder in args.shards for p in sorted(Path(folder).glob("*.jsonl"))):
            target = args.out / f"{path.parent.name}-{path.stem}.npz"
            if zlib.crc32(target.name.encode()) % args.ranks == args.rank and not target.exists():
                rows, codes = encode_all(prepared(path), encode, 120.0 if args.device == "cpu" else 900.0)
                save(target, rows, codes)
                print(f"{target.name}: {len(rows)} utterances, {len(codes) * 0.08 / 3600:.2f} h", flush=True)
        if not done:
            time.sleep(2)


def merge(paths: list[Path]) -> tuple[list[dict], np.ndarray]:
    rows, codes, start = [], [], 0
    for path in paths:
        r, c = read(path)
        rows += [{**row, "start": row["start"] + start} for row in r]
        codes.append(c)
        start += len(c)
    return rows, np.concatenate(codes)


def merge_command(args: argparse.Namespace) -> None:
    paths = [
        p for folder in args.codes for p in ([folder] if folder.suffix == ".npz" else sorted(folder.glob("*.npz")))
    ]
    rows, codes = merge(paths)
    save(args.out, rows, codes)
    print(
        f"{args.out}: {len(rows)} utterances, {len(codes) * 0.08 / 3600:.2f} h, {args.out.stat().st_size / 1e6:.1f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("encode", help="audio shards to codes, one file a shard")
    p.add_argument("shards", type=Path, nargs="+")
    p.add_argument(
        "--codec", type=Path, required=True, help="folder with the codec's config.json and model.safetensors"
    )
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--until", type=Path, help="look for new shards until this file is there")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.set_defaults(run=encode_command)
    p = commands.add_parser("make", help="teachers and Opus files to codes, in many processes")
    p.add_argument("--codec", type=Path)
    p.add_argument("--waves", action="store_true", help="write audio instead of codes: no codec, no PyTorch")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--texts", type=Path, required=True)
    p.add_argument("--opus", type=Path, help="the first corpus: manifest.jsonl and opus/")
    p.add_argument("--packs", nargs="*", default=[], help="names of Kokoro's packs, which tell what a mix is made of")
    p.add_argument("--shards", type=Path, nargs="*", default=[])
    p.add_argument("--hours", type=float, default=20, help="about so much speech of the default voice")
    p.add_argument("--drawn", type=float, default=0, help="about so much speech of drawn voices, by Kokoro")
    p.add_argument("--fresh", action="store_true", help="drawn voices that the earlier rounds didn't have")
    p.add_argument("--packs-folder", type=Path, help="for these: folder of Kokoro's packs and kokoro.int8.onnx")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--device", default="cuda")
    p.set_defaults(run=make_command)
    p = commands.add_parser("merge", help="join files of codes")
    p.add_argument("codes", type=Path, nargs="+", help="files, or folders of them")
    p.add_argument("--out", type=Path, required=True)
    p.set_defaults(run=merge_command)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
