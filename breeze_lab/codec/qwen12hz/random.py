"""Random checkpoints of the codec in the published names and layout, for tests and measurements.

The weights are scaled so that activations keep their size through the layers: sound comes out bounded and not silent,
and codes vary with the sound. `full` has the published sizes. `tiny` and `small` have fewer upsampling stages, so
that their last one keeps more than 64 channels: mlx-audio 0.6.2 misreads narrower convolutions of one tap.
"""

import json
import re
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx

from ...errors import BreezeLabError
from ...weights import write_tensors
from .codec import Qwen12HzCodec
from .config import MODEL_TYPE, parse_config
from .layout import Shape, published_shapes


def _transformer(dims: int, hidden: int, *, heads: int, layers: int, head_dim: int | None = None) -> dict[str, int]:
    return {
        "hidden_size": dims,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": head_dim or dims // heads,
    }


_DECODER = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "layer_scale_initial_scale": 0.01,
    "max_position_embeddings": 8000,
    "num_semantic_quantizers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": 72,
}
_ENCODER = {
    "_frame_rate": 12.5,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "audio_channels": 1,
    "compress": 2,
    "dilation_growth_rate": 2,
    "kernel_size": 7,
    "last_kernel_size": 3,
    "layer_scale_initial_scale": 0.01,
    "max_position_embeddings": 8000,
    "norm_eps": 1e-5,
    "num_residual_layers": 1,
    "num_semantic_quantizers": 1,
    "pad_mode": "constant",
    "residual_kernel_size": 3,
    "rope_theta": 10000.0,
    "sampling_rate": 24000,
    "sliding_window": 250,
    "upsampling_ratios": [8, 6, 5, 4],
    "use_causal_conv": True,
    "use_conv_shortcut": False,
}
# hidden_act "gelu" is the exact form, as published. mlx-audio 0.6.2 always computes the tanh form, so tiny and small
# say that one, and both programs compute the same function.
_DECODERS: dict[str, dict[str, Any]] = {
    "tiny": _transformer(64, 128, heads=4, layers=2)
    | {
        "latent_dim": 96,
        "codebook_dim": 144,
        "decoder_dim": 288,
        "upsampling_ratios": [8, 5],
        "upsample_rates": [4, 12],
    },
    "small": _transformer(256, 512, heads=8, layers=4)
    | {
        "latent_dim": 256,
        "codebook_dim": 256,
        "decoder_dim": 288,
        "upsampling_ratios": [4, 4],
        "upsample_rates": [8, 15],
    },
    "full": _transformer(512, 1024, heads=16, layers=8, head_dim=64)
    | {"latent_dim": 1024, "codebook_dim": 512, "decoder_dim": 1536, "upsampling_ratios": [2, 2]}
    | {"upsample_rates": [8, 5, 4, 3]},
}
_ENCODERS: dict[str, dict[str, Any]] = {
    "tiny": _transformer(64, 128, heads=4, layers=2)
    | {"num_filters": 8, "codebook_dim": 32, "hidden_act": "gelu_pytorch_tanh"},
    "small": _transformer(256, 512, heads=8, layers=4)
    | {"num_filters": 16, "codebook_dim": 128, "hidden_act": "gelu_pytorch_tanh"},
    "full": _transformer(512, 2048, heads=8, layers=8) | {"num_filters": 64, "codebook_dim": 256, "hidden_act": "gelu"},
}


def random_config(shape: str, num_codebooks: int = 16, codebook_size: int | None = None) -> dict[str, Any]:
    """The config.json object of a random codec. As published, the encoder has twice the quantizers that count."""
    if shape not in _DECODERS:
        raise BreezeLabError(f"Unknown codec shape {shape!r}. Choose one of {', '.join(_DECODERS)}.")
    decoder, encoder = _DECODERS[shape], _ENCODERS[shape]
    codebook_size = codebook_size or (128 if shape == "tiny" else 2048)
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": MODEL_TYPE,
        "encoder_valid_num_quantizers": num_codebooks,
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": prod(decoder["upsample_rates"]) * prod(decoder["upsampling_ratios"]),
        "encode_downsample_rate": 1920,
        "decoder_config": _DECODER
        | decoder
        | {
            "num_quantizers": num_codebooks,
            "codebook_size": codebook_size,
            "semantic_codebook_size": 2 * codebook_size,
            "vector_quantization_hidden_dimension": decoder["codebook_dim"],
        },
        "encoder_config": _ENCODER
        | encoder
        | {
            "num_quantizers": 2 * num_codebooks,
            "codebook_size": codebook_size,
            "vector_quantization_hidden_dimension": encoder["codebook_dim"],
        },
    }


def make_random_codec(
    folder: Path, shape: str, seed: int = 0, *, num_codebooks: int = 16, codebook_size: int | None = None
) -> None:
    """Write `config.json` and `model.safetensors` of a random codec into `folder`, which is made where needed.

    Args:
        folder: such as `CHECKPOINT/audio_tokenizer`.
        shape: "tiny" (about 2 M parameters), "small" or "full" (the published sizes).
        seed: the same seed gives the same file.
        num_codebooks: K, to fit a language model.
        codebook_size: entries of each codebook; 2048 where not given, 128 for "tiny".
    """
    write_random(folder, random_config(shape, num_codebooks, codebook_size), seed)


def write_random(folder: Path, data: dict[str, Any], seed: int) -> None:
    """Write a random codec of the configuration `data`, a config.json object."""
    config = parse_config(data, "config.json")
    shapes = published_shapes(Qwen12HzCodec(config), config)
    keys = mx.random.split(mx.random.key(seed), len(shapes))
    tensors = {name: _draw(name, shapes[name], key) for name, key in zip(sorted(shapes), keys, strict=True)}
    for name in tensors:
        if name.endswith("cluster_usage"):  # the sum that goes with the count
            total = name.replace("cluster_usage", "embedding_sum" if "._codebook." in name else "embed_sum")
            tensors[total] = tensors[total] * tensors[name][:, None]
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _draw(name: str, shape: Shape, key: mx.array) -> mx.array:
    """A tensor by its role, which its name tells."""
    last = name.rsplit(".", 1)[1]
    if last in ("alpha", "beta"):
        return mx.random.uniform(-0.5, 0.5, shape, key=key)  # logarithms
    if last in ("scale", "gamma"):
        return mx.full(shape, 0.3)
    if last == "initialized":
        return mx.ones(shape)
    if last == "cluster_usage":
        return mx.random.uniform(0.5, 2.0, shape, key=key)
    if last in ("embedding_sum", "embed_sum"):  # entries of equal length: none is nearest to everything
        entries = mx.random.normal(shape, key=key)
        return 0.5 * entries * (shape[1] / entries.square().sum(axis=1, keepdims=True)).sqrt()
    if "norm" in name:
        noise = 0.1 * mx.random.normal(shape, key=key)
        return 1.0 + noise if last == "weight" else noise
    if last == "bias":
        return mx.random.normal(shape, key=key) * (0.0 if shape == (1,) else 0.02)
    return _gain(name, shape) * _taps(name, shape, key)


def _taps(name: str, shape: Shape, key: mx.array) -> mx.array:
    """Normal weights that keep the size of what passes through."""
    weight = mx.random.normal(shape, key=key)
    if re.fullmatch(r"decoder\.upsample\.\d+\.0\.conv\.weight", name):  # transposed, one tap a sample
        return weight * shape[0] ** -0.5
    if re.fullmatch(r"decoder\.decoder\.\d+\.block\.1\.conv\.weight", name):  # transposed, two taps a sample
        return weight * (2 * shape[0]) ** -0.5
    if name.startswith("decoder.decoder.") and shape[0] == 1:  # the last one: its taps cancel, so no constant passes
        weight = weight - weight.mean(axis=2, keepdims=True)
    return weight * prod(shape[1:]) ** -0.5


def _gain(name: str, shape: Shape) -> float:
    if ".conv2." in name:
        return 0.3  # inside a residual unit
    if name.startswith("decoder.decoder.") and shape[0] == 1:
        return 0.06  # sound comes out at about a tenth of full scale
    return 8.0 if name == "encoder.encoder.layers.0.conv.weight" else 1.0  # and goes in at about that
