"""What an utterance sounds like, measured: pitch, pace, level; and the words' classes made of them."""

import numpy as np
import soxr

LEVEL = 0.08  # root mean square of ordinary speech in the corpus, full scale 1
TYPICAL_PITCH = {"female": 200.0, "male": 118.0}  # Hz, medians of the corpus
TYPICAL_PACE = 12.5  # phonemes a second, silence included; median of the corpus


def pitch(audio: np.ndarray, rate: int = 24_000) -> float:
    """Median fundamental frequency in Hz of the voiced 40 ms windows (60 to 420 Hz, autocorrelation); 0 if none."""
    x = soxr.resample(audio.astype(np.float32), rate, 8_000)
    if len(x) < 640:
        return 0.0
    windows = np.lib.stride_tricks.sliding_window_view(x, 320)[::160]
    windows = (windows - windows.mean(1, keepdims=True)) * np.hanning(320)
    spectrum = np.fft.rfft(windows, 1024)
    lags = np.fft.irfft(np.abs(spectrum) ** 2)[:, :140] / _HANN[:140]
    power = lags[:, 0]
    ratio = lags[:, 19:134] / np.maximum(power, 1e-9)[:, None]
    best = ratio.argmax(1)
    first = (ratio > 0.92 * ratio.max(1, keepdims=True)).argmax(1)  # the shortest of nearly equal periods
    around = np.minimum(first[:, None] + np.arange(6), ratio.shape[1] - 1)
    first = first + np.take_along_axis(ratio, around, 1).argmax(1)
    voiced = (ratio[np.arange(len(ratio)), best] > 0.55) & (power > 0.05 * power.max())
    return float(np.median(8_000 / (19 + first[voiced]))) if voiced.any() else 0.0


_window = np.hanning(320)
_HANN = np.fft.irfft(np.abs(np.fft.rfft(_window, 1024)) ** 2)
_HANN = _HANN / _HANN[0]


def level(audio: np.ndarray) -> float:
    """Root mean square of the windows that hold speech (20 ms, within 35 dB of the loudest)."""
    power = (audio[: len(audio) // 480 * 480].reshape(-1, 480).astype(np.float64) ** 2).mean(1)
    return float(np.sqrt(power[power > power.max() * 10**-3.5].mean())) if len(power) and power.max() > 0 else 0.0


def sounds(phonemes: str) -> int:
    """How many phonemes a string holds; stress, length and punctuation do not count."""
    return sum(c.isalpha() and c not in "ˈˌːʰʲ" for c in phonemes)


def pace(phonemes: str, seconds: float) -> float:
    """Phonemes a second; the silence that trimming leaves (0.2 s) does not count."""
    return sounds(phonemes) / max(seconds - 0.2, 0.1)


def classes(gender: str, hertz: float, per_second: float, loudness: str | None) -> dict[str, str | None]:
    """Which of low/high, slow/fast, quiet/loud stand out; None where ordinary."""
    height = hertz / TYPICAL_PITCH[gender] if hertz else 1.0
    speed = per_second / TYPICAL_PACE
    return {
        "pitch": "low" if height < 0.86 else "high" if height > 1.16 else None,
        "pace": "slow" if speed < 0.82 else "fast" if speed > 1.2 else None,
        "loudness": loudness,
    }
