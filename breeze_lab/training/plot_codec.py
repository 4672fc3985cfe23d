"""`python -m breeze_lab.training.plot_codec OUT.png LOG.jsonl ...`: losses of codec runs over time, a line a run."""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..plots import use_style

PANELS = (
    ("mel", "log10 mel distance"),
    ("phonetic", "phonetic loss of codebook 0 (1 - cosine)"),
    ("grad", "gradient norm"),
)


def read_log(path: Path) -> tuple[list[dict], list[dict]]:
    """-> (lines with losses, lines with events) of a log that `train_codec` wrote."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "event" not in line], [line for line in lines if "event" in line]


def draw(paths: list[Path]) -> Figure:
    """One panel a loss; dotted lines mark where a run went into its next phase."""
    use_style()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(11, 3.4))
    for number, path in enumerate(paths):
        steps, events = read_log(path)
        color = f"C{number}"
        for axis, (key, _) in zip(axes, PANELS, strict=True):
            points = [(line["seconds"], line[key]) for line in steps if line[key] > 0]
            axis.plot([x for x, _ in points], [y for _, y in points], color=color, label=path.stem)
            for event in events:
                if event["event"] == "phase" and event["step"] > 0:
                    axis.axvline(event["seconds"], color=color, linestyle=":", linewidth=0.8)
    for axis, (_, title) in zip(axes, PANELS, strict=True):
        axis.set_title(title)
        axis.set_xlabel("seconds on the GPU")
        axis.set_yscale("log")
    axes[0].legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws the logs of codec training runs.")
    parser.add_argument("out", type=Path)
    parser.add_argument("logs", type=Path, nargs="+")
    args = parser.parse_args()
    draw(args.logs).savefig(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
