"""The ladder: ways to complete one frame's codes once codebook 0 is drawn.

Every rung is one function with one signature and gives the same codes for the same draws: in float32 on a CPU. On a
GPU products of many rows round otherwise than those of one, so that `recompute` may come to other codes than the rest.
They differ in how often the depth stack runs over a position, and in how often the host waits for the device.
Shapes: B batch, K codebooks, C backbone channels, V ids a codebook.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import mlx.nn as nn

from .cache import FrameCache
from .host import can_walk, host
from .model import DepthDecoder
from .reads import HostReads
from .samplers import CodeDraw, guide


def next_logits(depth: DepthDecoder, codes: mx.array, hidden: mx.array) -> mx.array:
    """Recompute: logits [B, V] of the codebook after `codes`, from the whole prefix.

    Args:
        codes: int [B, n], the codes of codebooks 0 .. n - 1, n >= 1.
        hidden: [B, C], the backbone's hidden state of this frame.
    """
    inputs = mx.concatenate([hidden[:, None, :], depth.embed_codes(codes)], axis=1)
    return depth.codebooks_head(depth.model(inputs)[:, -1], codes.shape[1] - 1)


def start_frame(depth: DepthDecoder, hidden: mx.array, caches: list[FrameCache]) -> None:
    """Put position 0, the backbone's hidden state [B, C], into a frame's fresh caches."""
    depth.model(hidden[:, None, :], caches)


def step_logits(depth: DepthDecoder, code: mx.array, caches: list[FrameCache]) -> mx.array:
    """Cached: append the next codebook's code, int [B], and return the logits [B, V] of the one after it.

    Which codebook that is, the caches' offset says: one position a step.
    """
    codebook = caches[0].offset - 1
    hidden = depth.model(depth.embed_codes(code[:, None], codebook), caches)
    return depth.codebooks_head(hidden[:, -1], codebook)


def recompute(
    depth: DepthDecoder,
    first: mx.array,
    branches: Sequence[mx.array],
    draw: CodeDraw,
    cfg_scale: float,
    reads: HostReads,
) -> mx.array:
    """The depth stack runs over the growing prefix at each step, and each code is read back (mlx-audio before #966).

    Args:
        first: int [1], the code of codebook 0.
        branches: hidden states [1, C]: the conditional one, then with guidance the unconditional one.
        draw: draws a code from guided logits.
        cfg_scale: guidance scale, used with two branches.
        reads: counts host reads.

    Returns:
        int32 [K] codes.
    """
    codes = [reads.item(first)]
    for _ in range(depth.num_codebooks - 1):
        logits = [next_logits(depth, mx.array([codes]), hidden) for hidden in branches]
        codes.append(reads.item(draw(guided(logits, cfg_scale))))
    return mx.array(codes)


def cached(
    depth: DepthDecoder,
    first: mx.array,
    branches: Sequence[mx.array],
    draw: CodeDraw,
    cfg_scale: float,
    reads: HostReads,
) -> mx.array:
    """One position a step against a per-frame cache, and each code is read back (#966). Arguments as `recompute`."""
    walks = _start(depth, branches)
    codes = [reads.item(first)]
    for _ in range(depth.num_codebooks - 1):
        code = mx.array(codes[-1:])
        logits = [step_logits(depth, code, caches) for caches in walks]
        codes.append(reads.item(draw(guided(logits, cfg_scale))))
    return mx.array(codes)


def device(
    depth: DepthDecoder,
    first: mx.array,
    branches: Sequence[mx.array],
    draw: CodeDraw,
    cfg_scale: float,
    reads: HostReads,
) -> mx.array:
    """Codes stay on the device: each step is sent off while the next is built, nothing is read (#988).

    Arguments as `recompute`; `reads` is left alone. The caller reads the frame.
    """
    walks = _start(depth, branches)
    codes = [first]
    for _ in range(depth.num_codebooks - 1):
        logits = [step_logits(depth, codes[-1], caches) for caches in walks]
        codes.append(draw(guided(logits, cfg_scale)))
        mx.async_eval(codes[-1])
    return mx.concatenate([code.astype(mx.int32) for code in codes])


def _start(depth: DepthDecoder, branches: Sequence[mx.array]) -> list[list[FrameCache]]:
    walks = []
    for hidden in branches:
        walks.append(depth.make_cache())
        start_frame(depth, hidden, walks[-1])
    return walks


def guided(logits: list[mx.array], cfg_scale: float) -> mx.array:
    """float32 logits of one branch as they are, or of two mixed: the conditional one, then the unconditional one."""
    return guide(logits[0], logits[1] if len(logits) > 1 else None, cfg_scale)


METHODS: dict[str, Callable[..., mx.array]] = {"recompute": recompute, "cached": cached, "device": device, "host": host}
"""The rungs by name, slowest first (of small models on a CPU; a GPU is bound by dispatch, and has no `host`)."""


def usable(model: nn.Module) -> list[str]:
    """The rungs that a model's weights can take on the default device: `host` only float32 ones on a CPU."""
    return [name for name in METHODS if name != "host" or can_walk(model)]


def fastest(model: nn.Module) -> str:
    """The rung that `generate` takes without being told: the last usable one."""
    return usable(model)[-1]
