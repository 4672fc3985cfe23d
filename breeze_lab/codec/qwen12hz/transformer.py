"""Causal transformers with a sliding window, on [T, C]: one for the decoder, one for the encoder."""

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn

from ...gelu import gelu, gelu_tanh
from ...layers import Attention, GatedMLP, Linear, Rope
from ..base import StreamState

if TYPE_CHECKING:
    from .config import DecoderConfig, EncoderConfig


class WindowCache:
    """Keys and values of the `window - 1` positions before the present ones, kept in a stream's state."""

    def __init__(self, state: StreamState, window: int):
        self.offset = state.frames
        self._state, self._rows = state, window - 1

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """[1, H, T, D] each -> the same with the remembered positions in front."""
        keys = self._state.behind(keys, self._rows, axis=2, pad=False)
        return keys, self._state.behind(values, self._rows, axis=2, pad=False)


def window_mask(length: int, past: int, window: int) -> mx.array | None:
    """bool [length, past + length]: a query sees itself and the `window - 1` positions before it."""
    if length == 1 and past < window:
        return None
    query = mx.arange(past, past + length)[:, None]
    key = mx.arange(past + length)
    return (key <= query) & (key > query - window)


class LayerScale(nn.Module):
    """Multiplies each channel by a learned factor."""

    def __init__(self, dims: int):
        super().__init__()
        self.scale = mx.ones((dims,))

    def __call__(self, x: mx.array) -> mx.array:
        return x * self.scale


class FeedForward(nn.Module):
    """fc2(activation(fc1(x)))."""

    def __init__(self, dims: int, hidden: int, activation: str):
        super().__init__()
        self.activation = gelu if activation == "gelu" else gelu_tanh
        self.fc1 = Linear(dims, hidden, bias=False)
        self.fc2 = Linear(hidden, dims, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.fc2(self.activation(self.fc1(x)))


class Layer(nn.Module):
    """Pre-norm block whose two branches are scaled per channel, on [1, T, C]."""

    def __init__(self, dims: int, attention: Attention, mlp: nn.Module, norms: tuple[nn.Module, nn.Module]):
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm, self.post_attention_layernorm = norms
        self.self_attn_layer_scale, self.mlp_layer_scale = LayerScale(dims), LayerScale(dims)

    def __call__(self, x: mx.array, mask: mx.array | None, cache: WindowCache | None = None) -> mx.array:
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), mask, cache))
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))


class DecoderTransformer(nn.Module):
    """[T, latent_dim] -> [T, latent_dim] with RMSNorm and a gated MLP."""

    def __init__(self, c: "DecoderConfig"):
        super().__init__()
        self.window = c.sliding_window
        self.input_proj = Linear(c.latent_dim, c.hidden_size)
        self.output_proj = Linear(c.hidden_size, c.latent_dim)
        self.norm = nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        rope = Rope(c.head_dim, c.rope_theta)
        self.layers = [
            Layer(
                c.hidden_size,
                Attention(c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, rope),
                GatedMLP(c.hidden_size, c.intermediate_size),
                (nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps), nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)),
            )
            for _ in range(c.num_hidden_layers)
        ]

    def __call__(self, x: mx.array, state: StreamState) -> mx.array:
        mask = window_mask(x.shape[0], min(state.frames, self.window - 1), self.window)
        x = self.input_proj(x)[None]
        for layer in self.layers:
            x = layer(x, mask, WindowCache(state, self.window))
        return self.output_proj(self.norm(x)).squeeze(0)


class EncoderTransformer(nn.Module):
    """[T, hidden_size] -> the same, with LayerNorm and a plain MLP."""

    def __init__(self, c: "EncoderConfig"):
        super().__init__()
        self.window = c.sliding_window
        head_dim = c.head_dim or c.hidden_size // c.num_attention_heads
        rope = Rope(head_dim, c.rope_theta)
        self.layers = [
            Layer(
                c.hidden_size,
                Attention(c.hidden_size, c.num_attention_heads, c.num_key_value_heads, head_dim, rope),
                FeedForward(c.hidden_size, c.intermediate_size, c.hidden_act),
                (nn.LayerNorm(c.hidden_size, eps=c.norm_eps), nn.LayerNorm(c.hidden_size, eps=c.norm_eps)),
            )
            for _ in range(c.num_hidden_layers)
        ]

    def __call__(self, x: mx.array) -> mx.array:
        mask = window_mask(x.shape[0], 0, self.window)
        x = x[None]
        for layer in self.layers:
            x = layer(x, mask)
        return x.squeeze(0)
