"""Frames from a prompt, without MLX.

Shapes: B branches (the conditional one, with guidance then the unconditional one), C channels, K codebooks, V ids.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from ..blas import one_thread
from ..errors import BreezeLabError
from ..kernels import loops, loops_run_here, shared
from ..model import Breeze, DepthDecoder
from ..reads import HostReads
from ..samplers import NOT_NUMBERS, CodeDraw, draw_on_host, guide_on_host, penalize_on_host
from .stack import HostCache, HostStack, kept


def host(
    depth: DepthDecoder,
    first: mx.array,
    branches: Sequence[mx.array],
    draw: CodeDraw,
    cfg_scale: float,
    reads: HostReads,
) -> mx.array:
    """One position a step in compiled loops, both branches at once. Arguments as `frames.recompute`.

    Raises:
        BreezeLabError: weights that are not dense float32, a default device that is not the CPU, or no Numba.
    """
    walk = kept(depth, HostDepth)
    hidden = np.concatenate([reads.array(branch) for branch in branches])
    return mx.array(walk(reads.item(first), hidden, draw.on_host, cfg_scale))


class HostFrames:
    """Takes in a prompt, then makes one frame after another, without MLX and without waiting."""

    def __init__(self, lm: Breeze, prompts: Sequence[mx.array], draw: CodeDraw, first_mask: mx.array, cfg_scale: float):
        """
        Args:
            prompts: embeddings [1, S, C] of each branch.
            draw: draws the depth codebooks' codes.
            first_mask: float32 [V + 1], for codebook 0; see `samplers.reserved_mask`.
        """
        self.backbone, self.depth = HostBackbone(lm, prompts), kept(lm.depth_decoder, HostDepth)
        self.head, self.hidden = kept(lm.lm_head, _matrix), self.backbone.hidden
        self.draw, self.first_mask, self.cfg_scale = draw, shared(first_mask), cfg_scale
        self.seen, self.eos = np.zeros(len(self.first_mask), np.bool_), len(self.first_mask) - 1

    @np.errstate(over="ignore", invalid="ignore")
    def start(self, last: bool) -> tuple[list[int], tuple[int, int]]:
        """Make one frame: its K codes, and the keys after codebook 0.

        Raises:
            BreezeLabError: a logit was NaN.
        """
        logits = guide_on_host(loops().product(self.head, 0, self.hidden), self.cfg_scale)
        if np.isnan(logits).any():
            raise BreezeLabError(NOT_NUMBERS)
        logits = penalize_on_host(logits, self.seen, self.draw.sampling.repetition_penalty)
        first = draw_on_host(logits + self.first_mask, self.draw.keys, self.draw.sampling)
        self.seen[first] = True
        state = self.draw.keys.state
        if first == self.eos:
            return [first] * self.depth.codebooks, state
        codes = self.depth(first, self.hidden, self.draw.on_host, self.cfg_scale)
        if not last:
            self.hidden = self.backbone(codes)
        return codes, state

    def read(self, frame: list[int]) -> list[int]:
        """What `start` gave."""
        return frame


class HostBackbone:
    """Takes in a prompt, then goes on one frame a step."""

    def __init__(self, lm: Breeze, prompts: Sequence[mx.array]):
        """`prompts` are [1, S, C] embeddings of each branch; `hidden` float32 [B, C] are the states after them."""
        depth = lm.depth_decoder
        self.stack, self.table = kept(lm.backbone_model, HostStack), shared(depth.model.embed_tokens.weight)
        self.rows = np.arange(depth.num_codebooks) * depth.vocab_size
        self.cache = HostCache(self.stack, max(prompt.shape[1] for prompt in prompts) + 256, len(prompts))
        with one_thread(), np.errstate(over="ignore"):  # SiLU of a large negative number
            walks = [self.stack.prefill(np.array(shared(prompt)[0]), self.cache, n) for n, prompt in enumerate(prompts)]
        self.hidden = np.stack(walks)

    def __call__(self, codes: Sequence[int]) -> np.ndarray:
        """K codes of the frame before -> hidden states [B, C]."""
        x = self.table[np.array(codes) + self.rows].sum(axis=0)
        return self.stack.step(np.repeat(x[None], len(self.hidden), axis=0), self.cache)


class HostDepth:
    """A depth decoder: the stack, what goes in and what comes out."""

    def __init__(self, depth: DepthDecoder):
        self.stack, self.table = HostStack(depth.model), shared(depth.model.embed_tokens.weight)
        self.codebooks, self.ids = depth.num_codebooks, depth.vocab_size
        self.projector = _matrix(depth.model.inputs_embeds_projector)
        self.heads = loops().halves(np.ascontiguousarray(shared(depth.codebooks_head.weight).transpose(0, 2, 1)))

    def __call__(
        self, first: int, hidden: np.ndarray, draw: Callable[[np.ndarray], int], cfg_scale: float
    ) -> list[int]:
        """A frame's K codes from codebook 0's and the backbone's states float32 [B, C]; `draw` takes logits [V]."""
        product, codes = loops().product, [first]
        cache = HostCache(self.stack, self.codebooks, len(hidden))
        self.stack.step(product(self.projector, 0, hidden), cache)
        for n in range(self.codebooks - 1):
            x = product(self.projector, 0, self.table[[n * self.ids + codes[-1]]])
            x = self.stack.step(np.repeat(x, len(hidden), axis=0), cache)
            codes.append(draw(guide_on_host(product(self.heads, n, x), cfg_scale)))
        return codes


def prepare(lm: Breeze) -> None:
    """Lay the weights out for the host's walk, so that the first frame does not wait for it."""
    kept(lm.backbone_model, HostStack)
    kept(lm.depth_decoder, HostDepth)
    kept(lm.lm_head, _matrix)


def can_walk(model: nn.Module) -> bool:
    """Whether all weights of `model` are float32 where the host can walk."""
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))  # type: ignore[arg-type]
    return loops_run_here() and all(array.dtype == mx.float32 for array in weights.values())


def _matrix(linear: nn.Linear) -> np.ndarray:
    """Its weight as `product` takes it: [1, outputs, inputs]."""
    return loops().halves(np.ascontiguousarray(shared(linear.weight))[None])
