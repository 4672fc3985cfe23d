"""Waft's language model in PyTorch: the modules, names and arithmetic of `breeze_lab.model`, for training.

Prompts are packed: several stand one after another in a row, and a mask keeps them apart, so that every step has the
same shapes. Shapes: B rows, S positions of a row, R text rows, L tokens of a text row, N chosen frames, K codebooks, C
channels, V ids a codebook, H heads, D head dim.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def waft_config(text_vocab: int = 192, **changes: Any) -> dict[str, Any]:
    """The `config.json` of Waft (25 M parameters), or of a smaller sister: text, backbone and depth take size
    changes."""
    text = dict(
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
    )
    back = dict(
        hidden_size=384,
        intermediate_size=1152,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=64,
    )
    depth = dict(
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
    )
    for part, name in ((text, "text"), (back, "backbone"), (depth, "depth")):
        part |= changes.pop(name, {})
    if changes:
        raise TypeError(f"unknown parts: {sorted(changes)}")
    kinds = ["sliding_attention", "full_attention"]
    text |= dict(
        vocab_size=text_vocab,
        layer_types=[kinds[i % 2] for i in range(text["num_hidden_layers"])],
        query_pre_attn_scalar=text["head_dim"],
        sliding_window=64,
        rms_norm_eps=1e-6,
        eoi_token_index=256000,
        hidden_activation="gelu_pytorch_tanh",
        rope_parameters={kind: {"rope_type": "default", "rope_theta": 1e4} for kind in kinds},
    )
    back |= dict(rms_norm_eps=1e-6, rope_theta=1e6, hidden_act="silu")
    scaling = dict(
        rope_type="llama3",
        factor=32.0,
        low_freq_factor=0.001953125,
        high_freq_factor=0.0078125,
        original_max_position_embeddings=16,
    )
    depth |= dict(
        num_codebooks=16, vocab_size=515,
        backbone_hidden_size=back["hidden_size"], audio_embed_size=back["hidden_size"],
        rms_norm_eps=1e-5, rope_theta=5e5, rope_scaling=scaling, hidden_act="silu",
    )  # fmt: skip
    return dict(
        model_type="breeze_tts", num_codebooks=16, vocab_size=515, audio_num_codebooks=16, audio_vocab_size=515,
        codebook_eos_token_id=0, text_frontend="hibari_us",
        piece_letters=240, trained=True, max_position_embeddings=2048,
        sample_rate=24000, codec_config={"codebook_size": 512},
        text_encoder_config=text, backbone_config=back, depth_decoder_config=depth,
    )  # fmt: skip


MICRO = dict(
    text=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, head_dim=16),
    backbone=dict(
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
    ),
    depth=dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
    ),
)


class RMSNorm(nn.Module):
    """x / rms(x) * (offset + weight); Gemma's kind has offset 1 and a weight that starts at 0."""

    def __init__(self, dims: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((dims,), 1.0 - offset))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (x.float() * scale * (self.weight.float() + self.offset)).to(x.dtype)


def rope_table(dims: int, theta: float, length: int, scaling: dict[str, Any] | None = None) -> Tensor:
    """[2, length, D]: cosines and sines for halves rotated, with llama3 stretching where asked."""
    freqs = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    if scaling and scaling["rope_type"] == "llama3":
        turns = scaling["original_max_position_embeddings"] * freqs / (2 * np.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0, 1)
        freqs = freqs * ((1 - kept) / scaling["factor"] + kept)
    angles = np.outer(np.arange(length), np.concatenate([freqs, freqs]))
    return torch.tensor(np.stack([np.cos(angles), np.sin(angles)]), dtype=torch.float32)


class Attention(nn.Module):
    """Grouped-query attention over [B, S, C] with rotary positions from the start of the row."""

    def __init__(
        self, c: dict[str, Any], theta: float, length: int, scale: float | None = None, norm: float | None = None
    ):
        super().__init__()
        dims, self.heads, self.kv, self.dim = (
            c["hidden_size"],
            c["num_attention_heads"],
            c["num_key_value_heads"],
            c["head_dim"],
        )
        self.scale = self.dim**-0.5 if scale is None else scale
        self.q_proj = nn.Linear(dims, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(dims, self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(dims, self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, dims, bias=False)
        self.normed = norm is not None
        if norm is not None:
            self.q_norm, self.k_norm = RMSNorm(self.dim, 1e-6, norm), RMSNorm(self.dim, 1e-6, norm)
        self.register_buffer("rope", rope_table(self.dim, theta, length, c.get("rope_scaling")), persistent=False)

    def rotate(self, x: Tensor, at: Tensor | None) -> Tensor:  # [B, H, S, D], at [B, S]
        cos, sin = self.rope[:, : x.shape[2]] if at is None else self.rope[:, at][:, :, None]
        a, b = x.float().chunk(2, -1)
        return (x.float() * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)

    def forward(
        self, x: Tensor, mask: Tensor | None, at: Tensor | None = None, cache: list[Tensor] | None = None
    ) -> Tensor:
        """`at` [B, S] gives the positions; `cache` holds the keys and values so far, and is added to."""
        B, S, _ = x.shape
        q, k, v = (p(x).view(B, S, -1, self.dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.normed:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = self.rotate(q.transpose(1, 2), at), self.rotate(k.transpose(1, 2), at), v.transpose(1, 2)
        if cache is not None:
            k, v = cache[:] = (
                [torch.cat([old, new], 2) for old, new in zip(cache, (k, v), strict=True)] if cache else [k, v]
            )
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale)
        return self.o_proj(out.transpose(1, 2).reshape(B, S, -1))


class GatedMLP(nn.Module):
    def __init__(self, c: dict[str, Any], gelu: bool = False):
        super().__init__()
        dims, hidden, self.gelu = c["hidden_size"], c["intermediate_size"], gelu
        self.gate_proj, self.up_proj = nn.Linear(dims, hidden, bias=False), nn.Linear(dims, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dims, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        return self.down_proj((F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)) * self.up_proj(x))


class TextLayer(nn.Module):
    """T5Gemma2's block: norms before and after attention and MLP."""

    def __init__(self, c: dict[str, Any], kind: str, length: int, drop: float):
        super().__init__()
        theta = c["rope_parameters"][kind]["rope_theta"]
        self.self_attn = Attention(c, theta, length, scale=c["query_pre_attn_scalar"] ** -0.5, norm=1.0)
        self.mlp, self.drop = GatedMLP(c, gelu=True), nn.Dropout(drop)
        for place in ("pre_self_attn", "post_self_attn", "pre_feedforward", "post_feedforward"):
            setattr(self, f"{place}_layernorm", RMSNorm(c["hidden_size"], c["rms_norm_eps"], 1.0))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.drop(self.post_self_attn_layernorm(self.self_attn(self.pre_self_attn_layernorm(x), mask)))
        return x + self.drop(self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x))))


class TextEmbedding(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c["vocab_size"], c["hidden_size"]) * c["hidden_size"] ** -0.5)
        self.register_buffer("eoi_embedding", torch.zeros(c["hidden_size"]))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) * self.weight.shape[1] ** 0.5


class TextEncoder(nn.Module):
    """Packed text rows [R, L] -> [R, L, C]; `segment` [R, L] tells the segments apart, -1 is padding."""

    def __init__(self, c: dict[str, Any], length: int, drop: float):
        super().__init__()
        self.kinds, self.window = c["layer_types"], c["sliding_window"]
        self.embed_tokens = TextEmbedding(c)
        self.layers = nn.ModuleList([TextLayer(c, kind, length, drop) for kind in self.kinds])
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"], 1.0)

    def forward(self, ids: Tensor, segment: Tensor) -> Tensor:
        same = segment[:, None, :, None] == segment[:, None, None, :]
        at = torch.arange(ids.shape[1], device=ids.device)
        distance = at[:, None] - at[None, :]
        near = same & (distance < (self.window + 1) // 2) & (-distance <= self.window // 2)
        x = self.embed_tokens(ids)
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            x = layer(x, near if kind == "sliding_attention" else same)
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Pre-norm block of Llama and Qwen3."""

    def __init__(self, c: dict[str, Any], length: int, drop: float, norm: float | None):
        super().__init__()
        self.self_attn = Attention(c, c["rope_theta"], length, norm=norm)
        self.mlp, self.drop = GatedMLP(c), nn.Dropout(drop)
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(
        self, x: Tensor, mask: Tensor | None, at: Tensor | None = None, cache: list[Tensor] | None = None
    ) -> Tensor:
        x = x + self.drop(self.self_attn(self.input_layernorm(x), mask, at, cache))
        return x + self.drop(self.mlp(self.post_attention_layernorm(x)))


class Backbone(nn.Module):
    """[B, S, C] -> [B, S, C]; causal within a prompt: `prompt` [B, S] tells the prompts of a row apart."""

    def __init__(self, c: dict[str, Any], length: int, drop: float):
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer(c, length, drop, norm=0.0) for _ in range(c["num_hidden_layers"])])
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x: Tensor, prompt: Tensor) -> Tensor:
        same = prompt[:, None, :, None] == prompt[:, None, None, :]
        mask = same & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class DepthModel(nn.Module):
    def __init__(self, c: dict[str, Any], drop: float):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["num_codebooks"] * c["vocab_size"], c["audio_embed_size"])
        self.inputs_embeds_projector = nn.Linear(c["audio_embed_size"], c["hidden_size"], bias=False)
        layers = [DecoderLayer(c, c["num_codebooks"], drop, norm=None) for _ in range(c["num_hidden_layers"])]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs_embeds_projector(x)
        for layer in self.layers:
            x = layer(x, None)
        return self.norm(x)


class CodebooksHead(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(c["num_codebooks"] - 1, c["hidden_size"], c["vocab_size"]) * c["hidden_size"] ** -0.5 * 0.5
        )


class DepthDecoder(nn.Module):
    def __init__(self, c: dict[str, Any], drop: float):
        super().__init__()
        self.model, self.codebooks_head = DepthModel(c, drop), CodebooksHead(c)


@dataclass
class Batch:
    """One packed batch; every field has the same shape at every step. Integers are int64 unless said."""

    text: Tensor  # [R, L] token ids
    segment: Tensor  # [R, L] number of the text segment, -1 padding
    source: Tensor  # [B, S] index into the flat text outputs where this position is text, else -1
    prompt: Tensor  # [B, S] number of the prompt, -1 padding
    frames: Tensor  # [B, S, K] codes fed in, where this position is a frame
    target: Tensor  # [B, S] class of codebook 0 to predict here (end class included), -100 none
    chosen: Tensor  # [N] flat positions whose depth codes are predicted
    depth_in: Tensor  # [N, K] codes fed to the depth decoder
    depth_target: Tensor  # [N, K - 1] codes it must predict, -100 where the slot is empty

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(**{k: v.to(device, non_blocking=True) for k, v in self.__dict__.items()})

    def copy_(self, other: "Batch") -> None:
        for name, tensor in self.__dict__.items():
            tensor.copy_(getattr(other, name))


class WaftLM(nn.Module):
    """The whole model. State names equal those of `breeze_lab.model.Breeze`."""

    def __init__(self, config: dict[str, Any], *, row: int = 512, text_row: int = 512, drop: float = 0.0):
        super().__init__()
        text, back, depth = config["text_encoder_config"], config["backbone_config"], config["depth_decoder_config"]
        self.codebooks, self.vocab = depth["num_codebooks"], depth["vocab_size"]
        self.text_encoder = TextEncoder(text, text_row, drop)
        self.text_encoder_proj = nn.Linear(text["hidden_size"], back["hidden_size"], bias=False)
        self.backbone_model = Backbone(back, row, drop)
        self.lm_head = nn.Linear(back["hidden_size"], self.vocab + 1, bias=False)
        self.depth_decoder = DepthDecoder(depth, drop)
        self.drop = nn.Dropout(drop)
        offsets = torch.arange(self.codebooks) * self.vocab
        self.register_buffer("offsets", offsets, persistent=False)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                small = 0.3 if name.endswith(("o_proj", "down_proj")) else 0.5 if name == "lm_head" else 1.0
                nn.init.normal_(module.weight, std=small * module.weight.shape[1] ** -0.5)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.25)

    def embed_frames(self, codes: Tensor) -> Tensor:
        """[..., K] -> [..., C]: the sum of a frame's code embeddings."""
        return self.depth_decoder.model.embed_tokens(codes + self.offsets).sum(-2)

    def depth_logits(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """Hidden states [N, C] and codes [N, K] -> logits [N, K - 1, V] of the codebooks after the first."""
        model = self.depth_decoder.model
        known = model.embed_tokens(codes[:, :-1] + self.offsets[:-1])
        states = model(torch.cat([hidden[:, None].to(known.dtype), known], 1))[:, 1:]
        return torch.einsum("nkc,kcv->nkv", states, self.depth_decoder.codebooks_head.weight.to(states.dtype))

    def hidden(self, b: Batch) -> Tensor:
        """[B, S, C] normed hidden states of the backbone."""
        text = self.text_encoder_proj(self.text_encoder(b.text, b.segment)).flatten(0, 1)
        spoken = self.embed_frames(b.frames)
        x = torch.where((b.source >= 0)[..., None], text[b.source.clamp(min=0)].to(spoken.dtype), spoken)
        return self.backbone_model(self.drop(x), b.prompt)

    def losses(self, b: Batch) -> tuple[Tensor, Tensor]:
        """(cross entropy of codebook 0 with the end class, mean cross entropy of the other codebooks), in nats."""
        hidden = self.hidden(b).flatten(0, 1)
        first = F.cross_entropy(self.lm_head(hidden).float(), b.target.flatten(), ignore_index=-100)
        logits = self.depth_logits(hidden[b.chosen], b.depth_in).float()
        return first, F.cross_entropy(logits.flatten(0, 1), b.depth_target.flatten(), ignore_index=-100)
