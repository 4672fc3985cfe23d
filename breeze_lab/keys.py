"""Random keys and numbers, the same as MLX's, made by the host: it waits for nothing, and any thread may use them."""

from operator import index

import mlx.core as mx
import numpy as np

from .errors import BreezeLabError

_WORD = 0xFFFFFFFF
_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)


def check_seed(seed: object, name: str = "seed") -> None:
    """Refuse what is no seed; errors speak of it as `name`.

    Raises:
        BreezeLabError: not a whole number from 0 to 2^64 - 1.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise BreezeLabError(f"{name} {seed!r} is not a whole number from 0 to 2**64 - 1 (64 bits).")


class KeySequence:
    """Random keys split one after another, exactly as MLX's global state splits its own.

    `KeySequence(7).next()` gives the keys that successive draws would use after `mx.random.seed(7)`.
    `state`, two words of 32 bits, may be read and set, to return to an earlier point.

    Raises:
        BreezeLabError: see `check_seed`.
    """

    def __init__(self, seed: int):
        seed = int(index(seed))
        check_seed(seed)
        self.state = seed >> 32, seed & _WORD

    def next(self) -> mx.array:
        """The next key, uint32 [2]."""
        return mx.array(self._split(), dtype=mx.uint32)

    def uniform(self) -> np.float32:
        """`mx.random.uniform(key=next key)`."""
        bits, _ = threefry(self._split(), (0, 0))
        return min(np.float32(bits) / np.float32(_WORD), _BELOW_ONE)

    def _split(self) -> tuple[int, int]:
        (state, key), (rest_of_state, rest_of_key) = (threefry(self.state, (n, n + 2)) for n in range(2))
        self.state = state, rest_of_state
        return key, rest_of_key


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), on words of 32
    bits."""
    keys = *key, key[0] ^ key[1] ^ 0x1BD11BDA
    x, y = (counter[0] + keys[0]) & _WORD, (counter[1] + keys[1]) & _WORD
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = (x + y) & _WORD
            y = ((y << turn) & _WORD | y >> (32 - turn)) ^ x
        x = (x + keys[(group + 1) % 3]) & _WORD
        y = (y + keys[(group + 2) % 3] + group + 1) & _WORD
    return x, y
