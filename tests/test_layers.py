"""Layers against NumPy in float64."""

import math

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.gelu import gelu, gelu_tanh
from breeze_lab.layers import UNPACKED, Linear, _blocks


@pytest.mark.usefixtures("cpu_only")  # and on an NVIDIA GPU, MLX 0.32.4 crashes in a product of no rows
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 384), (384,), (2, 384), (2, 4, 384), (9, 384), (0, 384)])
@pytest.mark.parametrize("outputs", [96, 1152, 2050, 2053])
def test_a_few_rows_by_blocks_are_the_product(shape, outputs, bias):
    rng = np.random.default_rng(0)
    layer = Linear(384, outputs, bias=bias)
    x = rng.normal(size=shape)
    got = np.array(layer(mx.array(x.astype(np.float32))))
    want = x @ np.array(layer.weight, dtype=np.float64).T + (np.array(layer.bias) if bias else 0)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_blocks_stay_within_what_openblas_does_not_pack():
    assert [_blocks(1, 1024, 384), _blocks(1, 1152, 384), _blocks(1, 3072, 1024)] == [1, 2, 4]
    for rows, outputs, inputs in ((1, 1152, 384), (2, 3072, 320), (8, 1152, 384)):
        size = outputs // _blocks(rows, outputs, inputs)
        assert size <= UNPACKED[0] and rows * size * inputs <= UNPACKED[1]


def phi(x):
    return (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def phi_by_tanh(x):
    return (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


@pytest.mark.parametrize("ours, of", [(gelu, phi), (gelu_tanh, phi_by_tanh)])
def test_gelu_is_the_one_that_its_name_says(ours, of):
    x = np.linspace(-40, 40, 400_001).astype(np.float32)
    exact = x.astype(np.float64)
    off = np.abs(np.array(ours(mx.array(x))) - exact * of(exact)) / np.maximum(1, np.abs(x))
    assert off.max() < 6e-7
