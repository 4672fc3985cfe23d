"""Caches against concatenation, and their bytes against the published arithmetic."""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.cache import FrameCache, KVCache, bytes_per_position, cache_bytes, positions_per_frame
from breeze_lab.config import parse_config
from breeze_lab.random_checkpoint import random_config


def steps(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [mx.array(rng.normal(size=(2, 3, n, 4)).astype(np.float32)) for n in lengths]


@pytest.mark.parametrize("lengths", [[1] * 8, [7, 1, 1], [249, 2, 1], [250, 1], [500], [300, 300, 1]])
def test_cache_returns_all_that_was_appended(lengths):
    cache, parts = KVCache(), steps(lengths)
    for count, part in enumerate(parts, 1):
        keys, values = cache.update_and_fetch(part, -part)
        want = np.concatenate([np.array(p) for p in parts[:count]], axis=2)
        np.testing.assert_array_equal(np.array(keys), want)
        np.testing.assert_array_equal(np.array(values), -want)
    assert cache.offset == sum(lengths)


def test_growing_cache_allocates_whole_steps_and_keeps_the_dtype():
    cache = KVCache()
    keys, _ = cache.update_and_fetch(*2 * [mx.ones((1, 2, 257, 8), mx.bfloat16)])
    assert keys.dtype == mx.bfloat16
    assert cache.nbytes == 2 * (1 * 2 * 500 * 8) * 2


def test_no_buffer_that_grows_is_one_that_mlx_gives_to_cudnn():
    """Its test is `capacity % 256 == 0` (mlx/backend/cuda/scaled_dot_product_attention.cpp, use_cudnn_for_decoding)."""
    for positions in range(1, 4097):
        cache = KVCache()
        cache.offset = positions
        assert cache._capacity() >= positions and cache._capacity() % 256


def test_frame_cache_holds_one_frame_and_no_more():
    cache = FrameCache(16)
    for part in steps([2] + [1] * 14):
        cache.update_and_fetch(part, part)
    assert cache.nbytes == 2 * 2 * 3 * 16 * 4 * 4
    with pytest.raises(IndexError, match="16 positions"):
        cache.update_and_fetch(*2 * steps([1]))


def test_bytes_of_the_full_shape():
    config = parse_config(random_config("full"))
    assert bytes_per_position(config.depth) == 12_288
    assert bytes_per_position(config.backbone) == 114_688
    assert cache_bytes(config.depth, 16) == 196_608
    assert cache_bytes(config.depth, 16, step=256) == 3_145_728


def test_positions_per_frame():
    assert positions_per_frame("recompute") == sum(range(2, 17)) == 135
    assert positions_per_frame("cached") == positions_per_frame("device") == 16
