"""A voice: a reference clip as codec codes with its exact transcript, encoded once, saved and used again.

The file is safetensors with one tensor, `codes` int32 [F, K], and the rest as metadata, so it opens anywhere.
"""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from . import audio as sound
from .codec import Codec
from .errors import BreezeLabError
from .files import as_path, check_writable, whole_file
from .weights import check_complete

if TYPE_CHECKING:
    from .checkpoint import SpeechModel

FORMAT, VERSION = "breeze_lab.voice", "1"
LETTERS_A_SECOND = (5.0, 26.0)  # speech outside this range does not match its transcript


@dataclass(frozen=True, eq=False)
class Voice:
    """codes int32 [F, K] of a reference clip, and the words spoken in it.

    `source` says where the clip came from and under which licence; `codec` is the `codec_id` of the codec that made
    them ("" if unknown), `frame_rate` its frames a second.
    """

    codes: mx.array
    transcript: str
    name: str = ""
    source: str = ""
    codec: str = ""
    frame_rate: float = 12.5

    def __post_init__(self) -> None:
        if not isinstance(self.codes, mx.array) or not isinstance(self.transcript, str):
            raise BreezeLabError("a voice is made of codes (an mx.array) and words. Make it with Voice.from_audio.")
        if self.codes.ndim != 2 or 0 in self.codes.shape or not mx.issubdtype(self.codes.dtype, mx.integer):
            raise BreezeLabError(
                f"a voice's codes are integers [frames, codebooks], not {self.codes.dtype} {list(self.codes.shape)}. "
                "Make the voice with Voice.from_audio."
            )
        if not self.transcript.strip():
            raise BreezeLabError("a voice needs the exact words of its clip. Pass the transcript.")

    @property
    def seconds(self) -> float:
        """Length of the reference in seconds."""
        return self.codes.shape[0] / self.frame_rate

    @classmethod
    def from_audio(
        cls,
        model: "SpeechModel",
        audio: Any,
        transcript: str,
        *,
        sample_rate: float | None = None,
        name: str = "",
        source: str = "",
    ) -> "Voice":
        """Encode a clip (a path, or samples with their `sample_rate`) and keep it with its transcript.

        Raises:
            BreezeLabError: no transcript, or a clip that `audio.reference` refuses. Warns where the transcript has far
                too few or too many letters for the speech in the clip.
        """
        if not isinstance(transcript, str) or not any(c.isalnum() for c in transcript):
            raise BreezeLabError(
                "cloning needs the exact words spoken in the clip. Pass the transcript (--ref-text in the shell)."
            )
        codec: Any = getattr(model, "codec", None)
        if not hasattr(codec, "encode"):
            raise BreezeLabError(f"model is of type {type(model).__name__}. Pass a loaded one: breeze_lab.load().")
        samples = sound.reference(audio, sample_rate, codec.sample_rate)
        warning = transcript_warning(transcript, sound.active_seconds(samples, codec.sample_rate))
        if warning:
            warnings.warn(warning, stacklevel=2)
        codes = codec.encode(mx.array(samples)).astype(mx.int32)
        mx.eval(codes)
        if not name and isinstance(audio, str | Path):
            name = Path(audio).stem
        return cls(codes, transcript.strip(), name, source, codec_id(codec), codec.frame_rate)

    def check(self, codec: Codec) -> None:
        """Refuse this voice for a codec that did not make its codes."""
        k, size = self.codes.shape[1], codec.codebook_size
        if k != codec.num_codebooks or int(self.codes.max()) >= size or int(self.codes.min()) < 0:
            raise BreezeLabError(
                f"voice {self.name!r} has {k} codebooks with ids up to {int(self.codes.max())}; this model's codec has "
                f"{codec.num_codebooks} of {size}. Make it again from its clip with this model."
            )
        if self.codec and self.codec != codec_id(codec):
            raise BreezeLabError(
                f"voice {self.name!r} was encoded by another codec than this model's, so it would sound like noise. "
                "Make it again from its clip with this model."
            )

    def save(self, path: str | Path) -> Path:
        """Write the voice as .safetensors, whole or not at all."""
        path = check_output(path)
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "transcript": self.transcript,
            "name": self.name,
            "source": self.source,
            "codec": self.codec,
            "frame_rate": repr(self.frame_rate),
        }
        with whole_file(path) as temporary:
            mx.save_safetensors(str(temporary), {"codes": self.codes.astype(mx.int32)}, metadata)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Voice":
        """Read a voice that `save` wrote.

        Raises:
            BreezeLabError: no such file, truncated, or not a voice.
        """
        path = as_path(path, "the voice file")
        if not path.is_file():
            raise BreezeLabError(f"there is no voice file {path}. Make one with Voice.from_audio(...).save(path).")
        check_complete(path)
        loaded = mx.load(str(path), format="safetensors", return_metadata=True)
        tensors, metadata = cast(tuple[dict[str, mx.array], dict[str, str]], loaded)
        if metadata.get("format") != FORMAT or "codes" not in tensors:
            raise BreezeLabError(f"{path} is not a breeze_lab voice. Make one with Voice.from_audio(...).save(path).")
        if metadata.get("version") != VERSION:
            raise BreezeLabError(
                f"{path} is a voice of format {metadata.get('version')}; this breeze_lab reads {VERSION}. Update it."
            )
        codes = tensors["codes"]
        mx.eval(codes)
        rate = metadata.get("frame_rate", "12.5")
        try:
            frame_rate = float(rate)
        except ValueError:
            frame_rate = 0.0
        if not 0 < frame_rate < float("inf"):
            raise BreezeLabError(f"{path} says {rate!r} frames a second. Make the voice again from its clip.")
        return cls(
            codes,
            metadata.get("transcript", ""),
            metadata.get("name", "") or path.stem,
            metadata.get("source", ""),
            metadata.get("codec", ""),
            frame_rate,
        )


def check_output(path: str | Path) -> Path:
    """Refuse, before any work, a path that a voice could not be saved at."""
    path = as_path(path, "the voice file")
    if path.suffix != ".safetensors":
        raise BreezeLabError(f"a voice is saved as .safetensors, not {path.name!r}. Choose {path.stem}.safetensors.")
    check_writable(path)
    return path


def transcript_warning(transcript: str, seconds: float) -> str:
    """What is wrong with `transcript` for `seconds` of speech, or "". A clip with words that the transcript lacks makes
    cloning collapse, repeat the clip or never stop, so this is worth a sentence.
    """
    rate = letters(transcript) / max(seconds, 1e-3)
    low, high = LETTERS_A_SECOND
    if low <= rate <= high:
        return ""
    kind = "few" if rate < low else "many"
    return (
        f"the transcript has too {kind} letters for {seconds:.1f} s of speech: {rate:.1f} a second, usual are 8 to 20. "
        "Every word of the clip must be in it and no other: correct it, or cut the clip."
    )


def letters(text: str) -> float:
    """Length of `text` in spoken letters: ideographs, syllable signs and digits count 3, spaces and signs nothing."""
    return float(sum(3 if c.isdigit() or ord(c) >= 0x3000 else 1 for c in text if c.isalnum()))


def codec_id(codec: Codec) -> str:
    """A short hash of a codec's codebooks, so that a voice is never decoded by another codec.

    Their shapes and first entries, rounded to bfloat16: equal for the same weights held as float32 or bfloat16, and for
    a codec whose decoder was trained further while the meaning of its codes stayed.
    """
    parameters = sorted(cast(list[tuple[str, mx.array]], tree_flatten(codec.parameters())))
    books = [array for name, array in parameters if name.endswith("codebooks")]
    first = mx.concatenate([book.reshape(-1)[:256].astype(mx.bfloat16).astype(mx.float32) for book in books])
    digest = hashlib.sha256("".join(str(list(book.shape)) for book in books).encode())
    digest.update(np.asarray(first, dtype="<f4").tobytes())
    return digest.hexdigest()[:16]
