"""audio.py against soundfile and scipy: formats, rates, channels, integer scaling, refusals, atomic writes."""

import base64
import io
import os
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import soundfile
from scipy import signal

from breeze_lab import audio
from breeze_lab.errors import BreezeLabError


def tone(seconds: float = 2.0, rate: int = 24000, hz: float = 440.0, peak: float = 0.5) -> np.ndarray:
    return (peak * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def peak_hz(x: np.ndarray, rate: int) -> float:
    return float(np.abs(np.fft.rfft(x * np.hanning(len(x)))).argmax() * rate / len(x))


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000, 96000])
@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_every_format_and_rate_arrives_at_24_khz(tmp_path: Path, suffix: str, rate: int):
    if suffix == "mp3" and rate == 96000:
        pytest.skip("MP3 has no 96 kHz")
    path = tmp_path / f"clip.{suffix}"
    soundfile.write(path, np.stack([tone(rate=rate), tone(rate=rate)], axis=1), rate)
    samples = audio.reference(path)
    assert samples.dtype == np.float32 and samples.ndim == 1
    assert abs(len(samples) - 48000) <= (0 if suffix in ("wav", "flac") else 3000)
    assert abs(peak_hz(samples[4000:44000], 24000) - 440.0) < 1.0
    assert abs(np.abs(samples[4000:44000]).max() - 0.5) < 0.05


def test_resample_agrees_with_scipy():
    rng = np.random.default_rng(0)
    x = np.convolve(rng.standard_normal(48000), np.hanning(40) / 20, mode="same").astype(np.float32)  # low-passed
    ours, theirs = audio.resample(x, 48000), signal.resample_poly(x, 1, 2)
    assert len(ours) == 24000
    assert np.abs(ours - theirs)[500:-500].max() < 2e-3 * np.abs(theirs).max()


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int8])
def test_integers_are_scaled_by_their_type(dtype: type):
    half = np.iinfo(dtype).max + 1
    x = (tone() * half).astype(dtype)
    np.testing.assert_allclose(audio.to_mono_float(x), x / np.float64(half), atol=1e-7)


def test_uint8_is_centered():
    x = np.array([0, 128, 192, 255] * 100, dtype=np.uint8)
    np.testing.assert_allclose(audio.to_mono_float(x)[:4], [-1.0, 0.0, 0.5, 127 / 128])


def test_stereo_both_ways_and_mlx_arrays():
    left, right = tone(hz=300), tone(hz=500)
    mean = (left + right) / 2
    for stereo in (np.stack([left, right]), np.stack([left, right], axis=1), mx.array(np.stack([left, right]))):
        np.testing.assert_allclose(audio.to_mono_float(stereo), mean, atol=1e-7)
    bf16 = mx.array(left).astype(mx.bfloat16)
    np.testing.assert_allclose(audio.to_mono_float(bf16), left, atol=2e-3)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros(0, np.float32), "no samples"),
        (np.zeros(24000, np.float32), "silent"),
        (np.full(24000, np.nan, np.float32), "NaN"),
        (np.r_[tone(), np.float32(np.inf)], "NaN or infinite"),
        (tone() * 20000, "Divide 16-bit values by 32768"),
        (np.zeros((2, 3, 4), np.float32), "shape"),
        (np.zeros((100, 100), np.float32), "shape"),
        (np.array(["a", "b"]), "numbers"),
        (np.arange(100), "64-bit integers"),
        (tone(0.02), "20 ms"),
        (tone(61.0), "61 s"),
    ],
)
def test_bad_arrays_are_refused_with_cause_and_cure(samples: np.ndarray, words: str):
    with pytest.raises(BreezeLabError, match=words) as caught:
        audio.reference(samples, 24000)
    assert "\n" not in str(caught.value)


def test_an_array_needs_its_rate_and_a_sane_one():
    with pytest.raises(BreezeLabError, match="sample_rate="):
        audio.reference(tone())
    for rate in (0, 4000, 400000):
        with pytest.raises(BreezeLabError, match="sample rate"):
            audio.reference(tone(), rate)


def test_short_and_hot_clips_are_warned_about():
    with pytest.warns(UserWarning, match="0.50 s"):
        audio.reference(tone(0.5), 24000)
    with pytest.warns(UserWarning, match="1.50 of full scale"):
        scaled = audio.to_mono_float(tone() * 3)
    assert np.abs(scaled).max() == 1.0


def test_bad_files_are_refused(tmp_path: Path):
    (tmp_path / "song.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(100))
    (tmp_path / "broken.wav").write_bytes(b"RIFF no")
    (tmp_path / "nothing.wav").touch()
    (tmp_path / "words.wav").write_text("Not a sound at all, but wörds.\n")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 24000)
    soundfile.write(tmp_path / "long.wav", np.zeros(8000 * 61, np.int16), 8000)
    for name, words in {
        "song.m4a": "ffmpeg -i 'song.m4a'",
        "broken.wav": "damaged.*'broken-24k.wav'",  # ffmpeg cannot write onto its input
        "nothing.wav": "is empty",
        "words.wav": "is text, not sound",
        "empty.wav": "no samples",
        "long.wav": "61 s",
        "absent.wav": "no file",
        ".": "folder",
    }.items():
        with pytest.raises(BreezeLabError, match=words):
            audio.reference(tmp_path / name)


def test_active_seconds_leaves_silence_out():
    x = np.r_[np.zeros(24000, np.float32), tone(2.0), np.zeros(48000, np.float32)] + 1e-3  # silence is never quite that
    assert abs(audio.active_seconds(x) - 2.0) <= 0.04


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_write_round_trip(tmp_path: Path, suffix: str):
    x = tone(3.3)
    path = audio.write(tmp_path / f"out.{suffix}", x)
    back, rate = soundfile.read(path, dtype="float32")
    assert rate == 24000 and len(back) == len(x)
    assert np.abs(back - x).max() < (1e-4 if suffix != "ogg" else 0.05)
    assert list(tmp_path.iterdir()) == [path]


def test_write_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = audio.write(tmp_path / "out.wav", tone())
    before = path.read_bytes()

    def fail(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(BreezeLabError, match="No space left"):
        audio.write(path, tone(1.0))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_write_refuses_before_work(tmp_path: Path):
    (tmp_path / "d.wav").mkdir()
    for name, words in {"x.mp4": ".wav, .flac, .ogg", "no/x.wav": "does not exist", "d.wav": "is a folder"}.items():
        with pytest.raises(BreezeLabError, match=words):
            audio.check_output(tmp_path / name)
    with pytest.raises(BreezeLabError, match="finite"):
        audio.write(tmp_path / "x.wav", np.array([np.nan], np.float32))
    with pytest.warns(UserWarning, match="1 of 2 samples"):
        audio.write(tmp_path / "x.wav", np.array([0.5, 1.5], np.float32))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write in")
def test_an_unwritable_folder_is_refused():
    with pytest.raises(BreezeLabError, match="cannot write in"):
        audio.check_output("/proc/x.wav")


def test_player_has_fixed_gain_and_tells_what_it_hides():
    page = audio.player(tone(peak=0.01), label="a <b>", transcript="x & y")._repr_html_()
    assert "a &lt;b&gt;" in page and "x &amp; y" in page and "data:audio/wav;base64," in page
    data = base64.b64decode(page.split("base64,")[1].split('"')[0])
    back, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    assert abs(np.abs(back).max() - 0.01) < 1e-4  # IPython's own Audio would have made this 1.0
    assert "clipped" in audio.player(np.array([0.0, 1.2])).note
    assert "silent" in audio.player(np.zeros(100)).note
    assert "silent" in audio.player(np.zeros(0))._repr_html_()
    assert "first 60 s shown" in audio.player(tone(61.0, rate=8000), rate=8000).note
    with pytest.raises(BreezeLabError, match="NaN"):
        audio.player(np.array([np.nan]))
