"""Codec folders: the published names and layouts, strictness, random checkpoints."""

import copy
import json
import re
import shutil

import mlx.core as mx
import numpy as np
import pytest
from codec_reference import toy_config
from mlx.utils import tree_flatten

from breeze_lab.codec import load_codec, make_random_codec
from breeze_lab.codec.qwen12hz import Qwen12HzCodec
from breeze_lab.codec.qwen12hz.config import parse_config
from breeze_lab.codec.qwen12hz.layout import published_shapes
from breeze_lab.codec.qwen12hz.random import random_config, write_random
from breeze_lab.errors import BreezeLabError


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codec") / "audio_tokenizer"
    write_random(folder, toy_config(), 5)
    return folder


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
        "label2id": {"LABEL_0": 0}, "model_type": "mimi", "normalize": False, "output_attentions": False,
        "problem_type": None, "return_dict": True, "tie_word_embeddings": True, "transformers_version": "4.57.3",
        "trim_right_ratio": 1.0, "upsample_groups": 512, "use_cache": False, "use_streaming": False,
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
    assert codec.decode(mx.zeros((2, 4), mx.int32)).dtype == mx.float32
    assert {array.dtype for _, array in tree_flatten(codec.parameters())} == {mx.float32}


def test_random_codec_repeats_with_its_seed(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_random_codec(tmp_path / name, "tiny", seed, num_codebooks=3, codebook_size=16)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c
    with pytest.raises(BreezeLabError, match="Unknown codec shape 'huge'"):
        make_random_codec(tmp_path / "d", "huge")
    assert not (tmp_path / "d").exists()


def test_full_shape_has_the_published_tensors():
    """496 tensors, 170.56 M parameters, 114.3 M of them in the decoder (facts of the published file)."""
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
