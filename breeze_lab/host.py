"""The rung `host`: on a CPU the device is the host, so a frame can be walked in NumPy, in the model's own memory.

A node of MLX's graph costs a CPU some 5 us, a NumPy call about 1; and NumPy hands a matrix and one vector to BLAS as
just that. Weights are shared, never copied. Float32 on a CPU only.
Shapes: C channels, H heads, G key/value heads, D head dim, N positions, V ids a codebook.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .blas import one_thread
from .cache import KVCache
from .errors import BreezeLabError
from .model import DepthDecoder
from .reads import HostReads
from .samplers import CodeDraw


def host(
    depth: DepthDecoder,
    first: mx.array,
    branches: Sequence[mx.array],
    draw: CodeDraw,
    cfg_scale: float,
    reads: HostReads,
) -> mx.array:
    """One position a step in NumPy. Arguments as `frames.recompute`.

    Raises:
        BreezeLabError: weights that are not dense float32, or a default device that is not the CPU.
    """
    stack = HostStack(depth.model)
    project, table = shared(depth.model.inputs_embeds_projector.weight), shared(depth.model.embed_tokens.weight)
    heads = shared(depth.codebooks_head.weight)
    walks = [HostCache(stack, depth.num_codebooks) for _ in branches]
    pick = draw.on_host(depth.num_codebooks - 1, reads)
    codes, hidden = [reads.item(first)], [reads.array(branch)[0] for branch in branches]
    with one_thread(), np.errstate(all="ignore"):
        for state, cache in zip(hidden, walks, strict=True):
            stack.step(project @ state, cache)
        for n in range(depth.num_codebooks - 1):
            x = project @ table[n * depth.vocab_size + codes[-1]]
            cond, *uncond = [stack.step(x, cache) @ heads[n] for cache in walks]
            codes.append(pick(uncond[0] + np.float32(cfg_scale) * (cond - uncond[0]) if uncond else cond))
    return mx.array(codes)


class HostBackbone:
    """Goes on, one frame a step, from where a prompt left the backbone's caches."""

    def __init__(self, backbone: Any, depth: DepthDecoder, caches: Sequence[list[KVCache]]):
        self.stack, self.table = HostStack(backbone), shared(depth.model.embed_tokens.weight)
        self.offsets = np.arange(depth.num_codebooks) * depth.vocab_size
        self.walks = [HostCache(self.stack, layers[0].offset + 256, layers) for layers in caches]

    def __call__(self, codes: mx.array) -> list[mx.array]:
        """int [K] codes of the frame before, read already -> hidden state [1, C] of each branch."""
        x = self.table[np.array(codes) + self.offsets].sum(axis=0)
        with one_thread(), np.errstate(all="ignore"):
            return [mx.array(self.stack.step(x, cache)[None]) for cache in self.walks]


class HostCache:
    """Keys and values [layers, G, N, D] of one walk; takes over what MLX caches of one branch hold."""

    def __init__(self, stack: "HostStack", positions: int, filled: Sequence[KVCache] = ()):
        self.offset = filled[0].offset if filled else 0
        self.keys, self.values = (
            np.empty((len(stack.layers), stack.groups, positions, stack.dims), np.float32) for _ in range(2)
        )
        for index, cache in enumerate(filled):
            for mine, theirs in ((self.keys, cache.keys), (self.values, cache.values)):
                mine[index, :, : self.offset] = shared(theirs)[0, :, : self.offset]  # type: ignore[arg-type]

    def advance(self) -> int:
        """The next position, with room for it."""
        if self.offset == self.keys.shape[2]:
            more = ((0, 0), (0, 0), (0, 256), (0, 0))
            self.keys, self.values = np.pad(self.keys, more), np.pad(self.values, more)
        self.offset += 1
        return self.offset - 1


class HostStack:
    """The layers and the norm of a depth decoder or a backbone, one position of one sequence at a time."""

    def __init__(self, model: Any):
        attention = model.layers[0].self_attn
        self.rope, self.scale = attention.rope, np.float32(attention.scale)
        self.heads, self.groups, self.dims = attention.heads, attention.kv_heads, attention.rope.dims
        self.layers = [_Layer(layer) for layer in model.layers]
        self.norm = _norm(model.norm)

    def step(self, x: np.ndarray, cache: HostCache) -> np.ndarray:
        """float32 [C], the input at the cache's next position -> the normed hidden state [C] there."""
        position = cache.advance()
        H, G, D = self.heads, self.groups, self.dims
        turn = self.rope.turn(position)
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            h = _rms_norm(x, *layer.before)
            q, k = (layer.q @ h).reshape(H, D), (layer.k @ h).reshape(G, D)
            if layer.qk_norms:
                q, k = (_rms_norm(part, *norm) for part, norm in zip((q, k), layer.qk_norms, strict=True))
            keys[:, position], values[:, position] = k @ turn, (layer.v @ h).reshape(G, D)
            q = (q @ turn).reshape(G, H // G, D) * self.scale
            weights = _softmax(q @ keys[:, : position + 1].transpose(0, 2, 1))
            x = x + layer.o @ (weights @ values[:, : position + 1]).reshape(H * D)
            h = _rms_norm(x, *layer.after)
            gate = layer.gate @ h
            x = x + layer.down @ (gate / (1 + np.exp(-gate)) * (layer.up @ h))
        return _rms_norm(x, *self.norm)


class _Layer:
    """The weights of a `layers.DecoderLayer` as NumPy sees them."""

    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        self.q, self.k, self.v, self.o = (shared(getattr(attention, f"{name}_proj").weight) for name in "qkvo")
        self.gate, self.up, self.down = (shared(part.weight) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        self.before, self.after = _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)
        self.qk_norms = [_norm(attention.q_norm), _norm(attention.k_norm)] if attention.has_norm else []


def can_share(model: nn.Module) -> bool:
    """Whether all weights of `model` are float32 on a CPU, so that NumPy can see them."""
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))  # type: ignore[arg-type]
    return mx.default_device() == mx.cpu and all(array.dtype == mx.float32 for array in weights.values())


def shared(array: mx.array) -> np.ndarray:
    """The same memory as a NumPy array.

    Raises:
        BreezeLabError: not float32, or not on the CPU.
    """
    if array.dtype != mx.float32 or mx.default_device() != mx.cpu:
        raise BreezeLabError(
            "method 'host' needs a CPU and float32 weights. Load with dtype='float32' on a CPU, or use method='device'."
        )
    return np.asarray(memoryview(array))  # type: ignore[arg-type]


def _norm(norm: Any) -> tuple[np.ndarray, float]:
    return shared(norm.weight), norm.eps


def _rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Over the last axis of [D] or [H, D]."""
    squares = x @ x if x.ndim == 1 else np.einsum("hd,hd->h", x, x)[:, None]
    return x * (weight / np.sqrt(squares / np.float32(x.shape[-1]) + np.float32(eps)))


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
