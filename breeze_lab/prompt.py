"""Text, instruction and voice -> prompt embeddings; long text -> pieces.

Layouts (Breeze TTS 2's templates; every text segment goes through the text encoder by itself):

    design     [S0]<ins_bos>instruction<ins_eos>text
    clone      [S0]transcript | reference codes | one end frame | [S0]text
    direction  [S0]transcript | reference codes | one end frame | [S0]<ins_bos>instruction<ins_eos>text

The negative prompt of guidance is the same without the instruction.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

from .errors import BreezeLabError
from .text import frontend

if TYPE_CHECKING:
    from .checkpoint import SpeechModel
    from .voice import Voice

SPEAKERS = tuple(f"S{i}" for i in range(10))
# Digits and characters of these scripts take about three times as long to say as a Latin letter.
_WIDE = re.compile(r"[\d\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
# After a sentence or clause end, its closing quotes and the white space behind it. Latin signs need that space, so that
# 3.14, 1,000 and e.g. stay whole; ideographic ones do not.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])[\"'”’)\]」』）]*\s*|\n+\s*")
_CLAUSE_END = re.compile(r"(?<=[,;:—])\s+|(?<=[，；：、])\s*")
_SPACE = re.compile(r"(?<=\s)(?=\S)")


@dataclass(frozen=True)
class Prompt:
    """Embeddings [1, S, C] of the prompt, and of the negative prompt where guidance is on."""

    positive: mx.array
    negative: mx.array | None

    @property
    def branches(self) -> list[mx.array]:
        """The conditional prompt, then the unconditional one if there is one."""
        return [self.positive] if self.negative is None else [self.positive, self.negative]


def spoken_length(text: str) -> int:
    """Length in Latin letters: about how long the text takes to say, 15 a second."""
    return len(text) + 2 * len(_WIDE.findall(text))


def split_text(text: str, limit: int) -> list[str]:
    """Cut text into pieces of at most `limit` (by `spoken_length`), at sentence ends where possible.

    Else at clauses, else at spaces, else between characters. No character is lost: the pieces joined are the text.
    A piece without a letter or digit, such as a scene break, never stands by itself.
    """
    pieces: list[str] = []
    for part in _parts(text, limit, (_SENTENCE_END, _CLAUSE_END, _SPACE)):
        if pieces and (not _has_words(part) or spoken_length((pieces[-1] + part).strip()) <= limit):
            pieces[-1] += part
        else:
            pieces.append(part)
    if len(pieces) > 1 and not _has_words(pieces[0]):
        pieces[:2] = ["".join(pieces[:2])]
    return pieces


def _has_words(text: str) -> bool:
    return any(c.isalnum() for c in text)


def _parts(text: str, limit: int, separators: tuple[re.Pattern[str], ...]) -> list[str]:
    if spoken_length(text.strip()) <= limit:
        return [text]
    if not separators:
        size = max(1, limit // (3 if _WIDE.search(text) else 1))
        return [text[i : i + size] for i in range(0, len(text), size)]
    ends = [m.end() for m in separators[0].finditer(text) if 0 < m.end() < len(text)]
    cuts = sorted({0, *ends, len(text)})
    parts = [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    return [small for part in parts for small in _parts(part, limit, separators[1:])]


def check_request(text: str, instruct: str | None, cfg_scale: float, speaker: str) -> None:
    """Refuse a request that cannot mean what it says, before any work."""
    for name, given in (("text", text), ("instruct", "" if instruct is None else instruct)):
        if not isinstance(given, str):
            raise BreezeLabError(f"{name} is of type {type(given).__name__}, not words. Give a str.")
    if not text.strip():
        raise BreezeLabError("The text is empty. Give at least one word to say.")
    if instruct is not None and not instruct.strip():
        raise BreezeLabError("The instruction is empty. Describe the delivery, or leave instruct out.")
    if any("\ud800" <= c <= "\udfff" for c in text + (instruct or "")):
        raise BreezeLabError("The text holds bytes that are not UTF-8. Save or type it as UTF-8.")
    if not isinstance(cfg_scale, (int, float)) or not 0 <= cfg_scale < float("inf"):
        raise BreezeLabError(f"cfg_scale {cfg_scale} is not a number >= 0. Use 1 (off) to 4.")
    if cfg_scale != 1 and instruct is None:
        raise BreezeLabError(
            f"cfg_scale {cfg_scale} has nothing to guide by: it contrasts the prompt with and without an instruction. "
            "Give instruct, or leave cfg_scale at 1."
        )
    if speaker not in SPEAKERS:
        raise BreezeLabError(f"Unknown speaker {speaker!r}. Speakers are S0 to S9; for a voice of your own use voice=.")


class PromptBuilder:
    """Builds the prompts of one request; the reference is embedded once for all pieces and branches."""

    def __init__(self, model: "SpeechModel", *, instruct: str | None, guided: bool, speaker: str):
        self.model, self.instruct, self.guided, self.tag = model, instruct, guided, f"[{speaker}]"
        self.spoken = frontend(model.config.text_frontend)
        self.reference: list[mx.array] = []

    def check(self, pieces: list[str]) -> None:
        """Refuse pieces that the checkpoint's front-end cannot read aloud, before the first is spoken."""
        for piece in pieces:
            self.spoken(piece.strip())

    def set_voice(self, voice: "Voice") -> None:
        """Clone this voice from here on.

        Raises:
            BreezeLabError: codes that the checkpoint's codec cannot have made.
        """
        voice.check(self.model.codec)
        config, codes = self.model.config, voice.codes
        end = mx.full((1, config.num_codebooks), config.codebook_eos_token_id, codes.dtype)
        frames = self.model.lm.embed_frames(mx.concatenate([codes, end])[None])
        self.reference = [self._text(self.tag + self.spoken(voice.transcript)), frames]

    def build(self, text: str) -> Prompt:
        """Embed one piece of text, int tokens through the text encoder -> [1, S, C]."""
        said = self.spoken(text.strip())
        directed = f"<ins_bos>{self.instruct.strip()}<ins_eos>" if self.instruct else ""
        positive = self._join(self.tag + directed + said)
        return Prompt(positive, self._join(self.tag + said) if self.guided else None)

    def _join(self, segment: str) -> mx.array:
        return mx.concatenate([*self.reference, self._text(segment)], axis=1)

    def _text(self, segment: str) -> mx.array:
        return self.model.lm.embed_text(mx.array([self.model.tokens(segment)]))
