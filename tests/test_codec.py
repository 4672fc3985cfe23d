"""The Qwen3-TTS 12 Hz codec against a naive float64 reference, and its streams against themselves."""

import mlx.core as mx
import numpy as np
import pytest
from codec_reference import FRAME, Reference, toy_config
from mlx.utils import tree_flatten

from breeze_lab.codec import Codec, conv, load_codec
from breeze_lab.codec.conv import CausalConv, DepthwiseConv, StridedConv, TransposedConv
from breeze_lab.codec.qwen12hz import decoder
from breeze_lab.codec.qwen12hz.decoder import SnakeBeta
from breeze_lab.codec.qwen12hz.random import write_random
from breeze_lab.codec.rvq import SplitRVQ
from breeze_lab.errors import BreezeLabError


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codec") / "audio_tokenizer"
    write_random(folder, toy_config(), 5)
    return folder


@pytest.fixture(scope="module")
def toy(toy_folder) -> Codec:
    return load_codec(toy_folder)


@pytest.fixture(scope="module")
def reference(toy_folder):
    return Reference(toy_config(), mx.load(str(toy_folder / "model.safetensors")))


@pytest.fixture(scope="module")
def tiny_codec(tiny_folder) -> Codec:
    return load_codec(tiny_folder / "audio_tokenizer")


def some_codes(codec, frames, seed=0):
    shape = (frames, codec.num_codebooks)
    return mx.array(np.random.default_rng(seed).integers(0, codec.codebook_size, shape, dtype=np.int32))


def some_sound(samples, seed=0):
    return mx.array(0.1 * np.random.default_rng(seed).normal(size=samples).astype(np.float32))


def stream(codec, codes, chunk, state=None):
    state = codec.make_state() if state is None else state
    parts = [codec.decode_step(codes[i : i + chunk], state) for i in range(0, codes.shape[0], chunk)]
    return np.concatenate([np.array(part) for part in parts])


# Layers ---------------------------------------------------------------------------------------------------------------


def fill(module, rng):
    """Random weights in the published layout, adopted by `module`; returns them as a Reference named `m`."""
    weight = rng.normal(size=module.upstream).astype(np.float32)
    module.weight = module.adopt(mx.array(weight))
    tensors = {"m.conv.weight": weight}
    if "bias" in module:
        bias = rng.normal(size=module.bias.shape).astype(np.float32)
        module.bias, tensors["m.conv.bias"] = mx.array(bias), bias
    return Reference({}, tensors)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 23])
@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: CausalConv(3, 5, 7, 9), lambda r, x: r.conv("m", x, dilation=9)),
        (lambda: CausalConv(3, 5, 1), lambda r, x: r.conv("m", x)),
        (lambda: DepthwiseConv(3, 7), lambda r, x: r.conv("m", x, groups=3)),
        (lambda: TransposedConv(3, 5, 8, 4), lambda r, x: r.transposed("m", x, 4)),
        (lambda: TransposedConv(3, 5, 4, 4), lambda r, x: r.transposed("m", x, 4)),
        (lambda: TransposedConv(3, 5, 6, 2), lambda r, x: r.transposed("m", x, 2)),
        (lambda: StridedConv(3, 5, 4), lambda r, x: r.conv("m", x, stride=4)),
        (lambda: StridedConv(3, 5, 2, bias=False, edge=True), lambda r, x: r.conv("m", x, stride=2, mode="edge")),
    ],
)
def test_convolutions_equal_naive_sums(make, expected, rows, gpu, monkeypatch):
    monkeypatch.setattr(conv, "on_gpu", lambda: gpu)  # the form for a GPU computes the same, on any device
    module, rng = make(), np.random.default_rng(rows)
    naive = fill(module, rng)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    np.testing.assert_allclose(np.array(module(mx.array(x))), expected(naive, x.astype(np.float64)), atol=2e-5)


def test_snake_equals_its_formula_also_far_from_zero():
    rng = np.random.default_rng(0)
    alpha, beta = rng.normal(size=(2, 6)).astype(np.float32)
    x = (20 * rng.normal(size=(200, 6))).astype(np.float32)
    snake = SnakeBeta(6)
    snake.update(SnakeBeta.adopt(mx.array(alpha), mx.array(beta)))
    want = Reference({}, {"m.alpha": alpha, "m.beta": beta}).snake("m", x.astype(np.float64))
    np.testing.assert_allclose(np.array(snake(mx.array(x))), want, atol=1e-4)
    near = np.abs(x) < 1
    np.testing.assert_allclose(np.array(snake(mx.array(x)))[near], want[near], atol=3e-6)


@pytest.mark.usefixtures("cpu_only")
def test_compiled_snake_is_the_snake_of_mlx_with_its_gradients(monkeypatch):
    rng = np.random.default_rng(0)
    snake = SnakeBeta(6)
    snake.update(SnakeBeta.adopt(*(mx.array(row) for row in rng.normal(size=(2, 6)).astype(np.float32))))
    wide = mx.array(rng.normal(size=(40, 12)).astype(np.float32))

    def both():
        x = wide[:, ::2]  # not contiguous
        return snake(x), mx.grad(lambda x, snake: (snake(x) ** 2).sum(), argnums=0)(x, snake)

    assert decoder.loops_run_here()
    by_loop = both()
    monkeypatch.setattr(decoder, "loops_run_here", lambda: False)
    for got, want in zip(by_loop, both(), strict=True):
        np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-5, atol=1e-6)


def test_snake_is_traced_and_takes_sixteen_bits_as_before():
    snake, x = SnakeBeta(6), mx.random.normal((2, 5, 6))
    snake.update(SnakeBeta.adopt(mx.zeros(6), mx.zeros(6)))
    want = mx.stack([snake(row) for row in x])
    assert mx.allclose(mx.vmap(snake)(x), want, atol=1e-6)
    assert mx.allclose(mx.compile(snake)(x[0]), want[0], atol=1e-6)
    assert mx.allclose(snake(x[0].astype(mx.bfloat16)), want[0], atol=0.05)


def test_fused_snake_takes_any_length(monkeypatch):
    """Traced only: on a CPU, running it needs a C++ compiler."""
    monkeypatch.setattr(decoder, "on_gpu", lambda: True)
    snake = SnakeBeta(6)
    assert [snake(mx.zeros((rows, 6))).shape for rows in (3, 50, 7)] == [(3, 6), (50, 6), (7, 6)]


def test_rvq_encodes_to_the_nearest_entries_and_decodes_to_their_sum():
    rng = np.random.default_rng(1)
    rvq = SplitRVQ(5, 64, 8, 6, semantic=2)
    for _, part in (("semantic", rvq.semantic), ("acoustic", rvq.acoustic)):
        part.codebooks = mx.array(rng.normal(size=part.codebooks.shape).astype(np.float32))
    x = rng.normal(size=(3, 40, 8)).astype(np.float32)
    codes = np.array(rvq.encode(mx.array(x)))
    assert codes.dtype == np.int32 and codes.shape == (3, 40, 5)
    total = 0.0
    for part, ids in ((rvq.semantic, codes[..., :2]), (rvq.acoustic, codes[..., 2:])):
        rest = x.astype(np.float64) @ np.array(part.input_proj.weight, np.float64).T
        entries = 0.0
        for k, book in enumerate(np.array(part.codebooks, np.float64)):
            distances = ((rest[..., None, :] - book) ** 2).sum(-1)
            np.testing.assert_array_equal(ids[..., k], distances.argmin(-1))
            rest = rest - book[ids[..., k]]
            entries = entries + book[ids[..., k]]
        total = total + entries @ np.array(part.output_proj.weight, np.float64).T
    np.testing.assert_allclose(np.array(rvq.decode(mx.array(codes))), total, atol=1e-5)


# The whole codec against the reference --------------------------------------------------------------------------------


def test_decode_equals_the_reference_far_beyond_the_window(toy, reference):
    codes = some_codes(toy, 40)
    want = reference.decode(np.array(codes))
    assert 0.02 < want.std() < 0.5
    np.testing.assert_allclose(np.array(toy.decode(codes)), want, atol=2e-6)
    in_one = toy.decode_step(codes, toy.make_state())
    np.testing.assert_allclose(np.array(in_one), want, atol=2e-6)


@pytest.mark.parametrize("samples", [1, 5, FRAME - 1, FRAME, FRAME + 1, 30 * FRAME + 11])
def test_encode_equals_the_reference_far_beyond_the_window(toy, reference, samples):
    sound = some_sound(samples)
    want = reference.latents(np.array(sound, np.float64))
    np.testing.assert_allclose(np.array(toy.encoder.latents(sound)), want, atol=1e-4 * np.abs(want).max())
    codes, margins = reference.quantize(want)
    assert margins.min() > 1e-5  # no near-ties, so the codes must be the same
    got = np.array(toy.encode(sound))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, codes)
    assert got.shape == (-(-samples // FRAME), toy.num_codebooks)


@pytest.mark.parametrize("half", ["decoder", "encoder"])
def test_the_published_windows_bound_what_attention_sees(tmp_path, half):
    """With 72 (decoder) and 250 (encoder) positions, a change before the window's reach changes nothing after it."""
    data = toy_config(decoder=72, encoder=250)
    for part in ("decoder_config", "encoder_config"):
        data[part]["num_hidden_layers"] = 1
    write_random(tmp_path, data, 3)
    codec = load_codec(tmp_path)
    if half == "decoder":
        a = some_codes(codec, 120)
        b = mx.concatenate([(a[:1] + 1) % codec.codebook_size, a[1:]])
        run, reach, unit = codec.decode, 71 + 2, FRAME  # the convolution before attention spreads it over 2 more frames
        later = 40  # what the convolutions behind attention may smear
    else:
        a = some_sound(400 * 12)
        b = mx.concatenate([a[:12] + 1.0, a[12:]])
        run, reach, unit = lambda s: codec.encoder.encoder_transformer(codec.encoder.encoder(s[:, None])), 249, 1
        later = 40
    x, y = np.array(run(a)), np.array(run(b))
    changed = np.abs(x - y).reshape(len(x) // unit, -1).max(axis=1)
    assert changed[reach - 3 : reach].max() > 0
    np.testing.assert_array_equal(changed[reach + later :], 0)


def test_tiny_codes_vary_and_sound_is_bounded_and_not_silent(tiny_codec):
    sound = np.array(tiny_codec.decode(some_codes(tiny_codec, 8)))
    assert sound.dtype == np.float32 and sound.shape == (8 * 1920,)
    assert 0.03 < sound.std() < 0.3 and np.abs(sound).max() < 1 and abs(sound.mean()) < 0.01
    codes = np.array(tiny_codec.encode(some_sound(20 * 1920)))
    assert codes.shape == (20, 16) and all(len(set(column)) > 5 for column in codes.T)
    assert tiny_codec.sample_rate == 24000 and tiny_codec.frame_size == 1920 and tiny_codec.frame_rate == 12.5


# Streams --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 2, 5, 25])
def test_stream_equals_one_shot(toy, chunk):
    codes = some_codes(toy, 200)
    whole = np.array(toy.decode_step(codes, toy.make_state()))
    assert whole.shape == (200 * FRAME,)
    np.testing.assert_allclose(stream(toy, codes, chunk), whole, atol=1e-5)
    np.testing.assert_allclose(np.array(toy.decode(codes)), whole, atol=1e-5)


def test_stream_equals_one_shot_at_real_rates(tiny_codec):
    codes = some_codes(tiny_codec, 20)
    whole = np.array(tiny_codec.decode_step(codes, tiny_codec.make_state()))
    np.testing.assert_allclose(stream(tiny_codec, codes, 7), whole, atol=1e-5)


def test_interleaved_streams_equal_solo_ones(toy):
    a, b = some_codes(toy, 20, 1), some_codes(toy, 20, 2)
    solo = stream(toy, a, 2), stream(toy, b, 2)
    states = toy.make_state(), toy.make_state()
    both = [
        [np.array(toy.decode_step(c[i : i + 2], s)) for c, s in zip((a, b), states, strict=True)]
        for i in range(0, 20, 2)
    ]
    for index in range(2):
        np.testing.assert_array_equal(np.concatenate([pair[index] for pair in both]), solo[index])


def test_weights_are_left_alone_and_hold_no_stream(toy):
    before = {name: np.array(array) for name, array in tree_flatten(toy.parameters())}
    stream(toy, some_codes(toy, 9), 1)
    after = dict(tree_flatten(toy.parameters()))
    assert before.keys() == after.keys()
    for name, array in after.items():
        assert array.dtype == mx.float32
        np.testing.assert_array_equal(np.array(array), before[name])


def test_state_is_bounded(toy):
    state, sizes = toy.make_state(), []
    for i in range(60):
        mx.eval(toy.decode_step(some_codes(toy, 1, i), state), state.arrays)
        sizes.append(state.nbytes)
    assert sizes[0] < sizes[9] == sizes[59] < 50_000
    assert state.frames == 60


def test_state_survives_a_failed_step(toy):
    codes, state = some_codes(toy, 6), toy.make_state()
    first = stream(toy, codes[:3], 1, state)
    with pytest.raises(BreezeLabError, match=r"\[frames, 4\]"):
        toy.decode_step(codes[3:, :2], state)
    broken, toy.decoder.decoder[-1].weight = toy.decoder.decoder[-1].weight, mx.zeros((7, 1, 3))
    with pytest.raises(ValueError):
        toy.decode_step(codes[3:], state)
    toy.decoder.decoder[-1].weight = broken
    rest = stream(toy, codes[3:], 1, state)
    np.testing.assert_array_equal(np.concatenate([first, rest]), stream(toy, codes, 1))


def test_a_frame_whose_codes_are_all_zero_sounds_like_any_other(toy):
    codes = mx.zeros((3, 4), mx.int32)
    assert toy.decode(codes).shape == (3 * FRAME,)
    assert toy.decode(codes[:0]).shape == (0,)


def test_bad_codes_and_sound_are_refused(toy):
    good = some_codes(toy, 3)
    for codes in (good[0], good[:, :3], good.astype(mx.float32)):
        with pytest.raises(BreezeLabError, match="Codes must be integers"):
            toy.decode(codes)
    for value in (32, -1):
        with pytest.raises(BreezeLabError, match=r"0 \.\. 31"):
            toy.decode(mx.full((2, 4), value, mx.int32))
    for sound in (mx.zeros((0,)), mx.zeros((1, 50))):
        with pytest.raises(BreezeLabError, match="one channel"):
            toy.encode(sound)
