"""The language model of Breeze TTS 2 with its parts under their checkpoint names."""

import mlx.core as mx
import mlx.nn as nn

from ..config import BreezeConfig
from ..layers import Linear
from .backbone import Backbone
from .depth import DepthDecoder
from .text_encoder import TextEncoder


class Breeze(nn.Module):
    """Text encoder, projection, backbone, head of codebook 0, depth decoder.

    The table of audio embeddings is stored once, in the depth decoder; the backbone reads it there.
    Shapes: B batch, T text, F frames, K codebooks, C backbone channels, V ids a codebook.
    """

    def __init__(self, config: BreezeConfig):
        super().__init__()
        self.text_encoder = TextEncoder(config.text_encoder)
        self.text_encoder_proj = Linear(config.text_encoder.hidden_size, config.backbone.hidden_size, bias=False)
        self.backbone_model = Backbone(config.backbone)
        self.lm_head = Linear(config.backbone.hidden_size, config.vocab_size + 1, bias=False)
        self.depth_decoder = DepthDecoder(config.depth)

    def embed_text(self, ids: mx.array) -> mx.array:
        """int [B, T] -> [B, T, C]; one text segment."""
        return self.text_encoder_proj(self.text_encoder(ids))

    def embed_frames(self, codes: mx.array) -> mx.array:
        """int [B, F, K] -> [B, F, C]: the sum of a frame's code embeddings."""
        B, F, K = codes.shape
        return self.depth_decoder.embed_codes(codes.reshape(B * F, K)).sum(axis=1).reshape(B, F, -1)
