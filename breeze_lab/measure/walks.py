"""The depth decoder under the microscope: walk one frame by any rung, count its positions, compare its logits.

Shapes: B batch, F frames, K codebooks, C backbone channels, V ids a codebook.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ..frames import METHODS, next_logits, start_frame, step_logits
from ..keys import KeySequence
from ..reads import HostReads
from ..samplers import CodeDraw, Sampling, reserved_mask
from .timing import Timing, alternate

if TYPE_CHECKING:
    from ..checkpoint import SpeechModel


@contextmanager
def watch_positions(depth: Any) -> Iterator[list[int]]:
    """Collect how many positions each run of the depth stack computes: one number a run, in order."""
    seen: list[int] = []
    watched = type(depth.model)
    original = watched.__call__

    def counted(self: Any, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        seen.append(x.shape[1])
        return original(self, x, *args, **kwargs)

    watched.__call__ = counted
    try:
        yield seen
    finally:
        watched.__call__ = original


def recompute_logits(depth: Any, codes: mx.array, hidden: mx.array) -> mx.array:
    """Logits of all heads for given codes, each from its whole prefix: int [B, K] -> [B, K - 1, V]."""
    return mx.stack([next_logits(depth, codes[:, :n], hidden) for n in range(1, codes.shape[1])], axis=1)


def cached_logits(depth: Any, codes: mx.array, hidden: mx.array) -> mx.array:
    """The same by one position a step against a frame cache: int [B, K] -> [B, K - 1, V]."""
    caches = depth.make_cache()
    start_frame(depth, hidden, caches)
    return mx.stack([step_logits(depth, codes[:, n], caches) for n in range(codes.shape[1] - 1)], axis=1)


def step_times(depth: Any, codes: mx.array, hidden: mx.array, repeat: int = 7) -> dict[str, np.ndarray]:
    """Seconds of each step of both walks, in turns: name -> float64 [repeat, K - 1], the first round left out."""
    steps = range(1, codes.shape[1])
    out: dict[str, list[list[float]]] = {"recompute": [], "cached": []}
    for _ in range(repeat + 1):
        caches = depth.make_cache()
        start_frame(depth, hidden, caches)
        mx.eval([cache.keys for cache in caches])
        out["cached"].append([_seconds(step_logits, depth, codes[:, n - 1], caches) for n in steps])
        out["recompute"].append([_seconds(next_logits, depth, codes[:, :n], hidden) for n in steps])
    return {name: np.array(rounds[1:]) for name, rounds in out.items()}


def _seconds(fn: Callable[..., mx.array], *args: Any) -> float:
    start = time.perf_counter()
    mx.eval(fn(*args))
    return time.perf_counter() - start


def frame_parts(model: "SpeechModel", repeat: int = 7) -> dict[str, Timing]:
    """What one frame is made of, timed in turns: depth by recompute and cached, the backbone's step, the codec."""
    work = FrameWork.of(model)
    lm, codec = model.lm, model.codec
    width = model.config.backbone.hidden_size
    caches, state = lm.backbone_model.make_cache(), codec.make_state()
    x = mx.zeros((1, 1, width), model.dtype)
    mx.eval(lm.backbone_model(mx.zeros((1, 100, width), model.dtype), caches))
    codes = mx.zeros((1, codec.num_codebooks), mx.int32)
    return alternate(
        {
            "depth, recompute": lambda: work("recompute"),
            "depth, cached": lambda: work("cached"),
            "backbone": lambda: lm.lm_head(lm.backbone_model(x, caches)),
            "codec": lambda: codec.decode_step(codes, state),
        },
        repeat,
    )


def as_dtype(module: nn.Module, dtype: mx.Dtype = mx.float32) -> Any:
    """A dense copy of a module, its weights in `dtype`, packed layers unpacked; the original is not touched."""
    twin = _twin(module)
    twin.set_dtype(dtype)
    mx.eval(twin.parameters())
    return twin


def _twin(node: Any) -> Any:
    """New modules, dicts and lists around the same arrays."""
    if isinstance(node, (list, tuple)):
        return [_twin(child) for child in node]
    if not isinstance(node, dict):  # a module is a dict
        return node
    if isinstance(node, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
        return _unpacked(node)
    twin = copy.copy(node)
    for name, child in node.items():
        twin[name] = _twin(child)
    return twin


def _unpacked(layer: Any) -> nn.Module:
    """The dense layer that a packed one (without bias) stands for."""
    packing = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
    weight = mx.dequantize(layer.weight, layer.scales, layer.get("biases"), **packing)
    dense = nn.Linear(1, 1, bias=False) if isinstance(layer, nn.QuantizedLinear) else nn.Embedding(1, 1)
    dense.weight = weight
    return dense


def backbone_states(model: "SpeechModel", text: str, codes: mx.array) -> mx.array:
    """The hidden states [F, C] from which the frames int [F, K] of `text` were made (without a voice)."""
    from ..prompt import PromptBuilder

    builder = PromptBuilder(model, instruct=None, guided=False, speaker="S0")
    prompt = builder.build(text).positive
    x = mx.concatenate([prompt, model.lm.embed_frames(codes[None, :-1])], axis=1)
    return model.lm.backbone_model(x)[0, prompt.shape[1] - 1 :]


@dataclass
class FrameWork:
    """Everything to complete one frame, again and again: for timing and for comparing the rungs."""

    depth: Any
    branches: Sequence[mx.array]  # hidden states [1, C], two with guidance
    vocab_size: int
    codec_vocab_size: int
    cfg_scale: float = 1.0
    sampling: Sampling = Sampling()
    seed: int = 0

    def __call__(self, method: str) -> list[int]:
        """Draw the frame's codes by a rung and read them: K ints. The same seed gives the same draws."""
        return self.start(method)()

    def start(self, method: str) -> Callable[[], list[int]]:
        """Queue the frame; what comes back reads it."""
        reads = HostReads()
        mask = reserved_mask(self.vocab_size, self.codec_vocab_size, self.vocab_size)
        draw = CodeDraw(KeySequence(self.seed), self.sampling, mask)
        codes = METHODS[method](self.depth, mx.array([1]), self.branches, draw, self.cfg_scale, reads)
        return lambda: reads.list(codes)

    @classmethod
    def of(cls, model: "SpeechModel", *, guided: bool = False, seed: int = 0) -> "FrameWork":
        """One frame of a loaded model, from made-up hidden states of unit size in its dtype."""
        config = model.config
        rng = np.random.default_rng(seed)
        count = 2 if guided else 1
        states = [rng.standard_normal((1, config.backbone.hidden_size), dtype=np.float32) for _ in range(count)]
        branches = [mx.array(state).astype(model.dtype) for state in states]
        return cls(
            model.lm.depth_decoder,
            branches,
            config.vocab_size,
            config.codec_vocab_size,
            2.0 if guided else 1.0,
            seed=seed,
        )
