"""Judge the codec alone: held-out voices through encode and decode. Prints the codec rows of Waft's card.

    pip install pesq                # beside the judges of breeze_lab.training.judges
    python -m breeze_lab.training.eval_codec --codec data/waft/audio_tokenizer corpus/old/heldout --out codec.json

Everything runs in breeze_lab, on this machine. An item is one utterance; a second one of the same voice serves as the
reference of speaker similarity. With --codebooks 8 the decoder gets the first 8 codebooks' entries alone.
"""

import argparse
import json
from itertools import zip_longest
from pathlib import Path

import mlx.core as mx
import numpy as np

from ..codec import Codec, load_codec
from . import judges
from .corpus import read_shards

# name, key, floor, aim, higher is better
ROWS = (
    ("PESQ-wb", "pesq", 2.3, 3.0, True),
    ("DistillMOS", "mos", 3.3, 4.1, True),
    ("WER above the original's", "wer_rise", 0.04, 0.01, False),
    ("CAM++ to another utterance of the voice", "similarity", 0.70, 0.77, True),
)


def pick(folders: list[Path], count: int, shortest: float = 2.0) -> list[tuple[dict, np.ndarray, np.ndarray]]:
    """(row, utterance, another one of its voice), voice after voice in turn, int16 -> float32 in [-1, 1]."""
    voices: dict[str, list[tuple[dict, np.ndarray]]] = {}
    for folder in folders:
        for row, samples in read_shards(folder):
            if len(samples) >= shortest * 24_000:
                voices.setdefault(row["voice"], []).append((row, samples.astype(np.float32) / 32768))
    pairs = {voice: list(zip(rows[::2], rows[1::2], strict=False)) for voice, rows in sorted(voices.items())}
    turns = (pair for turn in zip_longest(*pairs.values()) for pair in turn if pair is not None)
    return [(row, samples, other) for (row, samples), (_, other) in turns][:count]


def through(codec: Codec, samples: np.ndarray, codebooks: int | None = None) -> np.ndarray:
    """Samples encoded and decoded, cut to their length."""
    codes = codec.encode(mx.array(samples))
    if codebooks is None:
        audio = codec.decode(codes)
    else:
        quantizer = codec.quantizer
        entries = sum(quantizer.acoustic.codebooks[k][codes[:, k + 1]] for k in range(codebooks - 1))
        audio = codec.speak(
            mx.concatenate([quantizer.semantic.entries(codes[:, :1]), entries], axis=-1), codec.make_state()
        )
    return np.array(audio)[: len(samples)]


def judge(row: dict, original: np.ndarray, copy: np.ndarray, other: np.ndarray) -> dict:
    """All judges on one item; samples at 24 kHz."""
    from pesq import pesq

    original, copy, other = (judges.to_16k(x) for x in (original, copy, other))
    hear, rate, embed = judges.whisper(), judges.mos(), judges.speaker()
    voice = embed(other)
    return {
        "voice": row["voice"],
        "text": row["text"],
        "pesq": pesq(judges.RATE, original, copy, "wb"),
        "mos": rate(copy),
        "mos_original": rate(original),
        "words": judges.word_errors(row["text"], hear(copy)),
        "words_original": judges.word_errors(row["text"], hear(original)),
        "similarity": float(embed(copy) @ voice),
        "similarity_original": float(embed(original) @ voice),
    }


def summary(items: list[dict]) -> dict[str, float]:
    """Means over the items; word error rates over all words."""
    means = {
        key: float(np.mean([item[key] for item in items]))
        for key in ("pesq", "mos", "mos_original", "similarity", "similarity_original")
    }
    for key, source in (("wer", "words"), ("wer_original", "words_original")):
        means[key] = sum(i[source][0] for i in items) / max(1, sum(i[source][1] for i in items))
    return {**means, "wer_rise": means["wer"] - means["wer_original"]}


def table(means: dict[str, float], count: int) -> str:
    """The codec's rows as Markdown."""
    lines = [
        f"| codec alone, held-out voices, n = {count} | result | floor | aim | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, key, floor, aim, higher in ROWS:
        sign = 1 if higher else -1
        verdict = "aim" if sign * (means[key] - aim) >= 0 else "floor" if sign * (means[key] - floor) >= 0 else "below"
        lines.append(f"| {name} | {means[key]:.3f} | {floor} | {aim} | {verdict} |")
    lines.append(
        f"\nWER {means['wer']:.3f} (originals {means['wer_original']:.3f}), DistillMOS of the originals "
        f"{means['mos_original']:.2f}, CAM++ of the originals {means['similarity_original']:.3f}."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Judges the codec on held-out voices and prints the card's codec rows."
    )
    parser.add_argument("shards", type=Path, nargs="+", help="folders of corpus shards with held-out voices")
    parser.add_argument("--codec", type=Path, default=Path("data/waft/audio_tokenizer"))
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--codebooks", type=int, help="decode from the first so many codebooks (at least 2)")
    parser.add_argument("--out", type=Path, help="JSON file for the items and the means")
    args = parser.parse_args()
    codec = load_codec(args.codec)
    items = []
    for row, samples, other in pick(args.shards, args.items):
        items.append(judge(row, samples, through(codec, samples, args.codebooks), other))
        print(f"\r{len(items)} of {args.items}", end="", flush=True)
    means = summary(items)
    if args.out:
        args.out.write_text(json.dumps({"means": means, "items": items}, indent=1) + "\n")
    print("\r" + table(means, len(items)))


if __name__ == "__main__":
    main()
