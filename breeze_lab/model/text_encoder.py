"""T5Gemma2 text encoder: bidirectional, sliding and full layers. Shapes: B batch, T text, C channels."""

import mlx.core as mx
import mlx.nn as nn

from ..config import TextEncoderConfig
from ..gelu import gelu_tanh
from ..layers import Attention, GatedMLP, OffsetRMSNorm, Rope


def sliding_mask(length: int, window: int) -> mx.array:
    """bool [T, T]: which keys a query sees in a sliding layer.

    The window counts the query: (window + 1) // 2 keys up to it and window // 2 after it, so query i of a window of
    512 sees i - 255 .. i + 256 (T5Gemma2 reference).
    """
    distance = mx.arange(length)[:, None] - mx.arange(length)[None, :]
    return (distance < (window + 1) // 2) & (-distance <= window // 2)


class TextEmbedding(nn.Module):
    """Token embedding scaled by sqrt(C), with a vector of its own for the end-of-image token."""

    def __init__(self, config: TextEncoderConfig):
        super().__init__()
        self.weight = mx.zeros((config.vocab_size, config.hidden_size))
        self.eoi_embedding = mx.zeros((config.hidden_size,))
        self.eoi_token_index = config.eoi_token_index

    def __call__(self, ids: mx.array) -> mx.array:
        embedded = self.weight[ids] * self.weight.shape[1] ** 0.5
        return mx.where((ids == self.eoi_token_index)[..., None], self.eoi_embedding, embedded)


class TextLayer(nn.Module):
    """Attention and gated MLP, each with a norm before and after."""

    def __init__(self, config: TextEncoderConfig, layer_type: str):
        super().__init__()
        dims, eps = config.hidden_size, config.rms_norm_eps
        theta, factor = config.rope(layer_type)
        self.self_attn = Attention(
            dims,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            Rope(config.head_dim, theta, factor),
            scale=config.query_pre_attn_scalar**-0.5,
            norm=lambda size: OffsetRMSNorm(size, eps),
        )
        self.mlp = GatedMLP(dims, config.intermediate_size, gelu_tanh)
        self.pre_self_attn_layernorm = OffsetRMSNorm(dims, eps)
        self.post_self_attn_layernorm = OffsetRMSNorm(dims, eps)
        self.pre_feedforward_layernorm = OffsetRMSNorm(dims, eps)
        self.post_feedforward_layernorm = OffsetRMSNorm(dims, eps)

    def __call__(self, x: mx.array, mask: mx.array | None) -> mx.array:
        x = x + self.post_self_attn_layernorm(self.self_attn(self.pre_self_attn_layernorm(x), mask))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class TextEncoder(nn.Module):
    """int [B, T] token ids -> [B, T, C]. Every text segment is encoded by itself."""

    def __init__(self, config: TextEncoderConfig):
        super().__init__()
        self.layer_types, self.window = config.layer_types, config.sliding_window
        self.embed_tokens = TextEmbedding(config)
        self.layers = [TextLayer(config, kind) for kind in config.layer_types]
        self.norm = OffsetRMSNorm(config.hidden_size, config.rms_norm_eps)

    def __call__(self, ids: mx.array) -> mx.array:
        x = self.embed_tokens(ids)
        mask = sliding_mask(ids.shape[1], self.window)
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            x = layer(x, mask if kind == "sliding_attention" else None)
        return self.norm(x)
