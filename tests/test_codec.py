"""The Qwen3-TTS 12 Hz codec against a naive float64 reference, and its streams against themselves."""

import copy
import json
import re
import shutil

import mlx.core as mx
import numpy as np
import pytest
from codec_reference import Reference
from mlx.utils import tree_flatten

from breeze_lab.codec import Codec, conv, load_codec, make_random_codec
from breeze_lab.codec.conv import CausalConv, DepthwiseConv, StridedConv, TransposedConv
from breeze_lab.codec.qwen12hz.config import parse_config
from breeze_lab.codec.qwen12hz.decoder import SnakeBeta
from breeze_lab.codec.qwen12hz.layout import published_shapes
from breeze_lab.codec.qwen12hz.random import random_config, write_random
from breeze_lab.codec.rvq import SplitRVQ
from breeze_lab.errors import BreezeLabError

FRAME = 24  # samples a frame of the toy codec


def toy_config(**windows):
    """Few channels and 24 samples a frame, so that a naive reference is quick; windows of 5 and 7 positions."""
    data = random_config("tiny", num_codebooks=4, codebook_size=32)
    data |= {"decode_upsample_rate": FRAME, "encode_downsample_rate": FRAME}
    data["decoder_config"] |= {
        "latent_dim": 12, "codebook_dim": 16, "hidden_size": 16, "head_dim": 4, "intermediate_size": 24,
        "num_attention_heads": 4, "num_key_value_heads": 4, "decoder_dim": 16, "upsampling_ratios": [2, 2],
        "upsample_rates": [3, 2], "sliding_window": windows.get("decoder", 5),
    }  # fmt: skip
    data["encoder_config"] |= {
        "num_filters": 4, "upsampling_ratios": [3, 2, 2], "hidden_size": 16, "head_dim": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 24, "num_residual_layers": 2, "codebook_dim": 8,
        "vector_quantization_hidden_dimension": 8, "sliding_window": windows.get("encoder", 7), "hidden_act": "gelu",
    }  # fmt: skip
    return data


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


def test_full_shape_has_the_published_tensors():
    """496 tensors, 170.56 M parameters, 114.3 M of them in the decoder (facts of the published file)."""
    from breeze_lab.codec.qwen12hz import Qwen12HzCodec

    config = parse_config(random_config("full"), "config.json")
    shapes = published_shapes(Qwen12HzCodec(config), config)
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    assert len(shapes) == 496
    assert round(sum(sizes.values()) / 1e6, 2) == 170.56
    assert round(sum(size for name, size in sizes.items() if name.startswith("decoder.")) / 1e6, 1) == 114.3
    published = {  # from public listings of the file
        "decoder.decoder.4.block.1.conv.weight": (192, 96, 6),
        "decoder.decoder.6.conv.weight": (1, 96, 7),
        "decoder.upsample.1.1.dwconv.conv.weight": (1024, 1, 7),
        "decoder.quantizer.rvq_rest.vq.layers.14._codebook.embedding_sum": (2048, 256),
        "decoder.pre_transformer.layers.7.self_attn_layer_scale.scale": (512,),
        "encoder.encoder.layers.10.block.3.conv.weight": (512, 256, 1),
        "encoder.encoder.layers.12.conv.weight": (1024, 512, 16),
        "encoder.encoder.layers.14.conv.weight": (512, 1024, 3),
        "encoder.downsample.conv.weight": (512, 512, 4),
        "encoder.encoder_transformer.layers.0.mlp.fc1.weight": (2048, 512),
        "encoder.quantizer.acoustic_residual_vector_quantizer.layers.30.codebook.initialized": (1,),
    }
    assert {name: shapes[name] for name in published} == published


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


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copy_of_toy(toy_folder, tmp_path):
    return shutil.copytree(toy_folder, tmp_path / "audio_tokenizer")


def edit(folder, change):
    path = folder / "model.safetensors"
    tensors = {name: mx.array(array) for name, array in mx.load(str(path)).items()}
    change(tensors)
    mx.eval(list(tensors.values()))
    path.unlink()
    mx.save_safetensors(str(path), tensors)


ENCODER_BOOK = "encoder.quantizer.acoustic_residual_vector_quantizer.layers.6.codebook.embed_sum"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop("decoder.decoder.1.block.2.act1.beta"), "missing decoder.decoder.1.block.2.act1.beta"),
        (lambda t: t.pop(ENCODER_BOOK), f"missing {ENCODER_BOOK}"),
        (
            lambda t: t.update({"decoder.decoder.9.conv.weight": mx.zeros(1)}),
            "unexpected decoder.decoder.9.conv.weight",
        ),
        (
            lambda t: t.update({"decoder.pre_conv.conv.weight": mx.zeros((12, 3, 16))}),
            "wrong shape: decoder.pre_conv.conv.weight is [12, 3, 16], not [12, 16, 3]",
        ),
    ],
)
def test_faulty_tensors_are_named(copy_of_toy, change, message):
    edit(copy_of_toy, change)
    with pytest.raises(BreezeLabError, match=re.escape(message)):
        load_codec(copy_of_toy)


def test_truncated_file_is_refused(copy_of_toy):
    path = copy_of_toy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BreezeLabError, match="model.safetensors is truncated"):
        load_codec(copy_of_toy)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["decoder_config"].update(dilations=[1, 2]), "decoder_config has unknown keys: dilations"),
        (lambda d: d["encoder_config"].pop("num_filters"), "encoder_config lacks num_filters"),
        (lambda d: d.pop("encoder_config"), "lacks encoder_config"),
        (lambda d: d.update(surprise=1), "unknown keys: surprise"),
        (lambda d: d.update(decode_upsample_rate=1920), "do not multiply"),
        (lambda d: d.update(model_type="encodec"), "model_type 'encodec'"),
        (lambda d: d.update(encoder_valid_num_quantizers=3), "do not fit together"),
        (lambda d: d["encoder_config"].update(use_causal_conv=False), "not part of this codec"),
        (lambda d: d["encoder_config"].update(hidden_act="relu"), "activation"),
    ],
)
def test_config_is_read_strictly(copy_of_toy, change, message):
    data = copy.deepcopy(toy_config())
    change(data)
    (copy_of_toy / "config.json").write_text(json.dumps(data))
    with pytest.raises(BreezeLabError, match=message):
        load_codec(copy_of_toy)


def test_published_config_loads_with_its_decoys():
    """Keys that the published file has and nothing reads, as its configuration classes write them."""
    data = random_config("full")
    data["encoder_config"] |= {
        "_frame_rate": None, "_name_or_path": "", "architectures": None, "chunk_size_feed_forward": 0,
        "dtype": "float32", "id2label": {"0": "LABEL_0"}, "initializer_range": 0.02, "is_encoder_decoder": False,
        "label2id": {"LABEL_0": 0}, "model_type": "mimi", "normalize": False, "output_attentions": False, "problem_type": None,
        "return_dict": True, "tie_word_embeddings": True, "transformers_version": "4.57.3", "trim_right_ratio": 1.0,
        "upsample_groups": 512, "use_cache": False, "use_streaming": False,
    }  # fmt: skip
    data |= {"transformers_version": "4.57.3", "dtype": "float32"}
    config = parse_config(data, "config.json")
    assert config.num_codebooks == 16 and config.encoder.num_quantizers == 32 and config.downsample == 2


def test_both_spellings_of_rope_are_read():
    data = random_config("full")
    del data["encoder_config"]["rope_theta"]
    data["encoder_config"]["rope_parameters"] = {"rope_theta": 500.0, "rope_type": "default"}
    assert parse_config(data, "config.json").encoder.rope_theta == 500.0
    data["encoder_config"]["rope_parameters"]["rope_type"] = "yarn"
    with pytest.raises(BreezeLabError, match="encoder_config scales its rope"):
        parse_config(data, "config.json")


def test_bf16_file_is_computed_in_float32(copy_of_toy):
    edit(copy_of_toy, lambda tensors: tensors.update({k: v.astype(mx.bfloat16) for k, v in tensors.items()}))
    codec = load_codec(copy_of_toy)
    assert codec.decode(some_codes(codec, 2)).dtype == mx.float32
    assert {array.dtype for _, array in tree_flatten(codec.parameters())} == {mx.float32}


def test_random_codec_repeats_with_its_seed(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_random_codec(tmp_path / name, "tiny", seed, num_codebooks=3, codebook_size=16)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c
    with pytest.raises(BreezeLabError, match="Unknown codec shape 'huge'"):
        make_random_codec(tmp_path / "d", "huge")
    assert not (tmp_path / "d").exists()
