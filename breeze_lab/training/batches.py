"""Packed utterances -> packed prompts: plain, clone, design and direction, with the losses' targets.

Layouts (each text segment has its own <bos>): `[S0]text`; `[S0]ref text | ref codes | one frame of zeros | [S0]text`;
`[S0]<ins_bos>instruction<ins_eos>text`; and the last two together. The last token of a text predicts the first frame, a
frame the next one, the last frame the end class. Where a reference's own voice cannot be known yet (its first frames),
nothing is predicted, so that `[S0]text` alone always means the default voice.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import instructions, tokens
from .corpus import SPEAKERS
from .teachers import HEART

CODES, VOCAB, K = 512, 515, 16
END_CLASS = VOCAB
IGNORE = -100
_SPECIAL = tokens.vocabulary()
BLIND = 8  # frames of a reference before its voice is taken as known
MARK = "~"  # in the names of disguised voices (disguise.py)


@dataclass(frozen=True)
class Sizes:
    """The fixed shape of a batch."""

    rows: int = 32
    row: int = 512
    text_rows: int = 20
    text_row: int = 512
    chosen: int = 4096


MICRO_SIZES = Sizes(rows=2, row=160, text_rows=2, text_row=128, chosen=48)


@dataclass
class Prompt:
    """Segments in order: (token ids, codes [F, K], first frame whose prediction counts); codes may be empty."""

    segments: list[tuple[list[int], np.ndarray, int]]

    def __len__(self) -> int:
        between = len(self.segments) - 1
        return sum(len(ids) + len(codes) for ids, codes, _ in self.segments) + between


def text_ids(spoken: str, speaker: int = 0, instruction: str | None = None) -> list[int]:
    """<bos>[Sn](<ins_bos>instruction<ins_eos>)phonemes."""
    special = _SPECIAL
    ids = [tokens.BOS, special[f"[S{speaker}]"]]
    if instruction is not None:
        ids += [special["<ins_bos>"], *tokens.encode(instruction), special["<ins_eos>"]]
    return ids + tokens.encode(spoken)


def is_validation(row: dict) -> bool:
    """One text in a hundred, chosen by a hash of its sounds, is never trained on."""
    return zlib.crc32(row["text"].encode()) % 100 == 0


class Corpus:
    """The packed utterances of one process, with those of a voice together."""

    def __init__(self, rows: list[dict], codes: np.ndarray, validation: bool = False):
        keep = [r for r in rows if is_validation(r) == validation]
        self.rows, self.codes = keep, codes
        self.voices: dict[str, list[int]] = {}
        for i, row in enumerate(keep):
            if not row["loudness"]:
                self.voices.setdefault(row["voice"], []).append(i)
        home = [r["voice"].split("@")[0] == HEART for r in keep]
        self.heart = [i for i, h in enumerate(home) if h]
        masked = [MARK in r["voice"] for r in keep]
        self.others = [i for i, h in enumerate(home) if not h and not masked[i]]
        self.disguised = [i for i, r in enumerate(keep) if masked[i] and not r["reference"]]

    def frames(self, row: dict) -> np.ndarray:
        return self.codes[row["start"] : row["start"] + row["frames"]]

    def mate(self, index: int, rng: np.random.Generator, normal: bool = False) -> int | None:
        """Another utterance of the same voice."""
        pool = self.voices.get(self.rows[index]["voice"], [])
        for _ in range(8):
            other = pool[rng.integers(len(pool))] if pool else index
            if other != index and (not normal or not self.rows[other]["pace"]):
                return other
        return None


class PromptMaker:
    """Draws prompts of all kinds from a corpus."""

    def __init__(
        self, corpus: Corpus, rng: np.random.Generator, heart_share: float = 0.45, disguised_share: float = 0.6
    ):
        self.corpus, self.rng, self.heart_share, self.disguised_share = corpus, rng, heart_share, disguised_share

    def draw(self) -> Prompt:
        c, rng = self.corpus, self.rng
        if c.disguised and rng.random() < (1 - self.heart_share) * self.disguised_share:
            return self.clone(c.disguised[rng.integers(len(c.disguised))])
        share = self.heart_share
        if c.disguised:  # of what is left
            share /= share + (1 - share) * (1 - self.disguised_share)
        heart = rng.random() < share if c.heart and c.others else bool(c.heart)
        pool = c.heart if heart else c.others
        index = pool[rng.integers(len(pool))]
        row, dice = c.rows[index], rng.random()
        if heart and row["normal"]:
            return self.plain(index) if dice < 0.75 else self.design(index) if dice < 0.85 else self.clone(index)
        if heart:
            return self.design(index) if dice < 0.8 else self.clone(index, directed=dice < 0.9)
        if row["voice"] in SPEAKERS and row["normal"] and dice < 0.3:
            return self.plain(index, 1 + SPEAKERS.index(row["voice"]))
        return self.design(index) if dice < 0.2 else self.clone(index, directed=dice < 0.3)

    def target(self, index: int, speaker: int = 0, instruction: str | None = None) -> tuple[list[int], np.ndarray, int]:
        row, text = self.corpus.rows[index], self.corpus.rows[index]["text"]
        if self.rng.random() < 0.03:  # an event that the corpus does not hold is passed over
            text = f"{text} (laugh)" if self.rng.random() < 0.5 else f"(sigh) {text}"
        return text_ids(text, speaker, instruction), self.corpus.frames(row), 0

    def instruction(self, index: int) -> str | None:
        row = self.corpus.rows[index]
        if row["voice"] == HEART and self.rng.random() < 0.05:
            return None  # what guidance mixes with: the default voice
        return instructions.describe(instructions.traits_of(row, self.rng), self.rng)

    def plain(self, index: int, speaker: int = 0) -> Prompt:
        return Prompt([self.target(index, speaker)])

    def design(self, index: int) -> Prompt:
        return Prompt([self.target(index, 0, self.instruction(index))])

    def clone(self, index: int, directed: bool = False) -> Prompt:
        """A reference of one utterance, sometimes two; `directed` adds an instruction of pace or level."""
        c, rng = self.corpus, self.rng
        first = c.mate(index, rng, normal=directed)
        if first is None:  # a disguised voice has no known gender, so it can't be asked for
            return self.draw() if MARK in c.rows[index]["voice"] else self.design(index)
        text, codes = c.rows[first]["text"], c.frames(c.rows[first])
        second = c.mate(first, rng) if rng.random() < 0.25 else None
        if second is not None and second != index:
            text, codes = f"{text} {c.rows[second]['text']}", np.concatenate([codes, c.frames(c.rows[second])])
        told = None
        row = c.rows[index]
        if directed and (row["pace"] or row["loudness"]):
            traits = [row[k] for k in ("pace", "loudness") if row[k]]
            told = instructions.describe(traits, rng)
        blind = 0 if row["voice"] == HEART else BLIND
        if any(c.rows[i].get("reference") for i in (first, second) if i is not None):
            blind = len(codes)  # what a recording adds is not to be learned
        return Prompt([(text_ids(text), codes, blind), self.target(index, 0, told)])


def corrupt(codes: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Replaces each code with a random one at this rate: what the model reads at inference has slips, too."""
    wrong = rng.random(codes.shape) < rate
    return np.where(wrong, rng.integers(0, CODES, codes.shape), codes)


def pack(prompts: Iterator[Prompt], sizes: Sizes, rng: np.random.Generator, noise: float) -> dict[str, np.ndarray]:
    """Fill one batch from an endless iterator of prompts; arrays as in `lm.Batch`. `noise`: highest code corruption
    rate."""
    s = sizes
    text = np.full((s.text_rows, s.text_row), tokens.PAD, np.int64)
    segment = np.full((s.text_rows, s.text_row), -1, np.int64)
    source = np.full((s.rows, s.row), -1, np.int64)
    number = np.full((s.rows, s.row), -1, np.int64)
    frames = np.zeros((s.rows, s.row, K), np.int64)
    target = np.full((s.rows, s.row), IGNORE, np.int64)
    ahead = np.full((s.rows, s.row, K), IGNORE, np.int64)
    used, text_used, count, segments, misses = np.zeros(s.rows, int), np.zeros(s.text_rows, int), 0, 0, 0
    while misses < 12:
        prompt = next(prompts)
        fits = np.nonzero(used + len(prompt) <= s.row)[0]
        if not len(fits):
            misses += 1
            continue
        r = int(fits[used[fits].argmax()])  # the fullest row that still has room
        at, places, room = int(used[r]), [], text_used.copy()
        for ids, _, _ in prompt.segments:
            free = np.nonzero(room + len(ids) <= s.text_row)[0]
            if len(free):
                places.append((int(free[0]), int(room[free[0]])))
                room[free[0]] += len(ids)
        if len(places) < len(prompt.segments):
            misses += 1
            continue
        text_used, count = room, count + 1
        start = at
        rate = noise * rng.random() if rng.random() < 0.8 else 0.0
        for n, ((ids, codes, blind), (tr, tc)) in enumerate(zip(prompt.segments, places, strict=True)):
            L, f = len(ids), len(codes)
            text[tr, tc : tc + L], segment[tr, tc : tc + L] = ids, segments
            segments += 1
            source[r, at : at + L] = tr * s.text_row + tc + np.arange(L)
            at += L
            frames[r, at : at + f] = corrupt(codes, rate, rng)
            ahead[r, at - 1 + blind : at - 1 + f] = codes[blind:]
            target[r, at - 1 + blind : at - 1 + f] = codes[blind:, 0]
            target[r, at - 1 + f] = END_CLASS
            at += f
            if n + 1 < len(prompt.segments):
                at += 1  # the frame of zeros that ends a reference
        number[r, start:at] = count - 1
        used[r] = at
    flat = np.nonzero(ahead[..., 0].reshape(-1) != IGNORE)[0]
    picked = rng.permutation(flat)[: s.chosen]
    chosen = np.zeros(s.chosen, np.int64)
    chosen[: len(picked)] = picked
    codes = np.full((s.chosen, K), IGNORE, np.int64)
    codes[: len(picked)] = ahead.reshape(-1, K)[picked]
    depth_in = corrupt(np.maximum(codes, 0), noise * 0.4 * rng.random(), rng)
    return dict(text=text, segment=segment, source=source, prompt=number, frames=frames, target=target,
                chosen=chosen, depth_in=depth_in, depth_target=codes[:, 1:])  # fmt: skip


def endless(maker: PromptMaker) -> Iterator[Prompt]:
    while True:
        yield maker.draw()


def validation_batches(
    corpus: Corpus, sizes: Sizes, wrong_text: bool = False, count: int = 2
) -> list[dict[str, np.ndarray]]:
    """Plain prompts of the default voice and clones of others; `wrong_text` gives each target as much of another's
    text."""
    rng = np.random.default_rng(5)
    maker = PromptMaker(corpus, rng)

    def prompts() -> Iterator[Prompt]:
        normal = [i for i in corpus.heart if corpus.rows[i]["normal"]] or corpus.heart
        while True:
            for pool, make in ((normal, maker.plain), (corpus.others, maker.clone)):
                if pool:
                    i, other = (pool[rng.integers(len(pool))] for _ in range(2))
                    prompt = make(i)
                    if wrong_text:
                        ids, codes, blind = prompt.segments[-1]
                        said = text_ids(corpus.rows[other]["text"])
                        said = said[:2] + said[2:] * (1 + len(ids) // max(1, len(said) - 2))
                        prompt.segments[-1] = (said[: len(ids)], codes, blind)
                    yield prompt

    stream = prompts()
    return [pack(stream, sizes, rng, 0.0) for _ in range(count)]
