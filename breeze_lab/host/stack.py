"""A stack of decoder layers, walked without MLX: a prompt at once, then one position of each branch.

Shapes: B branches, C channels, H heads, G key/value heads, D head dim.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
from mlx.utils import tree_flatten

from ..kernels import loops, shared


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
            narrow = [loops().halves(matrix) for matrix in each(*paths)]
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
        use = loops()
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
        use, S, D, G = loops(), len(x), self.dims, self.groups
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


def kept(module: Any, make: Callable[[Any], Any]) -> Any:
    """What `make` makes of a module's weights; kept with the module, and made again when one is another now."""
    views = [shared(array) for _, array in tree_flatten(module.parameters())]  # type: ignore[misc]
    places = [(view.__array_interface__["data"], view.shape, view.strides) for view in views]
    before, _, made = vars(module).get("_host", (None, None, None))
    if before != places:
        made = make(module)
        # While the views are held, no other weight can take their place, and MLX writes a changed one elsewhere.
        vars(module)["_host"] = places, views, made
    return made


def _rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Halves of [S, H, D] rotated by angles [S, 1, D/2]."""
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def _at(module: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), module)
