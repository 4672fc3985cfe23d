"""config.json is read strictly: decoys have no effect, unknown keys and contradictions are refused by name."""

import pytest

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
