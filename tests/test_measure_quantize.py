"""quantize: packed bytes by hand, fewer bits drift more, the original is left alone."""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.measure import quantize, roofline, walks
from breeze_lab.measure.shapes import random_stacks, shape_config
from breeze_lab.measure.tolerance import to_float64


@pytest.fixture(scope="module")
def setting():
    config = shape_config("tiny")
    depth = random_stacks(config, mx.float32).depth_decoder
    rng = np.random.default_rng(0)
    codes = mx.array(rng.integers(0, config.codec_vocab_size, (4, 16)))
    hidden = mx.array(rng.standard_normal((4, config.backbone.hidden_size), dtype=np.float32))
    return depth, codes, hidden, to_float64(walks.cached_logits(depth, codes, hidden))


def test_bytes_of_each_format(setting):
    depth = setting[0]
    weights = sum(layer.weight.size for layer in [depth.model.layers[0].self_attn.q_proj])
    for name, bits in (("int8", 8 + 2 * 32 / 64), ("int4", 4 + 2 * 32 / 64), ("mxfp8", 8.25), ("mxfp4", 4.25)):
        packed = quantize.quantized_twin(depth, name).model.layers[0].self_attn.q_proj
        assert roofline.tree_bytes(packed) * 8 == weights * bits, name  # float32 scales and biases for affine


def test_fewer_bits_drift_more_and_none_drift_nothing(setting):
    depth, codes, hidden, reference = setting
    same = quantize.drift(reference, depth, codes, hidden)
    assert same.divergence.shape == (15,) and np.allclose(same.divergence, 0) and (same.top1 == 1).all()
    eight, four = (
        quantize.drift(reference, quantize.quantized_twin(depth, name), codes, hidden) for name in ("int8", "int4")
    )
    assert 0 < eight.divergence.mean() < four.divergence.mean() / 10
    assert eight.top1.mean() > four.top1.mean()
    np.testing.assert_array_equal(to_float64(walks.cached_logits(depth, codes, hidden)), reference)
