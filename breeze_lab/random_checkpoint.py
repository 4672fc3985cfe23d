"""Random checkpoints in the real layout: for tests (tiny), for measuring (small, full), for a machine without Waft.

Everything that a Breeze TTS 2 checkpoint holds is there under its name, dead weights included, so that other
implementations load the folder too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from .codec import make_random_codec
from .config import parse_config
from .errors import BreezeLabError
from .files import as_path
from .generation_config import write_sampling
from .keys import check_seed
from .model import Breeze
from .samplers import Sampling
from .weights import write_tensors

BYTES_AND_MARKS, GEMMA = 256 + 3, 262144  # sizes of the vocabulary below the special tokens


@dataclass(frozen=True)
class Shape:
    """Sizes of the three stacks: (width, layers, heads, key/value heads, head dim, hidden)."""

    text: tuple[int, int, int, int, int, int]
    backbone: tuple[int, int, int, int, int, int]
    depth: tuple[int, int, int, int, int, int]
    codebook_size: int
    base_vocabulary: int = BYTES_AND_MARKS
    dtype: mx.Dtype = mx.float32


SHAPES = {
    "tiny": Shape((64, 3, 2, 1, 32, 128), (64, 2, 4, 2, 32, 128), (64, 2, 2, 1, 32, 128), 128),
    "small": Shape((256, 6, 4, 1, 64, 1024), (512, 8, 8, 4, 64, 1536), (256, 4, 4, 2, 64, 1024), 512),
    "full": Shape(
        (1152, 26, 4, 1, 256, 6912),
        (2048, 28, 16, 8, 128, 6144),
        (1024, 12, 8, 2, 128, 8192),
        2048,
        GEMMA,
        mx.bfloat16,
    ),
}
SPECIAL = ["<|AUDIO|>", "<|audio_eos|>", *(f"[S{i}]" for i in range(10)), "<ins_bos>", "<ins_eos>"]


def make_checkpoint(folder: str | Path, shape: str = "tiny", seed: int = 0) -> Path:
    """Write a random checkpoint, tokenizer and codec included, and return its folder.

    Args:
        folder: a new or empty one.
        shape: "tiny" (about 1 M parameters, for tests), "small" (about 40 M, Waft's sizes) or "full" (the real sizes,
            8 GB of disk).
        seed: same seed, same weights.

    Raises:
        BreezeLabError: an unknown shape, or a folder that holds something already.
    """
    if shape not in list(SHAPES):
        raise BreezeLabError(f"Unknown shape {shape!r}. Choose one of {', '.join(SHAPES)}.")
    check_seed(seed)
    folder = new_folder(folder)
    sizes = SHAPES[shape]
    tokenizer = _tokenizer(sizes.base_vocabulary)
    make_random_codec(folder / "audio_tokenizer", shape, seed, codebook_size=sizes.codebook_size)
    config = _config(sizes)
    index: dict[str, str] = {}
    keys = _keys(seed)
    for name, tensors in _shards(Breeze(parse_config(config)), config, keys, sizes.dtype):
        write_tensors(folder / name, tensors)
        index |= dict.fromkeys(tensors, name)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}, indent=1) + "\n")
    write_sampling(folder, Sampling())
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder


def random_config(shape: str) -> dict[str, Any]:
    """The config.json object of a random checkpoint of this shape."""
    return _config(SHAPES[shape])


def new_folder(folder: str | Path) -> Path:
    """Make `folder`, which must be new or empty."""
    folder = as_path(folder, "the new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise BreezeLabError(f"{folder} cannot be made ({error.strerror}). Choose another place.") from None
    if occupied:
        raise BreezeLabError(f"{folder} is not empty. Give a new folder.")
    return folder


def _tokenizer(base: int) -> Tokenizer:
    """Bytes as tokens, Gemma's start token at the head of every segment, Breeze's 14 special tokens."""
    vocab = {"<pad>": 0, "<eos>": 1, "<bos>": 2}
    vocab |= {symbol: 3 + i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {token: base + i for i, token in enumerate(SPECIAL)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<pad>", "<eos>", "<bos>", *SPECIAL)])
    return tokenizer


def _stack(sizes: tuple[int, int, int, int, int, int]) -> dict[str, Any]:
    names = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size".split()
    return dict(zip(names, sizes, strict=True))


def _config(sizes: Shape) -> dict[str, Any]:
    audio = sizes.base_vocabulary  # the first special token is <|AUDIO|>
    vocabulary, codes, real = audio + len(SPECIAL), sizes.codebook_size + 3, audio == GEMMA
    width = sizes.backbone[0]
    layers = sizes.text[1]
    return {
        "model_type": "breeze_tts",
        "trained": False,
        "num_codebooks": 16,
        "vocab_size": codes,
        "audio_embed_size": width,
        "text_vocab_size": vocabulary,
        "audio_token_id": audio,
        "audio_eos_token_id": audio + 1,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "codebook_pad_token_id": codes - 1,
        "codebook_eos_token_id": 0,
        "max_position_embeddings": 2048,
        "sample_rate": 24000,
        "codec_config": {"codebook_size": sizes.codebook_size},
        "text_encoder_config": _stack(sizes.text)
        | {
            "vocab_size": vocabulary,
            "rms_norm_eps": 1e-6,
            "query_pre_attn_scalar": sizes.text[4],
            "sliding_window": 512 if real else 16,
            "eoi_token_index": 256000 if real else 1,
            "layer_types": ["full_attention" if i % 6 == 5 or i == 1 else "sliding_attention" for i in range(layers)],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
        "backbone_config": _stack(sizes.backbone)
        | {"rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 40960},
        "depth_decoder_config": _stack(sizes.depth)
        | {
            "num_codebooks": 16,
            "vocab_size": codes,
            "backbone_hidden_size": width,
            "audio_embed_size": width,
            "rms_norm_eps": 1e-5,
            "rope_theta": 5e5,
            "max_position_embeddings": 33,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 32.0,
                "low_freq_factor": 0.001953125,
                "high_freq_factor": 0.0078125,
                "original_max_position_embeddings": 16,
            },
        },
    }


def _keys(seed: int) -> Iterator[mx.array]:
    key = mx.random.key(seed)
    while True:
        key, out = mx.random.split(key)
        yield out


def _shards(
    lm: Breeze, config: dict[str, Any], keys: Iterator[mx.array], dtype: mx.Dtype
) -> Iterator[tuple[str, dict[str, mx.array]]]:
    """One file a part, each made and written before the next, so that the full shape needs little memory."""
    shapes = {name: array.shape for name, array in dict(tree_flatten(lm.parameters())).items()}
    shapes["embed_text_tokens.weight"] = (config["text_vocab_size"], config["backbone_config"]["hidden_size"])
    parts: dict[str, list[str]] = {}
    for name in sorted(shapes):
        parts.setdefault(name.split(".")[0], []).append(name)
    for number, names in enumerate(parts.values(), 1):
        # Published weights have bfloat16 values, whatever they are stored in.
        drawn = {name: _tensor(name, shapes[name], next(keys)).astype(mx.bfloat16) for name in names}
        tensors = {name: array.astype(dtype) for name, array in drawn.items()}
        mx.eval(tensors)
        yield f"model-{number:05d}-of-{len(parts):05d}.safetensors", tensors


def _tensor(name: str, shape: tuple[int, ...], key: mx.array) -> mx.array:
    """float32 weights that keep the variance of their input, so that activations and logits stay near unit size."""
    noise = mx.random.normal(shape, key=key)
    if len(shape) == 1:
        centered = name.startswith("text_encoder.")  # its norms store an offset from one
        return 0.1 * noise + (0.0 if centered else 1.0)
    if "embed" in name and "proj" not in name:
        # Text embeddings are scaled by sqrt(C) when looked up; of audio embeddings 16 are added.
        return noise / shape[-1] ** 0.5 if name.startswith("text_encoder.") else noise / 4
    inputs = shape[-2] if len(shape) == 3 else shape[-1]  # codebooks_head is [K - 1, C, V], linears are [out, in]
    return noise / inputs**0.5 * (2.0 if "head" in name else 1.0)
