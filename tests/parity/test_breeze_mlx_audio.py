"""The same function as mlx-audio 0.6.2 on the same checkpoint folder, CPU float32."""

import mlx.core as mx
import numpy as np
import pytest

import breeze_lab as bl
from breeze_lab import frames

pytest.importorskip("mlx_audio")
from mlx_audio.tts.utils import load_model

TEXT = "[S0]The salt breeze came across from the sea, and nobody said a word."
SAMPLING = dict(temperature=0.9, top_k=50, top_p=1.0, repetition_penalty=1.0)  # said to both, whatever their defaults
LAYOUTS = ("dense", "int8-depth", "mxfp8", "mxfp4")


@pytest.fixture(scope="module", params=LAYOUTS)
def pair(request, tiny_folder, tmp_path_factory):
    """(ours, mlx-audio's) from one folder, quantized layers kept packed in both."""
    folder = tiny_folder
    if request.param != "dense":
        folder = bl.convert(tiny_folder, tmp_path_factory.mktemp("layouts") / request.param, request.param)
    return bl.load(folder, dtype="checkpoint"), load_model(folder)


def relative(ours: mx.array, theirs: mx.array) -> float:
    assert ours.shape == theirs.shape
    return float(mx.abs(ours - theirs).max() / mx.abs(theirs).max())


def test_text_encoder_and_backbone(pair):
    ours, theirs = pair
    assert ours.tokens(TEXT) == theirs._text_ids(TEXT).tolist()
    ids = mx.array([ours.tokens(TEXT)])
    embedded = ours.lm.embed_text(ids)
    want = theirs.text_encoder_proj(theirs.text_encoder(ids))
    assert relative(embedded, want) < 1e-5
    hidden, want = ours.lm.backbone_model(embedded), theirs.backbone_model(input_embeddings=want)
    assert relative(hidden, want) < 1e-5
    assert relative(ours.lm.lm_head(hidden), theirs.lm_head(want)) < 1e-5


def test_every_depth_head_both_ways(pair):
    ours, theirs = pair
    rng = np.random.default_rng(0)
    hidden = mx.array(rng.normal(size=(1, 64)).astype(np.float32))
    codes = mx.array(rng.integers(0, 128, (1, 16)))
    depth, caches = ours.lm.depth_decoder, ours.lm.depth_decoder.make_cache()
    frames.start_frame(depth, hidden, caches)
    their_caches = theirs.depth_decoder.model.make_cache()
    theirs.depth_decoder.start_frame(hidden, their_caches)
    for n in range(1, 16):
        prefix = mx.concatenate([mx.zeros((1, 1), mx.int64), codes[:, :n]], axis=1)
        want = theirs.depth_decoder.next_logits(prefix, hidden)
        assert relative(frames.next_logits(depth, codes[:, :n], hidden), want) < 1e-5
        step = frames.step_logits(depth, codes[:, n - 1], caches)
        want = theirs.depth_decoder.step_logits(their_caches, head_idx=n - 1, token_id=codes[:, n - 1])
        assert relative(step, want) < 1e-5


def test_frame_embedding(pair):
    ours, theirs = pair
    codes = mx.array(np.random.default_rng(1).integers(0, 128, (1, 5, 16)))
    assert relative(ours.lm.embed_frames(codes), theirs.backbone_model.embed_tokens(codes)) < 1e-6


@pytest.fixture(scope="module")
def clip():
    t = np.arange(24000) / 24000
    return (0.3 * np.sin(2 * np.pi * (120 + 60 * t) * t) * (1 + np.sin(2 * np.pi * 3 * t))).astype(np.float32)


def their_codes(model, text, seed, **options) -> np.ndarray:
    """mlx-audio keeps its codes to itself: take them on their way to the codec."""
    seen = []
    decode, model._decode_codes = model._decode_codes, lambda codes: seen.append(codes) or mx.zeros((1,))
    try:
        list(model.generate(text, seed=seed, max_tokens=12, **SAMPLING, **options))
    finally:
        model._decode_codes = decode
    return np.array(seen[0][0])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mode", ["design", "clone", "direction"])
def test_codes_are_identical(pair, clip, mode, seed):
    ours, theirs = pair
    text, instruct = "Nobody said a word.", "a calm and rather low voice" if mode != "clone" else None
    scale = 2.0 if mode == "direction" else 1.0
    voice, reference = None, {}
    if mode != "design":
        voice = bl.Voice.from_audio(ours, clip, "Some ten letters", sample_rate=24000)
        reference = {"ref_audio": mx.array(clip), "ref_text": "Some ten letters"}
    want = their_codes(theirs, text, seed, instruct=instruct, cfg_scale=scale, **reference)
    options = dict(instruct=instruct, cfg_scale=scale, seed=seed, max_frames=12)
    result = bl.generate(ours, text, voice=voice, **options, **SAMPLING)
    np.testing.assert_array_equal(result.codes, want)
    assert len(want) > 1
