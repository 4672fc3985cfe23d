"""A reference clip before it becomes a voice: read, measure, trim, and check against its transcript.

Knows nothing of models. Samples are float32 mono [N] at 24 kHz throughout.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import audio
from ..errors import BreezeLabError
from ..voice import LETTERS_A_SECOND, letters

RATE = 24_000  # Hz
LONGEST = 120.0  # seconds that the waveform shows; the part to clone is chosen in it
GOOD = (5.0, 15.0)  # seconds that clone well
DEFAULT_CUT = 15.0  # seconds selected at first in a clip that is longer than a voice may be
LONGEST_VOICE = 60.0
UPLOAD_LIMIT = 7_000_000  # bytes; a 10 MB widget message is lost without a word, and base64 adds a third
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3")
USUAL_PACE = 12.0  # spoken letters a second


def short(name: str, most: int = 48) -> str:
    """A file's name for a sentence: a long one without its middle."""
    return name if len(name) <= most else f"{name[: most - 20]}…{name[-19:]}"


def convert_hint(name: str) -> str:
    return f"Convert it first, for example: ffmpeg -i '{name}' clip.wav"


@dataclass(frozen=True)
class Clip:
    """A clip and the part of it to clone: `samples[start:end]`, in seconds."""

    samples: np.ndarray  # float32 [N], 24 kHz
    name: str
    source: str  # "ready", "upload", "path", "microphone" or "saved"
    start: float = 0.0
    end: float = 0.0
    transcript: str = ""  # known only for ready-made and saved voices
    license: str = ""

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    @property
    def chosen_seconds(self) -> float:
        return self.end - self.start

    def chosen(self) -> np.ndarray:
        """float32 [n]: the part to clone."""
        return self.samples[round(self.start * RATE) : round(self.end * RATE)]

    @property
    def place(self) -> str:
        """Where it was chosen: "ready", "upload", "microphone" or "saved"."""
        return "upload" if self.source == "path" else self.source

    @property
    def needs_consent(self) -> bool:
        return self.source in ("upload", "path", "microphone")


def make_clip(samples, rate: int, name: str, source: str, transcript: str = "", license: str = "") -> Clip:
    """Mono, 24 kHz, checked. `samples` may be int16 or stereo; NaN, silence and emptiness are refused."""
    mono = audio.to_mono_float(samples, name)
    if len(mono) > LONGEST * rate:
        raise BreezeLabError(
            f"{name} is {len(mono) / rate:.0f} s long; the most that can be shown is {LONGEST:.0f} s. "
            f"Cut it first, for example: ffmpeg -ss 0 -t 15 -i '{name}' clip.wav"
        )
    if len(mono) < 0.08 * rate:
        raise BreezeLabError(f"{name} holds {1000 * len(mono) / rate:.0f} ms of sound. Give 5 to 15 s of one speaker.")
    mono = np.asarray(audio.resample(mono, rate, RATE), dtype=np.float32)
    seconds = len(mono) / RATE
    end = DEFAULT_CUT if seconds > LONGEST_VOICE else seconds
    return Clip(mono, name, source, 0.0, end, transcript, license)


def clip_from_file(
    path: str | Path, source: str = "path", name: str = "", transcript: str = "", license: str = ""
) -> Clip:
    name = name or short(Path(path).name)
    try:
        path = Path(path).expanduser()
        there = path.is_file()
    except (OSError, RuntimeError) as error:  # no right to look, a name that is too long, no such user
        raise BreezeLabError(f"{short(str(path), 100)} cannot be looked up. Check the path.") from error
    if not there:
        told = short(str(path), 100)
        raise BreezeLabError(f"There is no file {told}. Check the path; it is looked up where the kernel runs.")
    if path.suffix.lower() not in SUFFIXES:
        raise BreezeLabError(f"{name}: only WAV, FLAC, OGG and MP3 can be read. {convert_hint(name)}")
    samples, rate = audio.read(path)
    return make_clip(samples, rate, name, source, transcript, license)


def clip_from_bytes(content: bytes, name: str) -> Clip:
    """An uploaded file. libsndfile reads a file, so the bytes go through a temporary one."""
    name = short(Path(name).name)
    if not content:
        raise BreezeLabError(f"{name} arrived empty. Choose it again, or put its path into the path box.")
    if len(content) > UPLOAD_LIMIT:
        raise BreezeLabError(
            f"{name} has {len(content) / 1e6:.1f} MB; the page can pass on {UPLOAD_LIMIT / 1e6:.0f} MB. "
            "Drop it into the file browser and put its path into the path box."
        )
    if Path(name).suffix.lower() not in SUFFIXES:
        raise BreezeLabError(f"{name}: only WAV, FLAC, OGG and MP3 can be read. {convert_hint(name)}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return clip_from_file(path, "upload", name)


def trim(clip: Clip, start: float, end: float) -> Clip:
    """The same clip with another part chosen. The part is kept inside the clip."""
    start, end = max(0.0, float(start)), min(clip.seconds, float(end))
    if end - start < 0.08:
        raise BreezeLabError("The chosen part is empty. Drag the two ends of the selection apart.")
    return replace(clip, start=start, end=end)


def decibels(value: float) -> float:
    return 20.0 * float(np.log10(max(value, 1e-6)))


def levels(samples: np.ndarray) -> tuple[float, float]:
    """(peak, mean) in dB below full scale."""
    if not len(samples):
        return decibels(0.0), decibels(0.0)
    return decibels(float(np.abs(samples).max())), decibels(float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))))


def peaks(samples: np.ndarray, bins: int) -> list[float]:
    """Largest magnitude in each of `bins` equal parts, for drawing."""
    if not len(samples):
        return [0.0] * bins
    edges = np.linspace(0, len(samples), bins + 1).astype(int)
    starts = np.minimum(edges[:-1], len(samples) - 1)
    return [round(float(v), 3) for v in np.maximum.reduceat(np.abs(samples), starts)]


def length_hint(clip: Clip) -> tuple[str, str]:
    """(kind, sentence) about the chosen part; kind is "ok" or "warn"."""
    seconds, samples = clip.chosen_seconds, clip.chosen()
    peak, mean = levels(samples)
    if float(np.mean(np.abs(samples) >= 0.999)) > 0.001:
        return "warn", "The clip is overdriven (flat tops at full scale). Record it again at a lower level."
    if mean < -42:
        return "warn", "The clip is very quiet. Move closer to the microphone, or raise its level."
    if seconds < 3:
        return "warn", f"{seconds:.1f} s is short: the voice may wander. 5 to 15 s clone best."
    if seconds > 30:
        return "warn", f"{seconds:.1f} s is long: over 30 s cloning gets slower and worse. Trim to 5 to 15 s."
    if not GOOD[0] <= seconds <= GOOD[1]:
        return "ok", f"{seconds:.1f} s will do; 5 to 15 s clone best."
    return "ok", f"{seconds:.1f} s, a good length."


def pace_hint(transcript: str, clip: Clip) -> tuple[str, str]:
    """(kind, sentence): can this transcript be all that is said in the chosen part? kind: "empty", "ok" or "warn"."""
    seconds = audio.active_seconds(clip.chosen(), RATE)
    if not transcript.strip():
        return "empty", "Type exactly what is said in the clip, all of it and nothing else."
    pace = letters(transcript) / max(seconds, 0.01)
    said = f"About {pace:.0f} characters a second"
    if pace < LETTERS_A_SECOND[0]:
        return "warn", (
            f"{said} are fewer than in speech (about {USUAL_PACE:.0f}): words of the clip seem to be missing here. "
            "Complete the transcript, or trim the clip."
        )
    if pace > LETTERS_A_SECOND[1]:
        return "warn", (
            f"{said} are more than in speech (about {USUAL_PACE:.0f}): the transcript seems to hold words that are not "
            "in the clip. Shorten the transcript, or choose more of the clip."
        )
    return "ok", f"{said}: transcript and clip fit."
