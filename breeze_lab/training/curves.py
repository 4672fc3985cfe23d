"""Draw the log of train_lm as a picture.

python -m breeze_lab.training.curves runs/lm/log.jsonl --out data/waft/training/lm-1.png
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from ..plots import use_style


def draw(rows: list[dict]) -> Figure:
    """Codebook 0 at the left, the other codebooks at the right: training, right text, wrong text, over minutes."""
    use_style()
    figure = Figure(figsize=(8, 3.2))
    minutes = [row["seconds"] / 60 for row in rows]
    for i, (name, key) in enumerate((("codebook 0 and the end", "first"), ("codebooks 1 to 15", "rest"))):
        axes = figure.add_subplot(1, 2, i + 1)
        axes.plot(minutes, [row[key] for row in rows], "--", label="training (dropout, wrong codes)")
        axes.plot(minutes, [row["right"][i] for row in rows], label="held-out texts")
        axes.plot(minutes, [row["wrong"][i] for row in rows], ":", label="held-out, another's text")
        axes.set_title(name)
        axes.set_xlabel("minutes")
        axes.set_ylabel("cross entropy, nats")
        axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    rows = [json.loads(line) for line in args.log.read_text().splitlines()]
    draw(rows).savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
