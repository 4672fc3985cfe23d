"""Qwen3 backbone: one position a text token or audio frame. Shapes: B batch, S positions, C channels."""

import mlx.core as mx
import mlx.nn as nn

from ..cache import KVCache
from ..config import BackboneConfig
from ..layers import Attention, DecoderLayer, Rope, run_causal


class Backbone(nn.Module):
    """[B, S, C] embeddings -> [B, S, C] normed hidden states; causal."""

    def __init__(self, config: BackboneConfig):
        super().__init__()
        eps = config.rms_norm_eps
        rope = Rope(config.head_dim, config.rope_theta)

        def layer() -> DecoderLayer:
            attention = Attention(
                config.hidden_size,
                config.num_attention_heads,
                config.num_key_value_heads,
                config.head_dim,
                rope,
                norm=lambda size: nn.RMSNorm(size, eps=eps),
            )
            return DecoderLayer(config.hidden_size, config.intermediate_size, attention, eps)

        self.layers = [layer() for _ in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=eps)

    def __call__(self, x: mx.array, caches: list[KVCache] | None = None) -> mx.array:
        return self.norm(run_causal(self.layers, x, caches))

    def make_cache(self) -> list[KVCache]:
        """A fresh cache a layer."""
        return [KVCache() for _ in self.layers]
