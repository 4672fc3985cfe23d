"""The codec against mlx-audio 0.6.2 on one checkpoint folder, where that program's known faults do not bear.

Lengths stay below 72 frames (its decoder has no window, and cuts what it decodes into chunks of 300 with too little
context) and below 10 seconds (its encoder has no window either); codebook 0 never has id 0 (it would lose the frame).
Beyond those limits `tests/test_codec.py` compares with a float64 reference.
"""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.codec import load_codec, make_random_codec

pytest.importorskip("mlx_audio")
from mlx_audio.tts.models.breeze_tts import Model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("parity") / "audio_tokenizer"
    make_random_codec(path, "tiny", 11)
    return path


@pytest.fixture(scope="module")
def ours(folder):
    return load_codec(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    return Model._load_audio_tokenizer(folder)


def codes_of(codec, frames):
    rng = np.random.default_rng(frames)
    return mx.array(rng.integers(1, codec.codebook_size, (frames, codec.num_codebooks), dtype=np.int32))


@pytest.mark.parametrize("frames", [1, 2, 5])  # its dilated convolutions take 1 s a frame on a busy CPU
def test_decode(ours, theirs, frames):
    codes = codes_of(ours, frames)
    want = np.array(theirs.decode(codes[None])[0][0])
    got = np.array(ours.decode(codes))
    assert got.shape == want.shape == (1920 * frames,) and want.std() > 0.03
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_decoder_transformer_up_to_the_window(ours, theirs):
    codes, state = codes_of(ours, 72), ours.make_state()
    decoder = theirs.decoder
    want = decoder.pre_transformer(decoder.pre_conv(decoder.quantizer.decode(codes.T[None]).transpose(0, 2, 1)))
    with state.advance(72):
        quantized = ours.decoder.quantizer.decode(codes)
        got = ours.decoder.pre_transformer(ours.decoder.pre_conv(quantized, state), state)
    np.testing.assert_allclose(np.array(got), np.array(want)[0], atol=1e-5)


def test_streaming_decode(ours, theirs):
    codes, state = codes_of(ours, 4), ours.make_state()
    theirs.decoder.reset_streaming_state()
    for start in range(0, 4, 2):
        chunk = codes[start : start + 2]
        want = np.array(theirs.decoder.streaming_step(chunk.T[None]))[0, 0]
        np.testing.assert_allclose(np.array(ours.decode_step(chunk, state)), want, atol=1e-4)
    theirs.decoder.reset_streaming_state()


@pytest.mark.parametrize("samples", [1920, 4 * 24000, 33333])
def test_encode(ours, theirs, samples):
    sound = mx.array(0.1 * np.random.default_rng(samples).normal(size=samples).astype(np.float32))
    want = np.array(theirs.encode(sound[None, None]))[0].T
    got = np.array(ours.encode(sound))
    assert got.shape == want.shape == (-(-samples // 1920), 16)
    # A difference of 1e-6 in what is quantized may tip a near-tie, and then the later codebooks of that frame too.
    assert (got == want).all(axis=1).mean() >= 0.95


def test_latents_before_quantization(ours, theirs):
    sound = mx.array(0.1 * np.random.default_rng(0).normal(size=3 * 24000).astype(np.float32))
    encoder = theirs.encoder_model
    kept = []
    inner, encoder.quantizer.encode = encoder.quantizer.encode, lambda x: kept.append(x) or inner(x)
    try:
        encoder.encode(sound[None, None])
    finally:
        encoder.quantizer.encode = inner
    want = np.array(kept[0])[0].T
    np.testing.assert_allclose(np.array(ours.encoder.latents(sound)), want, atol=1e-4 * np.abs(want).max())
