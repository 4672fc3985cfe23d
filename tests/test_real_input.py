"""A human recording through the default checkpoint: read in every format, encoded, decoded, cloned."""

import io
import json
import threading
from math import ceil
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import soundfile
import soxr
from scipy import signal

import breeze_lab as bl
from breeze_lab import audio, voices
from breeze_lab.paths import voices_folder
from breeze_lab.voice import transcript_warning


def about(name: str) -> dict:
    return json.loads((voices_folder() / f"{name}.json").read_text(encoding="utf-8"))


HUMAN = [name for name in voices.names() if about(name).get("kind") == "human"]


@pytest.fixture(scope="module")
def model() -> "bl.checkpoint.SpeechModel":
    return bl.load()


@pytest.fixture(scope="module")
def clip() -> Path:
    """The recording as it lies in data/voices."""
    return next(p for p in sorted(voices_folder().glob(f"{HUMAN[0]}.*")) if p.suffix in audio.READABLE)


def log_mel(x: np.ndarray) -> np.ndarray:
    """[bands, frames] log energies in 40 bands, equally wide on the mel scale up to 8 kHz."""
    _, _, z = signal.stft(x, 24000, nperseg=1024, noverlap=768)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42) / 2595) - 1)
    hz = np.arange(513) * 24000 / 1024
    low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bank = np.clip(np.minimum((hz - low) / (mid - low), (high - hz) / (high - mid)), 0, None)
    return np.log10(bank @ np.abs(z) ** 2 + 1e-7)


def test_there_is_a_human_recording_and_every_source_and_licence_is_stated():
    assert HUMAN
    for name in voices.names():
        told = about(name)
        assert told["transcript"].strip() and told["source"].strip() and told.get("licence", told.get("license"))
        samples = audio.reference(next(p for p in voices_folder().glob(f"{name}.*") if p.suffix in audio.READABLE))
        assert transcript_warning(told["transcript"], audio.active_seconds(samples)) == ""


def test_the_shipped_voices_are_the_default_codecs_own(model: "bl.checkpoint.SpeechModel"):
    for name in voices.names():
        voice = bl.Voice.load(voices_folder() / f"{name}.safetensors")
        voice.check(model.codec)
        assert voice.transcript == about(name)["transcript"]
        file = next(p for p in voices_folder().glob(f"{name}.*") if p.suffix in audio.READABLE)
        fresh = model.codec.encode(mx.array(audio.reference(file)))
        assert fresh.shape == voice.codes.shape and float((fresh[:, 0] == voice.codes[:, 0]).mean()) > 0.9


def test_encoded_and_decoded_it_is_the_same_speech(model: "bl.checkpoint.SpeechModel", clip: Path):
    samples = audio.reference(clip)
    codes = model.codec.encode(mx.array(samples))
    assert codes.shape == (ceil(len(samples) / model.codec.frame_size), model.codec.num_codebooks)
    back = np.array(model.codec.decode(codes))[: len(samples)]
    assert np.abs(back).max() <= 1.0 and 0.5 < np.std(back) / np.std(samples) < 2.0
    distance = np.abs(log_mel(back) - log_mel(samples)).mean()
    elsewhere = np.abs(log_mel(np.roll(back, len(back) // 3)) - log_mel(samples)).mean()
    assert distance < 0.5 * elsewhere


@pytest.mark.parametrize("form", ["8k.wav", "16k.wav", "48k.flac", "96k.wav", "44k.ogg", "24k.mp3", "int16", "stereo"])
def test_every_form_of_the_recording_gives_about_the_same_codes(
    model: "bl.checkpoint.SpeechModel", clip: Path, form: str, tmp_path: Path
):
    samples, words = audio.reference(clip), about(HUMAN[0])["transcript"]
    if form == "int16":
        voice = bl.Voice.from_audio(model, (samples * 32767).astype(np.int16), words, sample_rate=24000)
    elif form == "stereo":
        voice = bl.Voice.from_audio(model, np.stack([samples, samples]), words, sample_rate=24000)
    else:
        rate = {"8k": 8000, "16k": 16000, "24k": 24000, "44k": 44100, "48k": 48000, "96k": 96000}[form.split(".")[0]]
        soundfile.write(tmp_path / form, soxr.resample(samples, 24000, rate), rate)
        voice = bl.Voice.from_audio(model, tmp_path / form, words)
    plain = model.codec.encode(mx.array(samples))
    assert abs(voice.codes.shape[0] - plain.shape[0]) <= 1
    if form in ("int16", "stereo"):
        assert float((voice.codes[:, 0] == plain[:, 0]).mean()) > 0.9


def test_cloned(model: "bl.checkpoint.SpeechModel"):
    voice = voices.open_voice(model, HUMAN[0])
    assert voice.name == HUMAN[0] and voice.source
    result = bl.generate(model, "The lamps were lit one after another.", voice=voice, seed=7, max_frames=100)
    assert result.finish_reason == "eos" and 0.01 < np.abs(result.samples).max() <= 1.0
    other = bl.generate(model, "The lamps were lit one after another.", seed=7, max_frames=100)
    assert not np.array_equal(result.codes, other.codes)
    assert soundfile.info(io.BytesIO(audio.wav_bytes(result.samples))).duration == pytest.approx(
        result.stats.audio_seconds
    )


def test_a_thread_may_make_the_first_speech_of_a_loaded_model():
    model, made = bl.load(), []

    def work():
        made.append(bl.generate(model, "Hello there.", seed=1, max_frames=3))
        mx.clear_streams()

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    np.testing.assert_array_equal(made[0].codes, bl.generate(model, "Hello there.", seed=1, max_frames=3).codes)
