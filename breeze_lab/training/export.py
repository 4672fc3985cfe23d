"""Training weights -> a checkpoint that `breeze_lab.load` reads.

    python -m breeze_lab.training.export --weights runs/lm/weights.pt --codec runs/codec/audio_tokenizer --out data/waft

Linear layers are stored in bfloat16, or packed in 8 bits (affine, groups of 64) with --int8; on a CPU both are float32
once loaded.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from . import tokens

GENERATION = {"do_sample": True, "temperature": 0.5, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0}


def pack_int8(weight: torch.Tensor, group: int = 64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """MLX's affine packing of [O, I]: uint32 [O, I / 4], scales and biases [O, I / group]; w = scale * q + bias."""
    groups = weight.float().unflatten(-1, (-1, group))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((high - low) / 255).clamp(min=1e-8).to(torch.bfloat16).float()
    low = low.to(torch.bfloat16).float()
    q = ((groups - low) / scale).round().clamp(0, 255).to(torch.uint8).flatten(-2)
    packed = q.contiguous().view(torch.int32)  # four codes a word, the first lowest: little endian
    return packed.view(torch.uint32), scale.squeeze(-1).to(torch.bfloat16), low.squeeze(-1).to(torch.bfloat16)


def unpack_int8(packed: torch.Tensor, scale: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """The float32 [O, I] that `pack_int8` packed."""
    q = packed.view(torch.int32).contiguous().view(torch.uint8).float()
    return (q.unflatten(-1, (scale.shape[-1], -1)) * scale.float()[..., None] + low.float()[..., None]).flatten(-2)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """float32 state of `WaftLM` from an exported checkpoint, packed or not, or from `train_lm`'s weights.pt."""
    if folder.suffix == ".pt":
        data = torch.load(folder, map_location="cpu", weights_only=True)
        return {name: tensor.float() for name, tensor in data["weights"].items()}
    stored = load_file(folder / "model.safetensors")
    state = {}
    for name, tensor in stored.items():
        path, _, kind = name.rpartition(".")
        if kind == "weight" and f"{path}.scales" in stored:
            state[name] = unpack_int8(tensor, stored[f"{path}.scales"], stored[f"{path}.biases"])
        elif kind not in ("scales", "biases"):
            state[name] = tensor.float()
    return state


def tensors_of(weights: dict[str, torch.Tensor], int8: bool) -> dict[str, torch.Tensor]:
    """The tensors of model.safetensors under their checkpoint names."""
    out: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        linear = name.endswith(("_proj.weight", "lm_head.weight", "inputs_embeds_projector.weight"))
        packs = linear or name == "depth_decoder.model.embed_tokens.weight"
        if int8 and packs and tensor.shape[-1] % 64 == 0:
            path = name.removesuffix(".weight")
            parts = pack_int8(tensor)
            out |= {f"{path}.{kind}": part for kind, part in zip(("weight", "scales", "biases"), parts, strict=True)}
        else:
            out[name] = tensor.to(torch.bfloat16)
    return {k: v.contiguous() for k, v in out.items()}


def export(weights: Path, out: Path, codec: Path | None = None, int8: bool = False) -> None:
    """Write config.json, generation_config.json, model.safetensors, the tokenizer and, if given, the codec's folder."""
    data = torch.load(weights, map_location="cpu", weights_only=True)
    out.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(data["weights"], int8)
    save_file(tensors, out / "model.safetensors", metadata={"format": "mlx"})
    config = dict(data["config"])
    if int8:
        packing = {"group_size": 64, "bits": 8, "mode": "affine"}
        config |= {"quantization": packing, "quantization_config": packing}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")
    tokens.write(out)
    if codec is not None:
        shutil.copytree(codec, out / "audio_tokenizer", dirs_exist_ok=True)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{out}: step {data['step']}, {size / 1e6:.1f} MB in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="weights.pt of train_lm")
    parser.add_argument("--codec", type=Path, help="audio_tokenizer folder of the codec")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--int8", action="store_true")
    args = parser.parse_args()
    export(args.weights, args.out, args.codec, args.int8)


if __name__ == "__main__":
    main()
