"""Sound in and out: read, check, resample, write and show it. NumPy only; nothing here knows about models.

Samples are float32 [N], mono, in [-1, 1], at 24 kHz unless a rate is given beside them.
"""

import base64
import html
import io
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from .errors import BreezeLabError
from .files import as_path, check_writable, whole_file

SAMPLE_RATE = 24000
READABLE = (".wav", ".flac", ".ogg", ".mp3")  # what we say we read; libsndfile reads a few more
WRITABLE = {".wav": ("WAV", "PCM_16"), ".flac": ("FLAC", "PCM_16"), ".ogg": ("OGG", "VORBIS")}
MIN_RATE, MAX_RATE = 8000, 192000
MIN_SECONDS, USEFUL_SECONDS, MAX_SECONDS = 0.08, 1.0, 60.0
SILENCE_PEAK = 1e-4  # -80 dB of full scale


def read(path: str | Path, max_seconds: float = 3600.0) -> tuple[np.ndarray, int]:
    """Read a WAV, FLAC, OGG or MP3 file: (float32 [N] mono, sample rate in Hz). Channels are averaged.

    Refused before it is read: what is no sound file, and one longer than `max_seconds`.
    """
    path = as_path(path, "the sound file")
    _check_file(path, max_seconds)
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise BreezeLabError(_unreadable(path)) from error
    return to_mono_float(samples.mean(axis=1), path.name), rate


def to_mono_float(samples: Any, name: str = "the audio") -> np.ndarray:
    """Any array of sound as float32 [N] mono: integers are scaled by their type's range, channels averaged.

    Takes NumPy or MLX arrays or lists, [N], [N, C] or [C, N] with up to 8 channels. Refused, with the cure: no samples,
    NaN or infinity, silence, integer-sized values in a float array, three or more dimensions.
    """
    x = _numpy(samples, name)
    if x.size == 0:
        raise BreezeLabError(f"{name} has no samples. Give a recording of at least {USEFUL_SECONDS:g} s.")
    x = _one_channel(_full_scale(x, name), name)
    if not np.isfinite(x).all():
        raise BreezeLabError(f"{name} has NaN or infinite samples. Export it again as 16-bit WAV.")
    peak = float(np.abs(x).max())
    if peak < SILENCE_PEAK:
        raise BreezeLabError(f"{name} is silent. Check the microphone or choose another clip.")
    if peak > 16.0:
        raise BreezeLabError(f"{name} peaks at {peak:.0f}; floats lie in [-1, 1]. Divide 16-bit values by 32768.")
    if peak > 1.0:
        warnings.warn(f"{name} peaks at {peak:.2f} of full scale; it was scaled down to 1.", stacklevel=2)
        x = x / peak
    return np.ascontiguousarray(x, dtype=np.float32)


def resample(samples: np.ndarray, rate: float, target: int = SAMPLE_RATE) -> np.ndarray:
    """float32 [N] at `rate` Hz to float32 [round(N * target / rate)] at `target` Hz (band-limited, soxr HQ)."""
    _check_rate(rate, "the audio")
    if rate == target:
        return np.asarray(samples, dtype=np.float32)
    out = soxr.resample(np.asarray(samples, dtype=np.float32), rate, target)
    length = round(len(samples) * target / rate)
    return np.pad(out[:length], (0, max(0, length - len(out)))).astype(np.float32)


def reference(audio: Any, sample_rate: float | None = None, target: int = SAMPLE_RATE) -> np.ndarray:
    """A voice's reference clip, checked, as float32 [N] at `target` Hz. `audio`: a path, or an array and its rate.

    Refused: what `to_mono_float` refuses, under 80 ms, over 60 s. Under 1 s a warning is given.
    """
    if isinstance(audio, str | Path):
        if sample_rate is not None:
            raise BreezeLabError("sample_rate goes with an array; a file tells its own. Leave sample_rate out.")
        name = Path(audio).name
        samples, rate = read(audio, MAX_SECONDS)
    else:
        name = "the reference audio"
        if not hasattr(audio, "__len__"):
            raise BreezeLabError(f"{name} is of type {type(audio).__name__}. Give a path, or an array of samples.")
        if sample_rate is None:
            raise BreezeLabError("an array of samples does not say its rate. Pass sample_rate=, in Hz.")
        samples, rate = to_mono_float(audio, name), sample_rate
    _check_rate(rate, name)
    seconds = len(samples) / rate
    if seconds < MIN_SECONDS:
        raise BreezeLabError(f"{name} lasts {1000 * seconds:.0f} ms, too short for a voice. Give 3 to 15 s of speech.")
    if seconds > MAX_SECONDS:
        raise BreezeLabError(_too_long(name, seconds, MAX_SECONDS))
    if seconds < USEFUL_SECONDS:
        warnings.warn(f"{name} lasts {seconds:.2f} s; a voice is caught well from 3 to 15 s of speech.", stacklevel=2)
    return resample(samples, rate, target)


def active_seconds(samples: np.ndarray, rate: float = SAMPLE_RATE) -> float:
    """Seconds of sound in float32 [N]: the 20 ms blocks within 40 dB of the loudest one."""
    block = max(1, round(0.02 * rate))
    blocks = np.pad(samples, (0, -len(samples) % block)).reshape(-1, block)
    power = np.square(blocks, dtype=np.float64).mean(axis=1)
    return float(np.count_nonzero(power > 1e-4 * power.max()) * block / rate)


def check_output(path: str | Path) -> Path:
    """Refuse, before any work, a path that `write` could not write: unknown suffix, no such folder, not writable."""
    path = as_path(path, "the sound file")
    if path.suffix.lower() not in WRITABLE:
        raise BreezeLabError(f"cannot write '{path.name}'. Choose a name that ends in {', '.join(WRITABLE)}.")
    check_writable(path)
    return path


def write(path: str | Path, samples: np.ndarray, rate: int = SAMPLE_RATE) -> Path:
    """Write float [N] in [-1, 1] as .wav or .flac (16 bit) or .ogg (Vorbis), whole or not at all (by a rename)."""
    path = check_output(path)
    if not isinstance(rate, (int, np.integer)) or isinstance(rate, bool) or rate < 1:
        raise BreezeLabError(f"the sample rate {rate!r} is not a whole number of Hz. Give one, such as {SAMPLE_RATE}.")
    x, over = _clipped(samples)
    if over:
        warnings.warn(f"{over} of {len(x)} samples were beyond full scale and were clipped.", stacklevel=2)
    container, subtype = WRITABLE[path.suffix.lower()]
    with (
        whole_file(path) as temporary,
        soundfile.SoundFile(temporary, "w", int(rate), 1, subtype, format=container) as file,
    ):
        for start in range(0, len(x), rate):  # one long Vorbis write can overflow libsndfile's stack
            file.write(x[start : start + rate])
    return path


def wav_bytes(samples: np.ndarray, rate: int = SAMPLE_RATE) -> bytes:
    """float [N] in [-1, 1] as the bytes of a 16-bit mono WAV file; values beyond are clipped."""
    buffer = io.BytesIO()
    soundfile.write(buffer, _clipped(samples)[0], rate, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


@dataclass(frozen=True)
class Player:
    """An audio control for notebooks. Gain is fixed: what is quiet sounds quiet, and clipping is reported."""

    samples: np.ndarray = field(repr=False)
    rate: int
    label: str = ""
    transcript: str = ""
    max_seconds: float = 60.0

    @property
    def note(self) -> str:
        """Length and whatever the ear should be told: clipping, silence, a cut."""
        x = np.asarray(self.samples)
        seconds = len(x) / self.rate
        parts = [f"{seconds:.1f} s"]
        over = int(np.count_nonzero(np.abs(x) > 1.0))
        if over:
            parts.append(f"{over} samples clipped")
        if len(x) == 0 or float(np.abs(x).max()) < SILENCE_PEAK:
            parts.append("silent")
        if seconds > self.max_seconds:
            parts.append(f"first {self.max_seconds:g} s shown")
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        shown = self.samples[: int(self.max_seconds * self.rate)]
        label = f"<b>{html.escape(self.label)}</b> " if self.label else ""
        text = f"<div><q>{html.escape(self.transcript)}</q></div>" if self.transcript else ""
        data = base64.b64encode(wav_bytes(shown, self.rate)).decode()
        title = html.escape(self.label or "speech", quote=True)
        sound = f'<audio controls preload="metadata" aria-label="{title}" src="data:audio/wav;base64,{data}"></audio>'
        return f"<div>{label}({html.escape(self.note)})</div>{text}{sound if len(shown) else ''}"

    def __str__(self) -> str:
        return f"{self.label or 'audio'} ({self.note})"


def player(samples: Any, rate: int = SAMPLE_RATE, label: str = "", transcript: str = "") -> Player:
    """A notebook audio control for float [N] in [-1, 1], at fixed gain, with its label and transcript."""
    x = _numpy(samples, "the audio").astype(np.float32)
    if x.ndim != 1:
        raise BreezeLabError(f"a player takes one channel, not shape {x.shape}. Use audio.to_mono_float first.")
    if not np.isfinite(x).all():
        raise BreezeLabError("the audio has NaN or infinite samples. Look at the model's output before playing it.")
    return Player(x, rate, label, transcript)


def _check_file(path: Path, max_seconds: float) -> None:
    """Refuse what is no readable sound file, empty, or longer than `max_seconds`."""
    if not path.exists():
        raise BreezeLabError(f"there is no file {path}. Check the path.")
    if path.is_dir():
        raise BreezeLabError(f"{path} is a folder. Give a sound file ({', '.join(READABLE)}).")
    try:
        info = soundfile.info(path)
    except (soundfile.LibsndfileError, OSError) as error:
        raise BreezeLabError(_unreadable(path)) from error
    if info.frames == 0:
        raise BreezeLabError(f"{path.name} has no samples. Give a recording of at least {USEFUL_SECONDS:g} s.")
    if info.duration > max_seconds:
        raise BreezeLabError(_too_long(path.name, info.duration, max_seconds))


def _check_rate(rate: float, name: str) -> None:
    if not isinstance(rate, (int, float, np.number)) or not MIN_RATE <= rate <= MAX_RATE:
        raise BreezeLabError(f"{name} has a sample rate of {rate} Hz. Give one of {MIN_RATE} to {MAX_RATE} Hz.")


def _too_long(name: str, seconds: float, limit: float) -> str:
    return f"{name} lasts {seconds:.0f} s, more than {limit:.0f} s. Cut clip and transcript together to 3 to 15 s."


def _unreadable(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror}). Check the rights there."
    if not head:
        return f"the file {path.name} is empty (0 bytes). Record or copy it again."
    if _is_text(head):
        return f"the file {path.name} is text, not sound. Give a sound file ({', '.join(READABLE)})."
    stem = f"{path.stem}-24k" if path.suffix.lower() == ".wav" else path.stem
    cure = f"ffmpeg -i '{path.name}' -ac 1 -ar {SAMPLE_RATE} '{stem}.wav'"
    if path.suffix.lower() in READABLE:
        return f"{path.name} cannot be read: damaged, or of another format than its name says. Try: {cure}"
    return f"cannot read '{path.suffix or path.name}' files, only {', '.join(READABLE)}. Convert it: {cure}"


def _is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are words: characters that print, and no mark of a sound file."""
    if head.startswith((b"RIFF", b"fLaC", b"OggS", b"ID3")):
        return False
    text = head.decode("utf-8", errors="ignore")  # the last character may be cut
    return len(text.encode()) > len(head) - 4 and all(c.isprintable() or c in "\t\r\n" for c in text)


def _numpy(samples: Any, name: str) -> np.ndarray:
    """NumPy array of anything array-like; MLX bfloat16 (which NumPy cannot view) by way of float32."""
    try:
        x = np.asarray(samples)
    except (RuntimeError, TypeError, ValueError, BufferError):
        import mlx.core as mx

        if not isinstance(samples, mx.array):
            raise BreezeLabError(f"{name} is not an array of samples but {type(samples).__name__}.") from None
        x = np.asarray(samples.astype(mx.float32))
    if x.dtype.kind not in "iuf":
        raise BreezeLabError(f"{name} is not an array of numbers but of {x.dtype}. Give float or 16-bit samples.")
    return x


def _full_scale(x: np.ndarray, name: str) -> np.ndarray:
    """Integer samples as float32 in [-1, 1]; unsigned ones are centered first. Floats unchanged."""
    if x.dtype.kind == "f":
        return x.astype(np.float32)
    if x.dtype.itemsize == 8:
        raise BreezeLabError(f"{name} has 64-bit integers of unknown full scale. Give int16 or float samples.")
    half = 2.0 ** (8 * x.dtype.itemsize - 1)
    return ((x.astype(np.float64) - (half if x.dtype.kind == "u" else 0.0)) / half).astype(np.float32)


def _one_channel(x: np.ndarray, name: str) -> np.ndarray:
    """[N], [N, C] or [C, N] to [N]: the shorter axis of a matrix is its channels, at most 8."""
    if x.ndim == 1:
        return x
    if x.ndim == 2 and min(x.shape) <= 8 and x.shape[0] != x.shape[1]:
        return x.mean(axis=int(np.argmin(x.shape)))
    raise BreezeLabError(f"{name} has shape {x.shape}. Give samples [N], or [N, channels].")


def _clipped(samples: Any) -> tuple[np.ndarray, int]:
    """float32 [N] within [-1, 1], and how many samples were beyond."""
    x = _numpy(samples, "the sound to write")
    if x.dtype.kind != "f":
        raise BreezeLabError(f"samples to write are floats in [-1, 1], not {x.dtype}. Use audio.to_mono_float first.")
    x = x.astype(np.float32)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise BreezeLabError(f"samples to write are [N] and finite; these have shape {x.shape} or hold NaN.")
    over = int(np.count_nonzero(np.abs(x) > 1.0))
    return np.clip(x, -1.0, 1.0), over
