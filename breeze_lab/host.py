"""The rung `host`: on a CPU the device is the host, so a frame can be walked without MLX, by compiled loops.

A node of MLX's graph costs a CPU some 5 us, and a frame has thousands; here a layer is seven calls of 1 us each.
Float32 on a CPU only; needs Numba.
Shapes: B branches, C channels, H heads, G key/value heads, D head dim, V ids a codebook.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .blas import one_thread
from .errors import BreezeLabError
from .model import Breeze, DepthDecoder
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
    """One position a step in compiled loops, both branches at once. Arguments as `frames.recompute`.

    Raises:
        BreezeLabError: weights that are not dense float32, a default device that is not the CPU, or no Numba.
    """
    walk = kept(depth, HostDepth)
    cache = HostCache(walk.stack, depth.num_codebooks, len(branches))
    pick = draw.on_host(depth.num_codebooks - 1, reads)
    codes = [reads.item(first)]
    walk.stack.step(walk.project(np.concatenate([reads.array(branch) for branch in branches])), cache)
    for n in range(depth.num_codebooks - 1):
        x = walk.project(walk.table[[n * depth.vocab_size + codes[-1]]])
        cond, *uncond = walk.logits(walk.stack.step(np.repeat(x, len(branches), axis=0), cache), n)
        codes.append(pick(uncond[0] + np.float32(cfg_scale) * (cond - uncond[0]) if uncond else cond))
    return mx.array(codes)


class HostBackbone:
    """Takes in a prompt, then goes on one frame a step: `generate.DeviceBackbone` without MLX."""

    def __init__(self, lm: Breeze, prompts: Sequence[mx.array]):
        """`prompts` are [1, S, C] embeddings of each branch; `hidden` are the states [1, C] after them."""
        depth = lm.depth_decoder
        self.stack, self.table = kept(lm.backbone_model, HostStack), shared(depth.model.embed_tokens.weight)
        self.rows = np.arange(depth.num_codebooks) * depth.vocab_size
        self.cache = HostCache(self.stack, max(prompt.shape[1] for prompt in prompts) + 256, len(prompts))
        with one_thread(), np.errstate(over="ignore"):  # SiLU of a large negative number
            self.hidden = [
                mx.array(self.stack.prefill(np.array(shared(prompt)[0]), self.cache, branch)[None])
                for branch, prompt in enumerate(prompts)
            ]

    def __call__(self, codes: mx.array) -> list[mx.array]:
        """int [K] codes of the frame before, read already -> hidden state [1, C] of each branch."""
        x = self.table[np.array(codes) + self.rows].sum(axis=0)
        hidden = self.stack.step(np.repeat(x[None], len(self.cache.offsets), axis=0), self.cache)
        return [mx.array(row[None]) for row in hidden]


class HostCache:
    """Keys and values [layers, B, G, positions, D] of all branches."""

    def __init__(self, stack: "HostStack", positions: int, branches: int):
        self.offsets = np.zeros(branches, np.int64)
        shape = (stack.layers, branches, stack.groups, positions, stack.dims)
        self.keys, self.values = np.empty(shape, np.float32), np.empty(shape, np.float32)

    def make_room(self) -> None:
        """For one more position of each branch."""
        if self.offsets.max() == self.keys.shape[3]:
            more = ((0, 0), (0, 0), (0, 0), (0, 256), (0, 0))
            self.keys, self.values = np.pad(self.keys, more), np.pad(self.values, more)


class HostStack:
    """The layers and the norm of a depth decoder or a backbone: a prompt at once, or one position of each branch."""

    def __init__(self, model: Any):
        attention = model.layers[0].self_attn
        self.frequencies, self.dims = attention.rope.frequencies, attention.rope.dims
        self.scale, self.eps = np.float32(attention.scale), np.float32(model.norm.eps)
        self.layers, self.groups = len(model.layers), attention.kv_heads
        self.dense = model.layers

        def each(*paths: str) -> Iterator[np.ndarray]:
            """Of every layer the weights at these paths, below each other."""
            for layer in model.layers:
                yield np.ascontiguousarray(np.concatenate([shared(_at(layer, path).weight) for path in paths]))

        def gather(path: str) -> np.ndarray:
            return np.stack(list(each(path)))

        def matrices(*paths: str) -> np.ndarray:
            narrow = [kernels().halves(matrix) for matrix in each(*paths)]
            return np.stack(narrow if all(matrix.dtype == np.uint16 for matrix in narrow) else list(each(*paths)))

        none = np.empty((self.layers, 0), np.float32)
        self.qkv = matrices("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        self.o = matrices("self_attn.o_proj")
        self.gate_up, self.down = matrices("mlp.gate_proj", "mlp.up_proj"), matrices("mlp.down_proj")
        self.before, self.after = gather("input_layernorm"), gather("post_attention_layernorm")
        self.q_norm, self.k_norm = (
            gather(f"self_attn.{name}_norm") if attention.has_norm else none for name in ("q", "k")
        )
        self.norm = np.array(shared(model.norm.weight))

    def step(self, x: np.ndarray, cache: HostCache) -> np.ndarray:
        """float32 [B, C], inputs at the cache's next positions -> the normed hidden states [B, C] there."""
        use = kernels()
        product, rms_norm, attention = use.product, use.rms_norm, use.attention
        cache.make_room()
        turn = self._turn(cache.offsets)
        for n in range(self.layers):
            qkv = product(self.qkv, n, rms_norm(x, self.before[n], self.eps))
            norms = self.q_norm[n], self.k_norm[n], self.eps
            mixed = attention(qkv, *norms, self.scale, *turn, cache.offsets, cache.keys[n], cache.values[n])
            x = x + product(self.o, n, mixed)
            gate_up = product(self.gate_up, n, rms_norm(x, self.after[n], self.eps))
            x = x + product(self.down, n, use.gated(gate_up))
        cache.offsets += 1
        return rms_norm(x, self.norm, self.eps)

    def prefill(self, x: np.ndarray, cache: HostCache, branch: int) -> np.ndarray:
        """float32 [S, C], a branch's first inputs -> the normed hidden state [C] of the last."""
        use, S, D, G = kernels(), len(x), self.dims, self.groups
        cos, sin = (part[:, None] for part in self._turn(np.arange(S)))
        mask = np.triu(np.full((S, S), -np.inf, np.float32), 1)
        for n, layer in enumerate(self.dense):
            attention, mlp = layer.self_attn, layer.mlp
            h = use.rms_norm(x, self.before[n], self.eps)
            q, k, v = ((h @ shared(getattr(attention, f"{p}_proj").weight).T).reshape(-1, D) for p in "qkv")
            if attention.has_norm:
                q, k = (use.rms_norm(part, w[n], self.eps) for part, w in ((q, self.q_norm), (k, self.k_norm)))
            q, k = (_rotate(part.reshape(S, -1, D), cos, sin) for part in (q, k))
            keys, values = k.swapaxes(0, 1), v.reshape(S, G, D).swapaxes(0, 1)
            cache.keys[n, branch, :, :S], cache.values[n, branch, :, :S] = keys, values
            q = (q * self.scale).reshape(S, G, -1, D).transpose(1, 2, 0, 3)
            scores = q @ keys[:, None].swapaxes(-1, -2) + mask
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (weights / weights.sum(axis=-1, keepdims=True)) @ values[:, None]
            x = x + mixed.transpose(2, 0, 1, 3).reshape(S, -1) @ shared(attention.o_proj.weight).T
            h = use.rms_norm(x, self.after[n], self.eps)
            gate, up = (h @ shared(part.weight).T for part in (mlp.gate_proj, mlp.up_proj))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ shared(mlp.down_proj.weight).T
        cache.offsets[branch] = S
        return use.rms_norm(x[-1:], self.norm, self.eps)[0]

    def _turn(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """float32 [n, D/2] cosines and sines of the rotary angles."""
        angles = positions[:, None] * self.frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class HostDepth:
    """A depth decoder: the stack, what goes in and what comes out."""

    def __init__(self, depth: DepthDecoder):
        self.stack, self.table = HostStack(depth.model), shared(depth.model.embed_tokens.weight)
        halves = kernels().halves
        self.projector = halves(np.ascontiguousarray(shared(depth.model.inputs_embeds_projector.weight))[None])
        self.heads = halves(np.ascontiguousarray(shared(depth.codebooks_head.weight).transpose(0, 2, 1)))

    def project(self, x: np.ndarray) -> np.ndarray:
        """float32 [B, E] embeddings -> inputs [B, C] of the stack."""
        return kernels().product(self.projector, 0, x)

    def logits(self, hidden: np.ndarray, head: int) -> np.ndarray:
        """float32 [B, C] hidden states -> logits [B, V] of codebook `head` + 1."""
        return kernels().product(self.heads, head, hidden)


def prepare(lm: Breeze) -> None:
    """Lay the weights out for the host's walk, so that the first frame does not wait for it."""
    kept(lm.backbone_model, HostStack)
    kept(lm.depth_decoder, HostDepth)


def kept(module: Any, make: Callable[[Any], Any]) -> Any:
    """What `make` makes of a module's weights; kept with the module, and made again when a weight was replaced.

    One that is written in place is not noticed.
    """
    views = [shared(array) for _, array in tree_flatten(module.parameters())]  # type: ignore[misc]
    before, made = vars(module).get("_host", ((), None))
    if len(before) != len(views) or not all(map(np.may_share_memory, before, views)):
        made = make(module)
        vars(module)["_host"] = views, made  # while the views are held, no other weight can take their place
    return made


@lru_cache
def _kernels() -> tuple[Any, str]:
    """`breeze_lab.kernels.cpu`, compiled, and ""; or None and why not. It takes a while: only who needs it asks."""
    try:
        if import_module("numba").config.DISABLE_JIT:
            return None, "NUMBA_DISABLE_JIT is set"
        module = import_module(".kernels.cpu", __package__)
        module.compile_all()
        return module, ""
    except Exception as error:  # whatever is wrong with an installation, there are other rungs
        return None, " ".join(str(error).split()) or type(error).__name__


def kernels() -> Any:
    """`breeze_lab.kernels.cpu`.

    Raises:
        BreezeLabError: Numba is not there, or does not work.
    """
    module, why_not = _kernels()
    if module is None:
        raise BreezeLabError(f"method 'host' needs Numba: {why_not}. Mend that, or use method='device'.")
    return module


def why_not() -> str:
    """Why the host cannot walk on this machine's CPU; empty where it can."""
    return _kernels()[1]


def can_walk(model: nn.Module) -> bool:
    """Whether all weights of `model` are float32 where the host can walk."""
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))  # type: ignore[arg-type]
    return walks_here() and all(array.dtype == mx.float32 for array in weights.values())


def walks_here() -> bool:
    """Whether the default device is the CPU, whose memory NumPy sees, and Numba works."""
    return mx.default_device() == mx.cpu and not why_not()


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


def _rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Halves of [S, H, D] rotated by angles [S, 1, D/2]."""
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def _at(module: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), module)
