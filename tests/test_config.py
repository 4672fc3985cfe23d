"""config.json is read strictly: decoys have no effect, unknown keys and contradictions are refused by name."""

import copy
import json
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from breeze_lab.codec.qwen12hz.config import parse_config as parse_qwen
from breeze_lab.codec.stft.config import parse_config as parse_stft
from breeze_lab.config import parse_config
from breeze_lab.errors import BreezeLabError
from breeze_lab.random_checkpoint import random_config


@pytest.fixture
def data():
    return random_config("tiny")


def test_decoys_of_the_top_level_have_no_effect(data):
    plain = parse_config(data)
    decoys = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"}, "rms_norm_eps": 1e-5, "head_dim": 999}
    assert parse_config(data | decoys | {"hidden_size": 7, "num_hidden_layers": 1}) == plain


def test_bidirectional_misnomer_and_empty_keys_are_allowed(data):
    data["text_encoder_config"] |= {"use_bidirectional_attention": False, "brand_new_flag": None}
    parse_config(data)


@pytest.mark.parametrize("part", ["text_encoder_config", "backbone_config", "depth_decoder_config"])
def test_an_unknown_key_is_refused_by_name(data, part):
    data[part]["rotary_twist"] = 3
    with pytest.raises(BreezeLabError, match=f"{part}.*rotary_twist"):
        parse_config(data)


def test_a_missing_size_is_named(data):
    del data["backbone_config"]["intermediate_size"]
    with pytest.raises(BreezeLabError, match="backbone_config lacks intermediate_size"):
        parse_config(data)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("backbone_config", {"num_key_value_heads": 3}, "multiple"),
        ("backbone_config", {"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling"),
        ("backbone_config", {"hidden_act": "gelu"}, "silu"),
        ("depth_decoder_config", {"num_codebooks": 8}, "disagree"),
        ("depth_decoder_config", {"attention_bias": True}, "biases"),
        ("depth_decoder_config", {"backbone_hidden_size": 128}, "tied"),
        ("text_encoder_config", {"layer_types": ["full_attention"]}, "layer_types"),
        ("text_encoder_config", {"attn_logit_softcapping": 50.0}, "softcapping"),
    ],
)
def test_what_the_code_does_not_compute_is_refused(data, part, change, message):
    data[part] |= change
    with pytest.raises(BreezeLabError, match=message):
        parse_config(data)


def test_another_model_type_is_refused():
    with pytest.raises(BreezeLabError, match="llama.*not a Breeze"):
        parse_config({"model_type": "llama"})


def test_both_spellings_of_rope_mean_the_same(data):
    old = parse_config(data)
    depth = data["depth_decoder_config"]
    depth["rope_parameters"] = {"rope_theta": depth.pop("rope_theta")} | depth.pop("rope_scaling")
    new = parse_config(data)
    assert new.depth.rope_theta == old.depth.rope_theta
    assert new.depth.rope_scaling == old.depth.rope_scaling


def test_layer_types_follow_the_pattern_where_the_file_gives_no_list(data):
    text = data["text_encoder_config"]
    del text["layer_types"]
    text |= {"num_hidden_layers": 7, "_sliding_window_pattern": 3}
    kinds = parse_config(data).text_encoder.layer_types
    assert [i for i, kind in enumerate(kinds) if kind == "full_attention"] == [2, 5]


@pytest.mark.parametrize(("part", "key"), [("backbone_config", "hidden_size"), ("depth_decoder_config", "rope_theta")])
def test_a_size_that_is_no_number_is_refused(data, part, key):
    data[part][key] = "wide"
    with pytest.raises(BreezeLabError, match=f"{part}: {key} is 'wide'"):
        parse_config(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("piece_letters", 0, "piece_letters is 0, not a whole number >= 1"),
        ("max_position_embeddings", None, "max_position_embeddings is None, not a whole number"),
        ("codec_config", "x", "codec_config is 'x', not an object"),
        ("codec_config.codebook_size", "x", "codebook_size is 'x', not a whole number"),
        ("codebook_eos_token_id", -1, "codebook_eos_token_id is -1, not a whole number >= 0"),
        ("text_frontend", 3, "text_frontend is 3, not a text"),
        ("quantization", "int8", "quantization is 'int8', not an object"),
        ("backbone_config.head_dim", 0, "backbone_config: head_dim is 0"),
        ("backbone_config.rms_norm_eps", 0, "rms_norm_eps is 0, not a number above 0"),
        ("backbone_config.rope_parameters", 3, "rope_parameters is 3, not an object"),
        ("text_encoder_config.num_hidden_layers", "x", "num_hidden_layers is 'x'"),
        ("text_encoder_config.layer_types", 3, "layer_types is 3, not a list"),
        ("text_encoder_config.rope_parameters", [1], "rope_parameters is .1., not an object"),
        ("text_encoder_config.rope_parameters.full_attention", 3, "full_attention is 3, not an object"),
        ("text_encoder_config.rope_parameters.full_attention.factor", 0, "full_attention.factor is 0, not a number"),
        ("depth_decoder_config.rope_scaling", [], "rope_scaling is .., not an object"),
        ("depth_decoder_config.rope_scaling.factor", None, "rope_scaling.factor is None, not a number"),
        ("depth_decoder_config.rope_scaling.rope_type", "yarn", "type llama3 or absent"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(data, path, value, message):
    put(data, path.split("."), value)
    with pytest.raises(BreezeLabError, match=message):
        parse_config(data)


def put(data, path, value):
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


def paths(data, above=()):
    for key, value in data.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def numbers(config):
    """Every number of a configuration, its parts included, by name."""
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from numbers(value)
        elif f.type in (int, float):
            yield f.name, value


def stored(folder):
    return json.loads((folder / "audio_tokenizer" / "config.json").read_text())


@pytest.mark.parametrize("which", ["model", "qwen codec", "stft codec"])
def test_no_value_of_the_wrong_kind_gets_through(which, tiny_folder):
    waft = Path(__file__).parent.parent / "data" / "waft"
    parse, data = {
        "model": (parse_config, random_config("tiny") | {"piece_letters": 240, "text_frontend": None}),
        "qwen codec": (parse_qwen, stored(tiny_folder)),
        "stft codec": (parse_stft, stored(waft)),
    }[which]
    parse(data, "config.json")
    for path in paths(data):
        for value in (None, 0, -1, 1.5, float("nan"), "x", [], [1], {}, {"a": 1}, True):
            changed = copy.deepcopy(data)
            put(changed, path, value)
            try:
                config = parse(changed, "config.json")
            except BreezeLabError as error:
                assert "config.json" in str(error)
                continue
            assert all(n > 0 or (n == 0 and name.endswith(("_id", "_index"))) for name, n in numbers(config)), path


def test_a_rope_scaling_that_scales_nothing_is_none(data):
    data["depth_decoder_config"]["rope_scaling"] = {"rope_type": "default"}
    assert parse_config(data).depth.rope_scaling is None
