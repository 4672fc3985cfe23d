"""`python -m breeze_lab.training.export_codec CODEC.pt FOLDER`: a trained codec as a folder that breeze_lab loads.

Names and layouts of the tensors are those of `codec_model.Codec`; bf16, as the training's checkpoints are. A decoder
draws spectra that are smoother than speech: --sharpen moves each log magnitude away from the mean of its neighborhood.
That is linear, so it goes into the last layer's weights and costs nothing.
"""

import argparse
import json
from pathlib import Path

import mlx.core as mx
import torch

from ..weights import write_tensors
from .codec_model import Codec, read_codec


def export(codec: Codec, folder: Path) -> int:
    """Writes config.json and model.safetensors; -> bytes of the weights.

    The usage counts of the codebooks serve the training alone and stay behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value for name, value in codec.state_dict().items() if not name.endswith(".usage")}
    tensors = {
        name: mx.array(value.detach().float().cpu().numpy()).astype(mx.bfloat16) for name, value in state.items()
    }
    write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(codec.config(), indent=2) + "\n")
    return (folder / "model.safetensors").stat().st_size


@torch.no_grad()
def sharpen(codec: Codec, share: float, reach: float = 1000.0) -> None:
    """Raises the contrast of the decoder's spectra along frequency, in place.

    share: of the distance in log magnitude to the mean over `reach` Hz (Hann-weighted) on both sides.
    """
    head, bins = codec.decoder.head, codec.shape.n_fft // 2 + 1
    width = reach * codec.shape.n_fft / codec.shape.sample_rate
    distance = torch.arange(bins)[:, None] - torch.arange(bins)
    near = (0.5 + 0.5 * torch.cos(torch.pi * distance / (width + 1))) * (distance.abs() <= width)
    change = torch.eye(bins) + share * (torch.eye(bins) - near / near.sum(1, keepdim=True))
    head.weight[:bins] = change @ head.weight[:bins]
    head.bias[:bins] = change @ head.bias[:bins]


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes a trained codec as a folder that breeze_lab loads.")
    parser.add_argument("checkpoint", type=Path, help="codec.pt of breeze_lab.training.train_codec")
    parser.add_argument("folder", type=Path, help="for example data/waft/audio_tokenizer")
    parser.add_argument("--sharpen", type=float, default=0.0, help="0.2 for a fifth more contrast in the spectra")
    args = parser.parse_args()
    codec = read_codec(args.checkpoint)
    sharpen(codec, args.sharpen)
    print(f"{args.folder}: {export(codec, args.folder) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
