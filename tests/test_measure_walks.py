"""walks: positions against the sum by hand, rungs against each other, copies leave the original alone."""

import mlx.core as mx
import mlx.nn
import mlx.utils
import numpy as np
import pytest

from breeze_lab.cache import positions_per_frame
from breeze_lab.config import DepthConfig
from breeze_lab.frames import usable
from breeze_lab.measure import walks
from breeze_lab.model.depth import DepthDecoder

K, V = 6, 19
CONFIG = DepthConfig(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    num_codebooks=K, vocab_size=V, backbone_hidden_size=24, audio_embed_size=24,
)  # fmt: skip


@pytest.fixture(scope="module")
def depth():
    module = DepthDecoder(CONFIG)
    rng = np.random.default_rng(0)
    module.update(
        mlx.utils.tree_map(
            lambda x: mx.array(0.3 * rng.standard_normal(x.shape, dtype=np.float32)), module.parameters()
        )
    )
    mx.eval(module.parameters())
    return module


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    return mx.array(rng.integers(0, V, (3, K))), mx.array(rng.standard_normal((3, 24), dtype=np.float32))


def test_positions_of_both_walks(depth, frame):
    with walks.watch_positions(depth) as seen:
        walks.recompute_logits(depth, *frame)
    assert seen == [2, 3, 4, 5, 6] and sum(seen) == positions_per_frame("recompute", K)
    with walks.watch_positions(depth) as seen:
        walks.cached_logits(depth, *frame)
    assert seen == [1] * K
    walks.cached_logits(depth, *frame)
    assert len(seen) == K, "put back"


def test_both_walks_give_the_same_logits(depth, frame):
    a, b = walks.recompute_logits(depth, *frame), walks.cached_logits(depth, *frame)
    assert a.shape == (3, K - 1, V)
    np.testing.assert_allclose(np.array(a), np.array(b), atol=1e-5)
    assert float(mx.abs(a).max()) > 0.1


@pytest.mark.parametrize("guided", [False, True])
def test_one_frame_by_every_rung(depth, guided):
    rng = np.random.default_rng(2)
    branches = [mx.array(rng.standard_normal((1, 24), dtype=np.float32)) for _ in range(1 + guided)]
    work = walks.FrameWork(depth, branches, V, V - 3, 2.0 if guided else 1.0)
    frames = {method: work(method) for method in usable(depth)}
    assert len({tuple(codes) for codes in frames.values()}) == 1
    assert len(frames["cached"]) == K and max(frames["cached"]) < V - 3
    other = walks.FrameWork(depth, branches, V, V - 3, 2.0 if guided else 1.0, seed=1)
    assert other("cached") != frames["cached"]


def test_copies_in_another_dtype_leave_the_original(depth, frame):
    twin = walks.as_dtype(depth, mx.bfloat16)
    assert twin.model.norm.weight.dtype == mx.bfloat16 and depth.model.norm.weight.dtype == mx.float32
    near = walks.cached_logits(twin, frame[0], frame[1].astype(mx.bfloat16)).astype(mx.float32)
    assert 0 < float(mx.abs(near - walks.cached_logits(depth, *frame)).max()) < 0.3


def test_step_times_has_a_row_a_round_and_a_column_a_step(depth, frame):
    times = walks.step_times(depth, frame[0][:1], frame[1][:1], repeat=2)
    assert set(times) == {"recompute", "cached"}
    assert all(t.shape == (2, K - 1) and (t > 0).all() for t in times.values())


def test_dense_copies_of_packed_layers():
    packed = mlx.nn.Sequential(mlx.nn.Linear(64, 32, bias=False), mlx.nn.Linear(32, 8, bias=False))
    mlx.nn.quantize(packed, group_size=32, bits=8)
    x = mx.array(np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32))
    dense = walks.as_dtype(packed)
    assert all(type(layer) is mlx.nn.Linear for layer in dense.layers)
    np.testing.assert_allclose(np.array(dense(x)), np.array(packed(x)), atol=1e-5)
    assert all(isinstance(layer, mlx.nn.QuantizedLinear) for layer in packed.layers)
