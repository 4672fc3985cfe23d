"""Bytes a frame must read, how fast this machine reads, and so the time no implementation can beat.

A decode step of batch one touches each weight once: the floor of a frame is its bytes divided by the bandwidth.
Sizes come from a configuration (`breeze_lab.config.BreezeConfig`), so that the real model's floor is known without its
weights; for a loaded model, quantised or not, they are counted from its arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from ..blas import one_thread
from ..kernels import loops, loops_run_here
from .timing import measure

FRAME_MS = 80.0  # a frame is 80 ms of audio at 12.5 frames a second
BITS = {  # bits a weight of the matrices, scales included
    "float32": 32.0,
    "bfloat16": 16.0,
    "mxfp8": 8.25,  # one 8-bit scale for 32 weights
    "mxfp4": 4.25,
    "int8": 8.5,  # affine, group 64: a 16-bit scale and a 16-bit bias
    "int4": 4.5,
}


@dataclass(frozen=True)
class FrameBytes:
    """Weight bytes that one frame reads, cache and activations left out (they are under a hundredth)."""

    backbone: float  # one step: layers and head
    depth_step: float  # one pass of the depth decoder: layers, input projection, one head
    steps: int  # passes a frame: codebooks - 1, positions 0 and 1 going together

    @property
    def depth(self) -> float:
        return self.steps * self.depth_step

    @property
    def total(self) -> float:
        return self.backbone + self.depth

    @property
    def depth_share(self) -> float:
        return self.depth / self.total

    @property
    def real_time_gb_s(self) -> float:
        """Bandwidth in GB/s that makes a frame in the 80 ms that it lasts."""
        return self.total / 1e6 / FRAME_MS


def stack_parameters(c: Any) -> int:
    """Matrix parameters of a decoder stack: attention projections and gated MLP, norms left out."""
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    return c.num_hidden_layers * c.hidden_size * (2 * q + 2 * kv + 3 * c.intermediate_size)


def frame_bytes(
    config: Any, backbone: str = "bfloat16", depth: str = "bfloat16", heads: str = "bfloat16"
) -> FrameBytes:
    """FrameBytes of a configuration with the matrices of each part stored as named in `BITS`.

    `heads` is the depth decoder's 15 heads, which no public build quantises.
    """
    b, d = config.backbone, config.depth
    per_backbone, per_depth, per_head = (BITS[name] / 8 for name in (backbone, depth, heads))
    head0 = b.hidden_size * (config.vocab_size + 1)
    return FrameBytes(
        backbone=(stack_parameters(b) + head0) * per_backbone,
        depth_step=(stack_parameters(d) + d.backbone_hidden_size * d.hidden_size) * per_depth
        + d.hidden_size * d.vocab_size * per_head,
        steps=config.num_codebooks - 1,
    )


def model_frame_bytes(lm: Any) -> FrameBytes:
    """FrameBytes of a loaded model, counted from its arrays: matrices once each, embeddings not (a row is read)."""
    depth = lm.depth_decoder
    steps = depth.num_codebooks - 1
    stack = tree_bytes(depth.model.layers) + tree_bytes(depth.model.inputs_embeds_projector)
    return FrameBytes(
        backbone=tree_bytes(lm.backbone_model.layers) + tree_bytes(lm.lm_head),
        depth_step=stack + tree_bytes(depth.codebooks_head) / steps,
        steps=steps,
    )


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays in a module or a tree of lists and dicts."""
    if isinstance(tree, mx.array):
        return tree.nbytes
    if hasattr(tree, "parameters"):
        tree = tree.parameters()
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return sum(tree_bytes(child) for child in children)


def floor_ms(nbytes: float, gb_s: float) -> float:
    """Milliseconds that reading `nbytes` takes at `gb_s` GB/s (1 GB = 1e9 bytes)."""
    return nbytes / gb_s / 1e6


def add_bandwidth(megabytes: int = 128, repeat: int = 5) -> float:
    """GB/s of a plain float32 `x + 1`, bytes read and written."""
    x = mx.zeros((megabytes * 250_000,))
    mx.eval(x)
    return 2 * x.nbytes / measure(lambda: x + 1, repeat).best / 1e9


def gemv_work(width: int, megabytes: int, dtype: mx.Dtype = mx.float32) -> tuple[Callable[[], Any], int]:
    """One vector times matrices of `width` x 4 `width`, as a decode step does: the function, and the bytes it reads.

    On a CPU float32 is read by NumPy on one thread, and bfloat16 as the rung `host` does: both faster than MLX there.
    """
    count = max(1, round(megabytes * 1e6 / (4 * width * width * dtype.size)))
    if dtype == mx.float32 and mx.default_device() == mx.cpu:
        vector, matrices = np.ones(width, np.float32), np.full((count, 4 * width, width), 0.5, np.float32)

        def read() -> list[np.ndarray]:
            with one_thread():
                return [matrix @ vector for matrix in matrices]

        return read, matrices.nbytes
    if dtype == mx.bfloat16 and loops_run_here():
        x, halves = np.ones((1, width), np.float32), np.full((count, 4 * width, width), 0x3F00, np.uint16)  # 0.5
        product = loops().product
        return lambda: [product(halves, n, x) for n in range(count)], halves.nbytes
    x = mx.ones((1, width), dtype)
    weights = [mx.zeros((4 * width, width), dtype) for _ in range(count)]
    mx.eval(x, weights)
    return lambda: [x @ w.T for w in weights], count * weights[0].nbytes


def gemv_bandwidth(width: int = 2048, megabytes: int = 128, dtype: mx.Dtype = mx.float32, repeat: int = 5) -> float:
    """GB/s of weights read by `gemv_work`."""
    work, nbytes = gemv_work(width, megabytes, dtype)
    return nbytes / measure(work, repeat).best / 1e9
