"""From logits to a code: mask, guidance, penalty, filters and the draw, with explicit keys.

All of it is in float32, whatever the model's dtype. Shapes: B batch, V ids.
"""

import math
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from .errors import BreezeLabError
from .kernels import shared
from .keys import KeySequence


@dataclass(frozen=True)
class Sampling:
    """How codes are drawn. The defaults are those of Breeze TTS 2.

    Args:
        temperature: 0 takes the most likely code; otherwise logits are divided by it.
        top_k: keep the k most likely codes; 0 keeps all.
        top_p: then keep the smallest set whose probability reaches top_p, the crossing code included; 1 keeps all.
        repetition_penalty: divides the logits (multiplies negative ones) of codes that codebook 0 has taken before in
            this utterance; 1 is off. Depth codebooks are never penalized.

    Raises:
        BreezeLabError: a value outside its range.
    """

    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.1

    def __post_init__(self) -> None:
        def real(value: object) -> bool:
            return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

        if real(self.temperature) and 0 < self.temperature < 1e-3:
            raise BreezeLabError(f"temperature {self.temperature} is too near to 0. Use 0 for the likeliest code.")
        if not real(self.temperature) or not 0 <= self.temperature <= 1e30:
            raise BreezeLabError(
                f"temperature {self.temperature} is not a number from 0 to 1e30. Use 0 for greedy, 0.9 usually."
            )
        if not isinstance(self.top_k, int) or isinstance(self.top_k, bool) or self.top_k < 0:
            raise BreezeLabError(f"top_k {self.top_k} is not a whole number >= 0. Use 50, or 0 to keep every code.")
        if not real(self.top_p) or not 0 < self.top_p <= 1:
            raise BreezeLabError(f"top_p {self.top_p} is not above 0 and at most 1. Use 1 to switch it off.")
        if not real(self.repetition_penalty) or self.repetition_penalty <= 0:
            raise BreezeLabError(f"repetition_penalty {self.repetition_penalty} is not above 0. Use 1 for none.")


NOT_NUMBERS = (
    "The model computed logits that are not numbers. Its weights are damaged, or its dtype overflows: download the "
    "checkpoint again, or load it with dtype='float32'."
)


def reserved_mask(vocab_size: int, codec_vocab_size: int, width: int) -> mx.array:
    """float32 [width]: -inf on the reserved ids codec_vocab_size .. vocab_size - 1, else 0.

    An end-of-speech class, at index vocab_size, stays open. Add it to logits of that width.
    """
    mask = np.zeros(width, dtype=np.float32)
    mask[codec_vocab_size:vocab_size] = -np.inf
    return mx.array(mask)


def guide(cond: mx.array, uncond: mx.array | None, scale: float) -> mx.array:
    """Classifier-free guidance, uncond + scale (cond - uncond), float32; `cond` alone where there is no `uncond`."""
    cond = cond.astype(mx.float32)
    if uncond is None:
        return cond
    uncond = uncond.astype(mx.float32)
    return uncond + scale * (cond - uncond)


def guide_on_host(logits: np.ndarray, scale: float) -> np.ndarray:
    """`guide` in NumPy: float32 [1 or 2, V], the conditional row first -> [V]."""
    cond, *uncond = logits
    return uncond[0] + np.float32(scale) * (cond - uncond[0]) if uncond else cond


def penalize(logits: mx.array, seen: mx.array, penalty: float) -> mx.array:
    """Repetition penalty on [B, V] logits where bool [V] `seen` is true (Keskar et al. 2019, CTRL)."""
    if penalty == 1.0:
        return logits
    return mx.where(seen, mx.where(logits < 0, logits * penalty, logits / penalty), logits)


def penalize_on_host(logits: np.ndarray, seen: np.ndarray, penalty: float) -> np.ndarray:
    """`penalize` in NumPy: float32 [V], bool [V]."""
    if penalty == 1.0:
        return logits
    return np.where(seen, np.where(logits < 0, logits * penalty, logits / penalty), logits)


def keep_top_k(logits: mx.array, k: int) -> mx.array:
    """-inf on all but the k largest of [B, V]; codes tied with the k-th stay. 0 or k >= V keeps all."""
    if not 0 < k < logits.shape[-1]:
        return logits
    kth = mx.topk(logits, k, axis=-1).min(axis=-1, keepdims=True)
    return mx.where(logits < kth, -mx.inf, logits)


def keep_top_p(logits: mx.array, p: float) -> mx.array:
    """-inf on all but the smallest set of [B, V] whose probability reaches p, the code that crosses it included."""
    if p >= 1:
        return logits
    order = mx.argsort(-logits, axis=-1)
    probabilities = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
    before = mx.cumsum(probabilities, axis=-1) - probabilities
    keep = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, before < p, axis=-1)
    return mx.where(keep, logits, -mx.inf)


def draw(logits: mx.array, keys: KeySequence, sampling: Sampling) -> mx.array:
    """Draw one code a row: float32 [B, V] logits, reserved ids masked -> int [B], on the device.

    Order: temperature, top-k, top-p (Hugging Face generation). Takes one key, or none at temperature 0.
    """
    if sampling.temperature == 0:
        return mx.argmax(logits, axis=-1)
    logits = logits * (1 / sampling.temperature)
    logits = keep_top_p(keep_top_k(logits, sampling.top_k), sampling.top_p)
    return mx.random.categorical(logits, key=keys.next())


def draw_on_host(logits: np.ndarray, keys: KeySequence, sampling: Sampling) -> int:
    """`draw` of one row float32 [V] in NumPy: the same code, and the same key taken.

    MLX (0.32) finds a categorical draw by one uniform number in the cumulated probabilities.
    """
    if not sampling.temperature:
        return int(logits.argmax())
    logits = logits * np.float32(1 / sampling.temperature)
    if 0 < sampling.top_k < len(logits):
        logits[logits < np.partition(logits, -sampling.top_k)[-sampling.top_k]] = -np.inf
    weights = np.exp(logits - logits.max())
    if sampling.top_p < 1:
        order = np.argsort(-logits, kind="stable")
        shares = weights[order] / weights.sum()
        weights[order[shares.cumsum() - shares >= sampling.top_p]] = 0
    cumulated = weights.cumsum()
    wanted = np.clip(keys.uniform() * weights.sum(), np.float32(1e-38), cumulated[-1])
    return int(cumulated.searchsorted(wanted))


class CodeDraw:
    """Draws the depth codebooks' codes of one utterance.

    Args:
        keys: each draw takes the next one.
        sampling: temperature and filters.
        mask: float32 [V], -inf on reserved ids; see `reserved_mask`.

    `broken`: bool, on the device; whether any logit so far was NaN.
    """

    def __init__(self, keys: KeySequence, sampling: Sampling, mask: mx.array):
        self.keys, self.sampling, self.mask = keys, sampling, mask
        self.broken = mx.array(False)

    def __call__(self, logits: mx.array) -> mx.array:
        """float32 [1, V] guided logits -> int [1] code, still on the device."""
        self.broken = self.broken | mx.isnan(logits[0, 0])
        return draw(logits + self.mask, self.keys, self.sampling)

    def on_host(self, logits: np.ndarray) -> int:
        """The same code from float32 [V] in NumPy.

        Raises:
            BreezeLabError: a logit is NaN.
        """
        if np.isnan(logits[0]):
            raise BreezeLabError(NOT_NUMBERS)
        return draw_on_host(logits + shared(self.mask), self.keys, self.sampling)
