"""Quantize a checkpoint into a new folder."""

import json
import re
import shutil
from pathlib import Path

import mlx.core as mx

from .errors import BreezeLabError
from .files import as_path
from .hub import find_folder
from .random_checkpoint import new_folder
from .weights import read_json, read_tensors, write_tensors

DEPTH_LINEARS = r"depth_decoder\.model\.(inputs_embeds_projector|layers\.\d+\.(self_attn|mlp)\.\w+_proj)"
# What mlx-audio quantizes too: linear layers and embeddings, but neither the text encoder's own embedding nor the
# stacked heads of the depth decoder.
ALL = (
    r"(text_encoder|backbone_model|depth_decoder\.model)\.layers\.\d+\.(self_attn|mlp)\.\w+_proj"
    r"|text_encoder_proj|lm_head|embed_text_tokens"
    r"|depth_decoder\.model\.(inputs_embeds_projector|embed_tokens)|backbone_model\.embed_tokens\.embed_audio_tokens"
)
SCHEMES: dict[str, tuple[dict, str]] = {
    "int8-depth": ({"group_size": 64, "bits": 8, "mode": "affine"}, DEPTH_LINEARS),
    "mxfp8": ({"group_size": 32, "bits": 8, "mode": "mxfp8"}, ALL),
    "mxfp4": ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, ALL),
    "int8": ({"group_size": 64, "bits": 8, "mode": "affine"}, ALL),
}


def convert(source: str | Path, folder: str | Path, quantize: str) -> Path:
    """Write a quantized copy of a checkpoint to the new folder `folder`, and return that.

    Args:
        source: a folder or a Hub id.
        quantize: "int8-depth" (affine, group 64, the depth decoder's linear layers alone), "mxfp8" (group 32),
            "mxfp4" (group 32) or "int8" (affine, group 64), the last three for the whole model.

    The tied audio embedding is written for depth decoder and backbone alike, as MLX checkpoints have it; the left-over
    `codec_model` is dropped. Layers whose rows the group does not divide stay as they are.

    Raises:
        BreezeLabError: an unknown scheme, a source that is quantized already, or a folder that is not empty.
    """
    if quantize not in list(SCHEMES):
        raise BreezeLabError(f"Unknown scheme {quantize!r}. Choose one of {', '.join(SCHEMES)}.")
    source = find_folder(source)
    config = read_json(source / "config.json")
    if config.get("quantization") or config.get("quantization_config"):
        raise BreezeLabError(f"{source} is quantized already. Start from a dense checkpoint (bfloat16, float32).")
    if source.resolve() in (target := as_path(folder, "the new folder").resolve(), *target.parents):
        raise BreezeLabError(f"{folder} lies in the checkpoint to convert. Choose a folder outside {source}.")
    tensors = {name: array for name, array in read_tensors(source).items() if not name.startswith("codec_model.")}
    tied = tensors.get("depth_decoder.model.embed_tokens.weight")
    if tied is not None:
        tensors["backbone_model.embed_tokens.embed_audio_tokens.weight"] = tied
    folder = new_folder(folder)
    packing, layers = SCHEMES[quantize]
    write_tensors(folder / "model.safetensors", _pack(tensors, packing, re.compile(layers)))
    config |= {"quantization": packing, "quantization_config": packing}
    for path in source.iterdir():
        if path.suffix != ".safetensors" and path.name not in ("config.json", "model.safetensors.index.json"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder


def _pack(tensors: dict[str, mx.array], packing: dict, layers: re.Pattern[str]) -> dict[str, mx.array]:
    packed: dict[str, mx.array] = {}
    for name, array in tensors.items():
        path, _, kind = name.rpartition(".")
        if kind == "weight" and layers.fullmatch(path) and array.shape[-1] % packing["group_size"] == 0:
            parts = mx.quantize(array, **packing)
            packed |= {f"{path}.{k}": part for k, part in zip(("weight", "scales", "biases"), parts, strict=False)}
        else:
            packed[name] = array
    return packed
