"""Backbone and depth decoder of a given shape with random weights, without text encoder, codec or files."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from ..config import BackboneConfig, DepthConfig
from ..errors import BreezeLabError
from ..model.backbone import Backbone
from ..model.depth import DepthDecoder
from ..random_checkpoint import SHAPES
from ..samplers import Sampling
from .walks import FrameWork

FIELDS = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size".split()
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 0.001953125,
    "high_freq_factor": 0.0078125,
    "original_max_position_embeddings": 16,
}


@dataclass(frozen=True)
class ShapeConfig:
    """What `roofline.frame_bytes` and the caches' byte arithmetic ask of a configuration."""

    backbone: BackboneConfig
    depth: DepthConfig
    codec_vocab_size: int
    num_codebooks: int = 16

    @property
    def vocab_size(self) -> int:
        """Ids a codebook, three reserved ones included."""
        return self.codec_vocab_size + 3


def shape_config(shape: str) -> ShapeConfig:
    """The sizes of "tiny", "small" or "full" (Breeze TTS 2 itself).

    Raises:
        BreezeLabError: an unknown shape.
    """
    if shape not in SHAPES:
        raise BreezeLabError(f"Unknown shape {shape!r}. Choose one of {', '.join(SHAPES)}.")
    sizes = SHAPES[shape]
    backbone = BackboneConfig(**_stack(sizes.backbone))
    width = backbone.hidden_size
    depth = DepthConfig(
        **_stack(sizes.depth),
        num_codebooks=16,
        vocab_size=sizes.codebook_size + 3,
        backbone_hidden_size=width,
        audio_embed_size=width,
        rope_scaling=LLAMA3,
    )
    return ShapeConfig(backbone, depth, sizes.codebook_size)


def _stack(sizes: tuple[int, ...]) -> dict[str, Any]:
    return dict(zip(FIELDS, sizes, strict=True))


class Stacks(nn.Module):
    """Backbone, head of codebook 0 and depth decoder under their checkpoint names."""

    def __init__(self, config: ShapeConfig):
        super().__init__()
        self.backbone_model = Backbone(config.backbone)
        self.lm_head = nn.Linear(config.backbone.hidden_size, config.vocab_size + 1, bias=False)
        self.depth_decoder = DepthDecoder(config.depth)


def random_stacks(config: ShapeConfig, dtype: mx.Dtype, seed: int = 0) -> Stacks:
    """Evaluated weights that keep the size of their input; norms are one."""
    stacks = Stacks(config)
    key = mx.random.key(seed)

    def weight(x: mx.array) -> mx.array:
        nonlocal key
        if x.ndim == 1:
            return mx.ones(x.shape, dtype)
        key, own = mx.random.split(key)
        inputs = x.shape[-2] if x.ndim == 3 else x.shape[-1]
        made = (mx.random.normal(x.shape, dtype, key=own) * inputs**-0.5).astype(dtype)
        mx.eval(made)
        return made

    stacks.update(tree_map(weight, stacks.parameters()))
    mx.eval(stacks.parameters())
    return stacks


def frame_work(stacks: Stacks, config: ShapeConfig, dtype: mx.Dtype, *, guided: bool = False) -> FrameWork:
    """One frame's work on random hidden states."""
    keys = mx.random.split(mx.random.key(1), 2)
    width = config.backbone.hidden_size
    branches = [mx.random.normal((1, width), dtype, key=key) for key in keys[: 1 + guided]]
    mx.eval(branches)
    scale = 2.0 if guided else 1.0
    return FrameWork(stacks.depth_decoder, branches, config.vocab_size, config.codec_vocab_size, scale, Sampling())


def batch_step(stacks: Any, batch: int, dtype: mx.Dtype, context: int = 256) -> Any:
    """A function that makes one frame for `batch` voices at once: a backbone step and the whole depth walk, greedy.

    Each call starts from the same prepared context of `context` positions.
    """
    width = stacks.lm_head.weight.shape[-1]
    depth, backbone = stacks.depth_decoder, stacks.backbone_model
    x = mx.zeros((batch, 1, width), dtype)
    prompt = mx.zeros((batch, context - 1, width), dtype)
    caches = backbone.make_cache()
    mx.eval(backbone(prompt, caches))

    def step() -> mx.array:
        for cache in caches:
            cache.offset = context - 1
        hidden = backbone(x, caches)[:, -1]
        code = mx.argmax(stacks.lm_head(hidden)[:, : depth.vocab_size], axis=-1)
        frame = depth.make_cache()
        depth.model(hidden[:, None, :], frame)
        codes = [code]
        for codebook in range(depth.num_codebooks - 1):
            state = depth.model(depth.embed_codes(codes[-1][:, None], codebook), frame)
            codes.append(mx.argmax(depth.codebooks_head(state[:, -1], codebook), axis=-1))
        return mx.stack(codes, axis=1)

    return step
