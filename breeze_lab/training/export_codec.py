"""`python -m breeze_lab.training.export_codec CODEC.pt FOLDER`: a trained codec as a folder that breeze_lab loads.

Names and layouts of the tensors are those of `codec_model.Codec`; bf16, as the training's checkpoints are.
"""

import argparse
import json
from pathlib import Path

import mlx.core as mx

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


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes a trained codec as a folder that breeze_lab loads.")
    parser.add_argument("checkpoint", type=Path, help="codec.pt of breeze_lab.training.train_codec")
    parser.add_argument("folder", type=Path, help="for example data/waft/audio_tokenizer")
    args = parser.parse_args()
    print(f"{args.folder}: {export(read_codec(args.checkpoint), args.folder) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
