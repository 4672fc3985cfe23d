"""roofline: against the counts and byte budgets published for the real checkpoint ."""

from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest

from breeze_lab import cache
from breeze_lab.measure import roofline

BACKBONE = SimpleNamespace(
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
)
DEPTH = SimpleNamespace(
    hidden_size=1024, intermediate_size=8192, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=2,
    head_dim=128, vocab_size=2051, backbone_hidden_size=2048,
)  # fmt: skip
FULL = SimpleNamespace(backbone=BACKBONE, depth=DEPTH, num_codebooks=16, vocab_size=2051)


def test_parameters_of_the_full_stacks():
    assert roofline.stack_parameters(BACKBONE) / 1e6 == pytest.approx(1409.4, abs=0.2)
    assert roofline.stack_parameters(DEPTH) / 1e6 == pytest.approx(333.5, abs=0.1)


@pytest.mark.parametrize(
    "name, backbone, depth, step_mb, backbone_gb, total_gb, real_time",
    [
        ("bf16", "bfloat16", "bfloat16", 675, 2.83, 13.0, 162),
        ("mxfp8", "mxfp8", "mxfp8", 350, 1.46, 6.7, 84),
        ("int8 depth", "bfloat16", "int8", 361, 2.83, 8.2, 103),
        ("mxfp4", "mxfp4", "mxfp4", 183, 0.75, 3.5, 44),
    ],
)
def test_published_byte_budget(name, backbone, depth, step_mb, backbone_gb, total_gb, real_time):
    got = roofline.frame_bytes(FULL, backbone, depth)
    assert got.depth_step / 1e6 == pytest.approx(step_mb, abs=1)
    assert got.backbone / 1e9 == pytest.approx(backbone_gb, abs=0.01)
    assert got.total / 1e9 == pytest.approx(total_gb, abs=0.06)
    assert got.real_time_gb_s == pytest.approx(real_time, abs=1)
    assert 0.64 < got.depth_share < 0.79 and got.steps == 15


def test_cache_bytes_are_a_thousandth_of_the_weights():
    """So leaving the cache out of the floor is fair: 16 depth positions against one depth pass."""
    assert cache.bytes_per_position(DEPTH) == 12_288 and cache.bytes_per_position(BACKBONE) == 114_688
    assert cache.cache_bytes(DEPTH, 16) == 196_608 and cache.cache_bytes(DEPTH, 16, step=256) == 3_145_728
    assert cache.cache_bytes(DEPTH, 16) < 1e-3 * roofline.frame_bytes(FULL).depth_step


def test_bytes_of_a_loaded_model_equal_those_of_its_configuration():
    from breeze_lab.config import BackboneConfig, DepthConfig
    from breeze_lab.model.backbone import Backbone
    from breeze_lab.model.depth import DepthDecoder

    stack = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    stack |= {"num_key_value_heads": 1, "head_dim": 16}
    depth = DepthConfig(**stack, num_codebooks=4, vocab_size=11, backbone_hidden_size=32, audio_embed_size=32)
    config = SimpleNamespace(backbone=BackboneConfig(**stack), depth=depth, num_codebooks=4, vocab_size=11)
    lm = SimpleNamespace(
        backbone_model=Backbone(config.backbone),
        depth_decoder=DepthDecoder(depth),
        lm_head=nn.Linear(32, 12, bias=False),
    )
    got = roofline.model_frame_bytes(lm)
    expected = roofline.frame_bytes(config, "float32", "float32", "float32")
    norms = 2 * 2 * 32 * 4  # two a layer
    head_norms = 2 * 2 * 16 * 4  # Qwen3 norms queries and keys
    assert got.backbone == expected.backbone + norms + head_norms and got.depth_step == expected.depth_step + norms
    assert got.steps == 3


def test_floor():
    assert roofline.floor_ms(10.13e9, 3440) == pytest.approx(2.94, abs=0.01)
    assert roofline.floor_ms(2.82e9, 3440) == pytest.approx(0.82, abs=0.01)


def test_tree_bytes_counts_packed_weights_scales_and_nested_lists():
    linear = nn.Linear(64, 32, bias=False)
    assert roofline.tree_bytes(linear) == 64 * 32 * 4
    packed = nn.QuantizedLinear.from_linear(linear, group_size=64, bits=8)
    assert roofline.tree_bytes(packed) == 64 * 32 + 32 * 2 * 4  # a float32 scale and bias for each 64
    assert roofline.tree_bytes([linear, {"a": [mx.zeros(3)]}]) == 64 * 32 * 4 + 12


def test_gemv_work_reads_what_it_says():
    work, nbytes = roofline.gemv_work(64, 1)
    assert len(work()) * 4 * 64 * 64 * 4 == nbytes and abs(nbytes - 1e6) < 0.1e6


def test_bandwidths_are_positive_and_sane():
    assert 0.1 < roofline.add_bandwidth(8, repeat=2) < 10_000
    assert 0.1 < roofline.gemv_bandwidth(256, 4, repeat=2) < 50_000
