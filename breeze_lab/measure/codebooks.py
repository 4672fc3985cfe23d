"""What each codebook adds to the sound: decode with the first few only, and compare spectra."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from ..codec.rvq import SplitRVQ


@contextmanager
def first_codebooks(codec: Any, count: int) -> Iterator[None]:
    """Inside, the codec decodes as if only the first `count` codebooks had been sent: later entries are zero.

    It changes the codec's weights for the length of the block; don't decode elsewhere meanwhile.
    """
    kept = [(part, part.codebooks) for rvq in _quantizers(codec) for part in (rvq.semantic, rvq.acoustic)]
    for rvq in _quantizers(codec):
        for part, first in ((rvq.semantic, 0), (rvq.acoustic, rvq.split)):
            levels = first + mx.arange(part.codebooks.shape[0])
            part.codebooks = mx.where((levels < count)[:, None, None], part.codebooks, 0)
    try:
        yield
    finally:
        for part, codebooks in kept:
            part.codebooks = codebooks


def _quantizers(codec: Any) -> list[SplitRVQ]:
    return [module for module in codec.modules() if isinstance(module, SplitRVQ)]


def decode_first(codec: Any, codes: np.ndarray, count: int) -> np.ndarray:
    """int [F, K] codes -> float32 [N] samples from the first `count` codebooks."""
    with first_codebooks(codec, count):
        return np.array(codec.decode(mx.array(codes)))


def decode_in_chunks(codec: Any, codes: np.ndarray, frames: int, keep_state: bool = True) -> np.ndarray:
    """Decode `frames` at a time, as a stream does: float32 [N]. Without the state each chunk starts from nothing."""
    state = codec.make_state()
    parts = []
    for start in range(0, len(codes), frames):
        if not keep_state:
            state = codec.make_state()
        parts.append(np.array(codec.decode_step(mx.array(codes[start : start + frames]), state)))
    return np.concatenate(parts)


def spectral_distance(a: np.ndarray, b: np.ndarray, size: int = 512, hop: int = 240) -> float:
    """Mean absolute difference of two sounds' spectra in dB, over points within 60 dB of b's loudest. Equal length."""
    window = np.hanning(size)
    starts = np.arange(0, max(1, len(b) - size), hop)
    one, two = (
        20 * np.log10(np.abs(np.fft.rfft(np.pad(x, (0, size))[starts[:, None] + np.arange(size)] * window)) + 1e-6)
        for x in (a, b)
    )
    heard = two > two.max() - 60
    return float(np.abs(np.maximum(one, two.max() - 60) - two)[heard].mean())
