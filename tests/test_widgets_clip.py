"""Reading, trimming and judging reference clips; the likeness figure."""

import io

import numpy as np
import pytest
import soundfile

from breeze_lab.errors import BreezeLabError
from breeze_lab.widgets import clip as clips
from breeze_lab.widgets.likeness import cepstra, compare, median_pitch

RATE = 24_000


def speech(seconds=5.0, pitch=120.0, tilt=1.2, rate=RATE, seed=0):
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.05 * np.sin(4 * t))) / rate
    buzz = sum(np.sin(k * phase) / k**tilt for k in range(1, 30))
    noise = np.random.default_rng(seed).standard_normal(len(t))
    return (0.2 * buzz * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t)) + 0.003 * noise).astype(np.float32)


def wav(samples, rate=RATE, format="WAV"):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=format)
    return buffer.getvalue()


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "MP3"])
def test_uploads_are_read_in_four_formats_and_resampled(format):
    clip = clips.clip_from_bytes(wav(speech(2.0, rate=16_000), 16_000, format), f"me.{format.lower()}")
    assert clip.seconds == pytest.approx(2.0, abs=0.12) and clip.samples.dtype == np.float32
    assert clip.needs_consent and clip.name == f"me.{format.lower()}"


def test_stereo_is_mixed():
    two = np.stack([speech(1.0), np.zeros(RATE, np.float32)], axis=1)
    assert clips.clip_from_bytes(wav(two), "a.wav").samples.ndim == 1


@pytest.mark.parametrize(
    ("content", "name", "told"),
    [
        (b"", "a.wav", "arrived empty"),
        (b"not a sound", "a.wav", "a.wav is text, not sound"),
        (b"\0" * 10, "a.m4a", "ffmpeg"),
        (b"\0" * 8_000_000, "a.wav", "path box"),
        (wav(np.zeros(RATE)), "a.wav", "silent"),
        (wav(speech(0.05)), "a.wav", "50 ms"),
    ],
)
def test_bad_uploads_are_refused_with_the_cure(content, name, told):
    with pytest.raises(BreezeLabError, match=told) as error:
        clips.clip_from_bytes(content, name)
    assert "/tmp" not in str(error.value)


def test_a_long_clip_is_shown_with_a_part_selected_and_a_very_long_one_refused(tmp_path):
    clip = clips.make_clip(speech(70.0), RATE, "long.wav", "path")
    assert (clip.start, clip.end) == (0.0, 15.0) and len(clip.chosen()) == 15 * RATE
    with pytest.raises(BreezeLabError, match="ffmpeg -ss"):
        clips.make_clip(np.tile(speech(10.0), 13), RATE, "longer.wav", "path")
    with pytest.raises(BreezeLabError, match="no file"):
        clips.clip_from_file(tmp_path / "gone.wav")


def test_trim_keeps_inside_and_refuses_nothing():
    clip = clips.make_clip(speech(4.0), RATE, "a", "microphone")
    part = clips.trim(clip, -1.0, 2.0)
    assert (part.start, part.end) == (0.0, 2.0)
    np.testing.assert_array_equal(part.chosen(), clip.samples[: 2 * RATE])
    with pytest.raises(BreezeLabError, match="empty"):
        clips.trim(clip, 3.0, 3.0)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("", "empty"),
        ("Hi.", "warn"),
        ("The salt breeze came across from the sea and the gulls cried", "ok"),
        ("word " * 60, "warn"),
    ],
)
def test_the_pace_tells_when_words_and_clip_do_not_fit(words, kind):
    assert clips.pace_hint(words, clips.make_clip(speech(5.0), RATE, "a", "upload"))[0] == kind


@pytest.mark.parametrize(
    ("samples", "kind", "told"),
    [
        (speech(6.0), "ok", "good length"),
        (speech(2.0), "warn", "short"),
        (speech(35.0), "warn", "long"),
        (np.clip(speech(6.0) * 20, -1, 1), "warn", "overdriven"),
        (speech(6.0) * 0.01, "warn", "quiet"),
    ],
)
def test_length_and_level_hints(samples, kind, told):
    hint = clips.length_hint(clips.make_clip(samples, RATE, "a", "upload"))
    assert hint[0] == kind and told in hint[1]


def test_peaks_are_the_largest_magnitudes():
    samples = np.zeros(1000, np.float32)
    samples[250], samples[999] = -0.5, 0.75
    assert clips.peaks(samples, 4) == [0.0, 0.5, 0.0, 0.75]
    assert len(clips.peaks(samples[:3], 10)) == 10


def test_likeness_is_highest_for_the_same_timbre_whatever_the_loudness():
    a = speech(4.0, 120.0, 1.2)
    again = 0.3 * speech(4.0, 125.0, 1.2, seed=1)
    other = speech(4.0, 125.0, 0.4)
    assert compare(a, again).timbre > 0.9 > compare(a, other).timbre
    assert compare(a, a).timbre == pytest.approx(1.0)


@pytest.mark.parametrize("pitch", [90.0, 130.0, 220.0, 330.0])
def test_the_median_pitch_is_found(pitch):
    assert median_pitch(speech(2.0, pitch)) == pytest.approx(pitch, rel=0.04)
    assert compare(speech(2.0, pitch), speech(2.0, pitch * 1.2)).semitones == pytest.approx(3.16, abs=0.4)


def test_noise_and_silence_have_no_pitch():
    assert median_pitch(np.random.default_rng(0).standard_normal(RATE).astype(np.float32)) == 0.0
    assert median_pitch(np.zeros(100, np.float32)) == 0.0


def test_cepstra_agree_with_scipy():
    scipy_fft = pytest.importorskip("scipy.fft")
    rng = np.random.default_rng(0)
    samples = rng.standard_normal(RATE).astype(np.float32)
    from breeze_lab.widgets import likeness

    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), 600)[::240]
    power = np.abs(np.fft.rfft(frames * np.hanning(600), 1024)) ** 2
    logs = np.log(power @ likeness._mel_filters().T + 1e-8)
    expected = scipy_fft.dct(logs, type=2, axis=1, norm="ortho")[:, 1:20]
    np.testing.assert_allclose(cepstra(samples)[:, 1:], expected, rtol=1e-6, atol=1e-8)
