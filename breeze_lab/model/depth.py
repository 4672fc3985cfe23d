"""Depth decoder: the codebooks of one frame, one position each.

Position 0 is the backbone's hidden state; position p >= 1 is the code of codebook p - 1, looked up at offset
(p - 1) * V; the hidden state of position p >= 1 predicts codebook p through head p - 1.
Shapes: B batch, S positions, K codebooks, V ids a codebook, E embedding width, C channels.
"""

import mlx.core as mx
import mlx.nn as nn

from ..cache import FrameCache
from ..config import DepthConfig
from ..layers import Attention, DecoderLayer, Linear, Rope, run_causal


class CodebooksHead(nn.Module):
    """One [C, V] projection for each codebook after the first."""

    def __init__(self, config: DepthConfig):
        super().__init__()
        self.weight = mx.zeros((config.num_codebooks - 1, config.hidden_size, config.vocab_size))

    def __call__(self, hidden: mx.array, index: int) -> mx.array:
        return hidden @ self.weight[index : index + 1].squeeze(0)  # a view; `weight[index]` copies the matrix


class DepthModel(nn.Module):
    """Embedding, projection, Llama layers and norm."""

    def __init__(self, config: DepthConfig):
        super().__init__()
        scaling = config.rope_scaling if (config.rope_scaling or {}).get("rope_type") != "default" else None
        rope = Rope(config.head_dim, config.rope_theta, llama3=scaling)

        def layer() -> DecoderLayer:
            attention = Attention(
                config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim, rope
            )
            return DecoderLayer(config.hidden_size, config.intermediate_size, attention, config.rms_norm_eps)

        self.embed_tokens = nn.Embedding(config.num_codebooks * config.vocab_size, config.audio_embed_size)
        self.inputs_embeds_projector = Linear(config.audio_embed_size, config.hidden_size, bias=False)
        self.layers = [layer() for _ in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def __call__(self, x: mx.array, caches: list[FrameCache] | None = None) -> mx.array:
        """[B, S, E] inputs -> [B, S, C] normed hidden states; causal."""
        return self.norm(run_causal(self.layers, self.inputs_embeds_projector(x), caches))


class DepthDecoder(nn.Module):
    """The stack with its heads; `breeze_lab.frames` walks it."""

    def __init__(self, config: DepthConfig):
        super().__init__()
        self.num_codebooks, self.vocab_size = config.num_codebooks, config.vocab_size
        self.model = DepthModel(config)
        self.codebooks_head = CodebooksHead(config)

    def embed_codes(self, codes: mx.array, first_codebook: int = 0) -> mx.array:
        """int [B, S] codes of successive codebooks -> [B, S, E]."""
        codebooks = mx.arange(first_codebook, first_codebook + codes.shape[1])
        return self.model.embed_tokens(codes + codebooks * self.vocab_size)

    def make_cache(self) -> list[FrameCache]:
        """A fresh cache a layer, for one frame."""
        return [FrameCache(self.num_codebooks) for _ in self.model.layers]
