"""What is asked for (Request) and what came of it (Take)."""

import io
from dataclasses import dataclass

import numpy as np
import soundfile

from ..errors import BreezeLabError
from ..voice import letters
from .clip import RATE, USUAL_PACE

FRAME_RATE = 12.5  # frames a second
MOST_TAKES = 6
PROVENANCE = "Synthetic speech made with breeze_lab."


@dataclass(frozen=True)
class Request:
    """One press of the button: a text in the chosen voice, `takes` times with seeds seed, seed + 1, ..."""

    text: str
    instruct: str = ""
    cfg_scale: float = 1.0
    seed: int = 7
    takes: int = 1
    temperature: float | None = None  # of the sampling, None is the model's own
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    max_seconds: float = 60.0  # of one piece of the text; long text is split at sentences

    def check(self) -> None:
        """Refuse what cannot work before the device is touched."""
        if not self.text.strip():
            raise BreezeLabError("There is no text to say. Type it into the box “Text to say”.")
        if not 1 <= self.takes <= MOST_TAKES:
            raise BreezeLabError(f"{self.takes} takes were asked for. Choose 1 to {MOST_TAKES}.")
        if not 0 <= self.seed < 2**32:
            raise BreezeLabError(f"The seed {self.seed} is out of range. Choose 0 to {2**32 - 1}.")
        if not 1.0 <= self.cfg_scale <= 4.0:
            raise BreezeLabError(f"CFG {self.cfg_scale} is out of range. Choose 1 to 4; above 3 sounds harsh.")
        if self.cfg_scale != 1.0 and not self.instruct.strip():
            raise BreezeLabError("CFG weighs the instruction, and there is none. Give an instruction, or set CFG to 1.")
        if not 0.0 < self.max_seconds <= 120.0:
            raise BreezeLabError(f"A limit of {self.max_seconds} s is out of range. Choose up to 120 s.")

    @property
    def max_frames(self) -> int:
        return max(1, round(self.max_seconds * FRAME_RATE))

    def seeds(self) -> list[int]:
        return [(self.seed + i) % 2**32 for i in range(self.takes)]

    def expected_seconds(self, transcript: str = "", seconds: float = 0.0) -> float:
        """How long the text will last: at the pace of the reference when it is known and plausible, else the usual."""
        pace = letters(transcript) / seconds if transcript.strip() and seconds > 1.0 else USUAL_PACE
        pace = min(max(pace, 0.6 * USUAL_PACE), 1.6 * USUAL_PACE)
        return max(0.6, letters(self.text) / pace + 0.3)


@dataclass
class Take:
    """One result. `samples` float32 [N] at `rate` Hz; stopped takes keep what had been made."""

    number: int
    seed: int
    request: Request
    voice: str  # name of the voice, "" for the model's own
    model: str
    samples: np.ndarray
    rate: int = RATE
    finish_reason: str = ""  # "eos", "max_frames", "cancelled" or "error"
    first_audio_s: float = 0.0  # from the button to the first samples
    seconds_made: float = 0.0  # time of generation
    warm_up: bool = False  # the first after loading
    likeness: float | None = None  # of timbre, to the reference clip: likeness.py
    downloaded: bool = False

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate

    @property
    def rtf(self) -> float:
        """Real-time factor: time of generation over length of sound; under 1 is faster than it plays."""
        return self.seconds_made / self.seconds if self.seconds else 0.0

    def ending(self) -> str:
        return {
            "eos": "finished by itself",
            "max_frames": "cut at the length limit",
            "cancelled": "stopped",
            "error": "broken off by an error",
        }.get(self.finish_reason, self.finish_reason)

    def file_name(self) -> str:
        voice = "".join(c if c.isalnum() else "-" for c in self.voice) or "own-voice"
        return f"breeze-lab-{voice}-take{self.number}-seed{self.seed}.wav"

    def wav(self) -> bytes:
        """16-bit WAV that says in its comment that it is synthetic, and how it was made."""
        buffer = io.BytesIO()
        with soundfile.SoundFile(buffer, "w", self.rate, 1, subtype="PCM_16", format="WAV") as file:
            file.comment = f"{PROVENANCE} model={self.model} voice={self.voice or 'own'} seed={self.seed}"
            file.software = "breeze_lab"
            file.write(np.clip(self.samples, -1.0, 1.0))
        return buffer.getvalue()
