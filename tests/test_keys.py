"""Keys and numbers made by the host are MLX's own, and Threefry is the published one."""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.errors import BreezeLabError
from breeze_lab.keys import KeySequence, threefry


def test_keys_are_those_of_the_global_state():
    x = mx.zeros((1, 1000))
    mx.random.seed(123)
    want = [mx.random.categorical(x).item() for _ in range(20)]
    keys = KeySequence(123)
    assert [mx.random.categorical(x, key=keys.next()).item() for _ in range(20)] == want


def test_state_returns_to_an_earlier_point():
    keys = KeySequence(5)
    keys.next()
    state = keys.state
    first = keys.next().tolist()
    keys.state = state
    assert keys.next().tolist() == first


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**40 + 5])
def test_a_long_walk_gives_the_keys_and_numbers_of_mlx(seed):
    keys, state = KeySequence(seed), mx.random.key(seed)
    for n in range(300):
        state, key = mx.random.split(state)
        if n % 3:
            assert keys.uniform() == np.array(mx.random.uniform(key=key))
        else:
            assert keys.next().tolist() == key.tolist()
        assert list(keys.state) == state.tolist()


@pytest.mark.parametrize("seed", [-1, 2**64, 2**70])
def test_seeds_beyond_64_bits_are_refused(seed):
    with pytest.raises(BreezeLabError, match="64 bits"):
        KeySequence(seed)


@pytest.mark.parametrize("seed", [np.int32(5), np.uint64(2**63), np.uint32(4_000_000_000), True])
def test_whole_numbers_of_any_kind_are_seeds(seed):
    assert KeySequence(seed).next().tolist() == KeySequence(int(seed)).next().tolist()


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_answers_that_its_authors_publish(counter, key, want):
    """Random123's known answers for threefry2x32, 20 rounds."""
    assert threefry(key, counter) == want
