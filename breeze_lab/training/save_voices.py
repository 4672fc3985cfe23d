"""Encode the clips of data/voices with a checkpoint's codec and save them as Voice files beside the clips.

    python -m breeze_lab.training.save_voices [--model data/waft] [--folder data/voices]

To be run again whenever the codec changes: a Voice file is tied to the codec that made it.
"""

import argparse
import json
from pathlib import Path

from ..checkpoint import load
from ..paths import voices_folder
from ..voice import Voice


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: the default checkpoint)")
    parser.add_argument("--folder", type=Path, default=voices_folder())
    args = parser.parse_args(argv)
    model = load(args.model)
    for path in sorted(args.folder.glob("*.json")):
        about = json.loads(path.read_text())
        clip = next(p for p in path.parent.glob(f"{path.stem}.*") if p.suffix in (".flac", ".wav"))
        source = f"{about['source']}, {about['licence']}"
        voice = Voice.from_audio(model, clip, about["transcript"], name=path.stem, source=source)
        voice.save(path.with_suffix(".safetensors"))
        print(f"{path.stem}: {voice.seconds:.1f} s")


if __name__ == "__main__":
    main()
