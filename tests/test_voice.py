"""voice.py: the transcript check, the file, and refusals, with a codec small enough to check by hand."""

import json
import struct
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from breeze_lab import voice as voices
from breeze_lab.errors import BreezeLabError
from breeze_lab.voice import Voice


class LevelCodec(nn.Module):
    """Codes are the mean level of each 80 ms frame, once per codebook: easy to compute elsewhere."""

    sample_rate, frame_size, frame_rate, num_codebooks, codebook_size = 24000, 1920, 12.5, 4, 64

    def __init__(self, seed: int = 0):
        super().__init__()
        self.codebooks = mx.random.normal((1, 64, 8), key=mx.random.key(seed))
        self.decoder = mx.zeros((8,))
        self.calls = 0

    def encode(self, samples: mx.array) -> mx.array:
        self.calls += 1
        frames = mx.pad(samples, (0, -samples.shape[0] % 1920)).reshape(-1, 1920)
        level = mx.clip(mx.abs(frames).mean(axis=1) * 64, 0, 63).astype(mx.int32)
        return mx.repeat(level[:, None], 4, axis=1)


@pytest.fixture
def model() -> SimpleNamespace:
    return SimpleNamespace(codec=LevelCodec())


def speech(seconds: float = 3.0, rate: int = 24000) -> np.ndarray:
    t = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * 220 * t)).astype(np.float32)


TEXT = "the salt breeze came across from the sea"  # 33 letters, 11 a second in 3 s


def test_from_audio_encodes_once_at_the_codecs_rate(model: SimpleNamespace):
    clip = speech(rate=48000)
    voice = Voice.from_audio(model, clip, f" {TEXT}\n", sample_rate=48000, name="sea")
    assert voice.codes.shape == (38, 4) and voice.codes.dtype == mx.int32
    assert voice.transcript == TEXT and voice.name == "sea" and model.codec.calls == 1
    assert voice.seconds == 38 / 12.5
    assert int(voice.codes[10, 0]) == int(0.4 * 2 / np.pi * 64)  # the mean of |sin|


def test_round_trip(tmp_path: Path, model: SimpleNamespace):
    voice = Voice.from_audio(model, speech(), TEXT, sample_rate=24000, name="Zoë", source="a tone, CC0")
    path = voice.save(tmp_path / "sea.safetensors")
    back = Voice.load(path)
    assert np.array_equal(np.array(back.codes), np.array(voice.codes)) and back.codes.dtype == mx.int32
    for field in ("transcript", "name", "source", "codec", "frame_rate"):
        assert getattr(back, field) == getattr(voice, field)
    assert list(tmp_path.iterdir()) == [path]
    raw = path.read_bytes()  # read by the format's own definition, not by MLX
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    assert header["codes"]["dtype"] == "I32" and header["__metadata__"]["transcript"] == TEXT


def test_a_voice_belongs_to_its_codec(tmp_path: Path, model: SimpleNamespace):
    voice = Voice.from_audio(model, speech(), TEXT, sample_rate=24000)
    voice.check(model.codec)
    half = LevelCodec()
    half.set_dtype(mx.bfloat16)
    voice.check(half)  # the same weights in another dtype
    tuned = LevelCodec()
    tuned.decoder = mx.ones((8,))
    voice.check(tuned)  # codes that mean the same, decoded better
    with pytest.raises(BreezeLabError, match="another codec"):
        voice.check(LevelCodec(seed=1))
    with pytest.raises(BreezeLabError, match="ids up to 99"):
        Voice(mx.full((3, 4), 99), TEXT).check(model.codec)
    with pytest.raises(BreezeLabError, match="has 5 codebooks"):
        Voice(mx.zeros((3, 5), mx.int32), TEXT).check(model.codec)


@pytest.mark.parametrize("transcript", ["", "  \n", None])
def test_the_transcript_is_mandatory(model: SimpleNamespace, transcript: str | None):
    with pytest.raises(BreezeLabError, match="exact words"):
        Voice.from_audio(model, speech(), transcript, sample_rate=24000)  # type: ignore[arg-type]
    assert model.codec.calls == 0


def test_a_transcript_that_cannot_fit_the_clip_is_warned_about(model: SimpleNamespace):
    with pytest.warns(UserWarning, match="too few letters for 9.0 s"):
        Voice.from_audio(model, speech(9.0), "only the first words", sample_rate=24000)
    with pytest.warns(UserWarning, match="too many letters"):
        Voice.from_audio(model, speech(1.2), TEXT, sample_rate=24000)
    quiet = np.r_[np.zeros(240000, np.float32), speech(), np.zeros(240000, np.float32)]
    Voice.from_audio(model, quiet, TEXT, sample_rate=24000)  # silence does not count: no warning
    assert voices.transcript_warning("盐风从海上吹来越过沙丘", 2.6) == ""
    assert voices.letters("In 1984, 海") == 2 + 12 + 3


@pytest.mark.parametrize("codes", [mx.zeros((0, 4), mx.int32), mx.zeros((4,), mx.int32), mx.zeros((3, 4))])
def test_codes_have_one_shape(codes: mx.array):
    with pytest.raises(BreezeLabError, match="integers"):
        Voice(codes, TEXT)


def test_bad_files(tmp_path: Path, model: SimpleNamespace):
    path = Voice(mx.zeros((30, 4), mx.int32), TEXT).save(tmp_path / "v.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(path.read_bytes()[:-8])
    (tmp_path / "text.safetensors").write_text("hello")
    mx.save_safetensors(str(tmp_path / "other.safetensors"), {"codes": mx.zeros((3, 4))})
    for name, words in {
        "cut.safetensors": "truncated",
        "text.safetensors": "not a safetensors",
        "other.safetensors": "not a breeze_lab voice",
        "absent.safetensors": "no voice file",
    }.items():
        with pytest.raises(BreezeLabError, match=words):
            Voice.load(tmp_path / name)
    with pytest.raises(BreezeLabError, match="v.safetensors"):
        Voice(mx.zeros((3, 4), mx.int32), TEXT).save(tmp_path / "v.wav")
    with pytest.raises(BreezeLabError, match="does not exist"):
        Voice(mx.zeros((3, 4), mx.int32), TEXT).save(tmp_path / "no" / "v.safetensors")
