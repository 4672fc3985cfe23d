"""Keys against MLX's global state, filters against NumPy in float64, arguments refused with a cure."""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.errors import BreezeLabError
from breeze_lab.keys import KeySequence
from breeze_lab.samplers import (
    Sampling,
    draw,
    draw_on_host,
    guide,
    keep_top_k,
    keep_top_p,
    penalize,
    reserved_mask,
)


def logits(rows=3, ids=40, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, ids)).astype(np.float32) * 2


@pytest.mark.parametrize("k", [1, 5, 39])
def test_top_k_keeps_the_k_largest(k):
    x = logits()
    kept = np.isfinite(np.array(keep_top_k(mx.array(x), k)))
    for row, mask in zip(x, kept, strict=True):
        assert set(np.flatnonzero(mask)) == set(np.argsort(-row)[:k])


@pytest.mark.parametrize("k", [0, 40, 100])
def test_top_k_off_or_too_large_keeps_all(k):
    x = mx.array(logits())
    assert np.isfinite(np.array(keep_top_k(x, k))).all()


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.9, 0.999])
def test_top_p_keeps_the_smallest_set_with_the_crossing_code(p):
    x = logits()
    kept = np.isfinite(np.array(keep_top_p(mx.array(x), p)))
    for row, mask in zip(x.astype(np.float64), kept, strict=True):
        order = np.argsort(-row)
        probabilities = np.exp(row[order]) / np.exp(row).sum()
        size = int(np.searchsorted(np.cumsum(probabilities), p)) + 1
        assert set(np.flatnonzero(mask)) == set(order[:size])


def test_penalty_divides_positive_and_multiplies_negative_logits_of_seen_codes():
    x = mx.array([[2.0, -2.0, 2.0, -2.0]])
    seen = mx.array([True, True, False, False])
    np.testing.assert_allclose(np.array(penalize(x, seen, 1.25)), [[1.6, -2.5, 2.0, -2.0]], rtol=1e-6)


def test_guidance_is_float32_whatever_comes_in():
    cond, uncond = (mx.array(logits(seed=s)).astype(mx.bfloat16) for s in (1, 2))
    mixed = guide(cond, uncond, 4.0)
    c, u = (np.array(x.astype(mx.float32)).astype(np.float64) for x in (cond, uncond))
    assert mixed.dtype == guide(cond, None, 1.0).dtype == mx.float32
    np.testing.assert_allclose(np.array(mixed), u + 4 * (c - u), rtol=1e-6, atol=1e-5)


def test_reserved_ids_are_never_drawn_and_the_end_class_may_be():
    mask = reserved_mask(35, 32, 36)
    assert np.flatnonzero(np.isinf(np.array(mask))).tolist() == [32, 33, 34]
    x = mx.zeros((2000, 36)) + mask
    codes = np.array(draw(x, KeySequence(0), Sampling(temperature=1.0, top_k=0)))
    assert set(codes) == {*range(32), 35}


def test_draws_follow_the_distribution():
    row = np.array([[2.0, 1.0, 0.0, -1.0]])
    codes = np.array(draw(mx.array(np.repeat(row, 40_000, 0)), KeySequence(1), Sampling(0.5, 3)))
    want = np.exp(row[0, :3] / 0.5) / np.exp(row[0, :3] / 0.5).sum()
    np.testing.assert_allclose(np.bincount(codes, minlength=4)[:3] / 40_000, want, atol=0.01)
    assert codes.max() == 2


def test_greedy_takes_no_key():
    keys = KeySequence(0)
    before = keys.state
    x = logits()
    assert np.array(draw(mx.array(x), keys, Sampling(temperature=0))).tolist() == x.argmax(-1).tolist()
    assert draw_on_host(x[0], keys, Sampling(temperature=0)) == x[0].argmax()
    assert keys.state == before


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": 1e50},
        {"top_k": -1},
        {"top_k": 2.5},
        {"top_p": 0},
        {"top_p": 1.5},
        {"repetition_penalty": 0},
        {"temperature": "hot"},
    ],
)
def test_values_out_of_range_are_refused(bad):
    with pytest.raises(BreezeLabError, match=next(iter(bad))):
        Sampling(**bad)


def test_a_uniform_number_of_zero_draws_no_masked_code_on_the_host():
    class Zero(KeySequence):
        def uniform(self):
            return np.float32(0)

    logits = np.array([-np.inf, -np.inf, 0, 0], np.float32)
    assert draw_on_host(logits, Zero(0), Sampling(temperature=1.0, top_k=0)) == 2
