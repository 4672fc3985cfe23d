"""The corpus of Waft: what is said by whom, spoken by the teachers, cut into shards.

    python -m breeze_lab.training.corpus speak --teacher kokoro --plan voices --texts texts.txt --packs \\
        package/voices --out corpus/voices
    python -m breeze_lab.training.corpus speak --teacher hibari --plan heart  --texts texts.txt --out corpus/heart
    python -m breeze_lab.training.corpus speak --teacher kokoro --plan heldout --texts texts.txt --packs \\
        package/voices --out corpus/heldout
    python -m breeze_lab.training.corpus import --opus OLD_CORPUS --out corpus/old

A shard is `NAME.npy` (int16 [samples], 24 kHz, one utterance after another) and `NAME.jsonl` (one row an utterance:
start, samples, voice, gender, text, speed, teacher). A plan is a pure function of the texts and its seed, so a run that
was stopped goes on with the next shard, and `--rank R --ranks N` splits it over processes.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from . import teachers

HELD_OUT_TEXTS = 200  # the last lines of the text file: never spoken in training
SHARD = 200  # utterances
FIRST_CORPUS = 8_900  # lines of the text file that the first corpus spoke
SPEAKERS = (
    "af_bella",
    "am_michael",
    "af_nova",
    "am_fenrir",
    "bf_isabella",
    "bm_fable",
    "af_river",
    "am_onyx",
    "bm_daniel",
)


@dataclass(frozen=True)
class Line:
    """One utterance to be spoken."""

    text: str
    voice: str
    speed: float


def read_texts(path: Path) -> tuple[list[str], list[str]]:
    """(texts for training, held-out texts)."""
    lines = [line for line in Path(path).read_text().split("\n") if line.strip()]
    held = {line.lower() for line in lines[-HELD_OUT_TEXTS:]}
    return [line for line in lines[:-HELD_OUT_TEXTS] if line.lower() not in held], lines[-HELD_OUT_TEXTS:]


def draw_speed(rng: np.random.Generator, spread: float = 0.5) -> float:
    """Mostly an ordinary pace; `spread` of the lines slow (0.68 to 0.85) or fast (1.2 to 1.45) for the instructions."""
    kind = rng.random()
    low, high = (0.68, 0.85) if kind < spread / 2 else (1.2, 1.45) if kind < spread else (0.92, 1.1)
    return round(float(rng.uniform(low, high)), 3)


def plan_voices(texts: list[str], seed: int = 11, fresh: bool = False) -> Iterator[Line]:
    """Many voices, four lines of a voice in a row: 240 drawn voices and the nine speakers that have a tag of their
    own; `fresh`: thousands of other drawn ones instead."""
    rng = np.random.default_rng(seed)
    pool = texts[FIRST_CORPUS:]
    order = rng.permutation(len(pool))
    drawn = [f"gauss-{'fm'[n % 2]}-{n}" for n in (range(2000, 9000) if fresh else range(1000, 1240))]
    for block in range(len(pool) // 4):
        voice = (
            SPEAKERS[block // 3 % len(SPEAKERS)]
            if block % 3 == 2 and not fresh
            else drawn[(block - block // 3) % len(drawn)]
        )
        for i in order[4 * block : 4 * block + 4]:
            yield Line(pool[i], voice, draw_speed(rng, 0.3))


def plan_heart(texts: list[str], seed: int = 12) -> Iterator[Line]:
    """All the texts in the default voice, some joined in twos and threes so that long lines are learned."""
    rng = np.random.default_rng(seed)
    while True:
        order, i = rng.permutation(len(texts)), 0
        while i < len(order):
            n = 1 + int(rng.random() < 0.3) + int(rng.random() < 0.12)
            yield Line(" ".join(texts[j] for j in order[i : i + n]), teachers.HEART, draw_speed(rng, 0.35))
            i += n


def plan_heldout(held: list[str], seed: int = 13) -> Iterator[Line]:
    """Forty voices that training never hears (34 drawn ones, 6 packs), three held-out lines each."""
    rng = np.random.default_rng(seed)
    voices = [*teachers.HELD_OUT_PACKS, *(f"gauss-{'fm'[n % 2]}-{1 + n}" for n in range(34))]
    for voice in voices:
        for i in rng.permutation(len(held))[:3]:
            yield Line(held[i], voice, 1.0)


def trim(audio: np.ndarray, before: float = 0.06, after: float = 0.14) -> np.ndarray:
    """Cuts the silence at both ends to `before` and `after` seconds (10 ms windows, 40 dB under the loudest)."""
    hop = teachers.RATE // 100
    level = np.sqrt((audio[: len(audio) // hop * hop].reshape(-1, hop) ** 2).mean(1))
    loud = np.nonzero(level > 0.01 * level.max())[0]
    start, end = loud[0] * hop - before * teachers.RATE, (loud[-1] + 1) * hop + after * teachers.RATE
    return audio[max(0, int(start)) : int(end)]


class ShardWriter:
    """Collects utterances and writes a shard each SHARD of them; rows appear only when their audio is on disk."""

    def __init__(self, folder: Path, name: str, first: int = 0):
        self.folder, self.name, self.number = Path(folder), name, first
        self.audio, self.rows, self.start = [], [], 0
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, audio: np.ndarray, **row) -> None:
        audio = as_int16(trim(audio))
        self.audio.append(audio)
        self.rows.append({"start": self.start, "samples": len(audio), **row})
        self.start += len(audio)
        if len(self.rows) == SHARD:
            self.flush()

    def flush(self) -> None:
        if self.rows:
            stem = self.folder / f"{self.name}-{self.number:04d}"
            np.save(stem.with_suffix(".npy"), np.concatenate(self.audio))
            stem.with_suffix(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in self.rows))
            self.number, self.audio, self.rows, self.start = self.number + 1, [], [], 0


def read_shard(path: Path) -> Iterator[tuple[dict, np.ndarray]]:
    """(row, int16 [samples]) of every utterance of a shard, given its .jsonl."""
    audio = np.load(path.with_suffix(".npy"), mmap_mode="r")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield row, audio[row["start"] : row["start"] + row["samples"]]


def read_shards(folder: Path) -> Iterator[tuple[dict, np.ndarray]]:
    """The same for all shards of a folder, in order of their names."""
    for path in sorted(Path(folder).glob("*.jsonl")):
        yield from read_shard(path)


def opus_chunks(
    folder: Path, packs: Sequence[str], held_texts: Sequence[str], held_voices: bool = False
) -> list[list[dict]]:
    """Rows of the first corpus, by SHARD: only training voices or only held-out ones, no poor ones, no held-out
    text."""
    table, held = teachers.mixes(list(packs)), {t.lower() for t in held_texts}
    rows = []
    for line in (Path(folder) / "manifest.jsonl").read_text().splitlines():
        row = json.loads(line)
        voice = row["voice"]
        poor = voice.startswith("ext") or voice in teachers.POOR_PACKS or row["text"].lower() in held
        if not poor and teachers.held_out(voice, table) == held_voices:
            gender = teachers.voice_gender(voice, table)
            path = str(Path(folder) / row["file"])
            rows.append(
                {"path": path, "text": row["text"], "voice": voice, "gender": gender, "speed": 1.0, "teacher": "kokoro"}
            )
    return [rows[i : i + SHARD] for i in range(0, len(rows), SHARD)]


def read_opus(rows: Sequence[dict]) -> Iterator[tuple[dict, np.ndarray]]:
    """(row, int16 [samples]) of rows whose `path` is a sound file; trimmed. A file that is not there is passed over."""
    import soundfile as sf

    for row in rows:
        if Path(row["path"]).exists():
            yield row, as_int16(trim(sf.read(row["path"], dtype="float32")[0]))


def speak_lines(lines: Sequence[Line], packs: Path | None = None) -> Iterator[tuple[dict, np.ndarray]]:
    """(row, int16 [samples]) of lines spoken by hibari, or by Kokoro where the folder of its packs is given."""
    teacher, name = (teachers.kokoro(packs), "kokoro") if packs else (teachers.hibari(), "hibari")
    for line in lines:
        phonemes = teachers.phonemes(line.text, line.voice)
        if 3 <= len(phonemes) <= 400:
            audio = teacher.speak(phonemes, line.voice, line.speed)
            yield (
                {**asdict(line), "gender": teachers.voice_gender(line.voice, {}), "teacher": name},
                as_int16(trim(audio)),
            )


def as_int16(audio: np.ndarray) -> np.ndarray:
    """float32 -> int16, turned down where it would clip."""
    return np.round(audio / max(1.0, float(np.abs(audio).max()) / 0.97) * 32767).astype(np.int16)


def speak(args: argparse.Namespace) -> None:
    from hibari.g2p import G2P

    train, held = read_texts(args.texts)
    plans = {"voices": plan_voices, "heart": plan_heart, "heldout": plan_heldout}
    texts = held if args.plan == "heldout" else train
    lines = plans[args.plan](texts) if args.seed is None else plans[args.plan](texts, args.seed)
    teacher = teachers.Hibari() if args.teacher == "hibari" else teachers.Kokoro(args.packs, args.cache or args.packs)
    g2p = {False: G2P(), True: G2P(british=True)}
    packs = sorted(p.stem for p in Path(args.packs).glob("*.bin")) if args.packs else []
    table = teachers.mixes(packs) if packs else {}
    done = len(list(Path(args.out).glob(f"{args.plan}-{args.rank}-*.jsonl")))
    out = ShardWriter(args.out, f"{args.plan}-{args.rank}", done)
    begin, seconds, skip = time.time(), 0.0, done * SHARD
    for i, line in enumerate(lines):
        if i % args.ranks != args.rank:
            continue
        if skip:
            skip -= 1
            continue
        if seconds > args.hours * 3600:
            break
        phonemes = g2p[line.voice[0] == "b"](line.text)
        if not 3 <= len(phonemes) <= 400:
            phonemes = "hˈʌ."  # unreadable lines keep their place in the plan, one short sound
            line = Line("Huh.", line.voice, line.speed)
        audio = teacher.speak(phonemes, line.voice, line.speed)
        out.add(audio, teacher=args.teacher, gender=teachers.voice_gender(line.voice, table), **asdict(line))
        seconds += len(audio) / teachers.RATE
        if out.start == 0:
            print(
                f"{args.plan} {args.rank}: {seconds / 3600:.2f} h, {seconds / (time.time() - begin):.1f} x real time",
                flush=True,
            )
    out.flush()


def import_opus(args: argparse.Namespace) -> None:
    """The first corpus (Opus files and manifest.jsonl) as shards; poor voices and extrapolated ones are left out."""
    _, held_texts = read_texts(args.texts)
    packs = sorted(p.stem for p in Path(args.packs).glob("*.bin"))
    for held, writer in ((False, ShardWriter(args.out, "old")), (True, ShardWriter(Path(args.out) / "heldout", "old"))):
        for chunk in opus_chunks(args.opus, packs, held_texts, held):
            for row, audio in read_opus(chunk):
                writer.add(audio.astype(np.float32) / 32767, **{k: v for k, v in row.items() if k != "path"})
        writer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("speak", help="let a teacher speak a plan")
    p.add_argument("--teacher", choices=("kokoro", "hibari"), required=True)
    p.add_argument("--plan", choices=("voices", "heart", "heldout"), required=True)
    p.add_argument("--texts", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--packs", type=Path, help="folder of Kokoro's voice packs")
    p.add_argument("--cache", type=Path, help="where Kokoro's joined model is kept (default: beside the packs)")
    p.add_argument("--seed", type=int, help="another plan of the same kind")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--hours", type=float, default=1e9, help="stop after so much speech (this process)")
    p.set_defaults(run=speak)
    p = commands.add_parser("import", help="the first corpus (Opus) as shards")
    p.add_argument("--opus", type=Path, required=True)
    p.add_argument("--texts", type=Path, required=True)
    p.add_argument("--packs", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.set_defaults(run=import_opus)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
