"""`python -m breeze_lab.training.plot_codec OUT.png LOG.jsonl ...`: losses of codec runs over time, a line a run."""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..plots import use_style

PANELS = (
    ("mel", "log10 mel distance"),
    ("loudness", "disturbance of loudness"),
    ("pitch", "loss of the pitch"),
    ("phonetic", "phonetic loss of codebook 0 (1 - cosine)"),
    ("grad", "gradient norm"),
)


def read_log(path: Path) -> tuple[list[dict], list[dict]]:
    """-> (lines with losses, lines with events) of a log that `train_codec` wrote."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "event" not in line], [line for line in lines if "event" in line]


def draw(paths: list[Path]) -> Figure:
    """One panel a loss that these runs had; dotted lines mark where a run went into its next phase."""
    use_style()
    logs = [read_log(path) for path in paths]
    panels = [panel for panel in PANELS if any(line.get(panel[0], 0) > 0 for steps, _ in logs for line in steps)]
    figure, axes = plt.subplots(1, len(panels), figsize=(1 + 3.3 * len(panels), 3.4), squeeze=False)
    axes = axes[0]
    for number, (path, (steps, events)) in enumerate(zip(paths, logs, strict=True)):
        color = f"C{number}"
        changes = [event["step"] for event in events if event["event"] == "phase"]
        before = [0, *(line["step"] for line in steps)]  # means over steps of two phases are left out
        steps = [line for a, line in zip(before, steps, strict=False) if not any(a < c < line["step"] for c in changes)]
        for axis, (key, _) in zip(axes, panels, strict=True):
            points = [(line["seconds"], line[key]) for line in steps if line.get(key, 0) > 0]
            axis.plot([x for x, _ in points], [y for _, y in points], color=color, label=path.stem)
            for event in events:
                if event["event"] == "phase" and event["step"] > 0:
                    axis.axvline(event["seconds"], color=color, linestyle=":", linewidth=0.8)
    for axis, (key, title) in zip(axes, panels, strict=True):
        axis.set_title(title)
        axis.set_xlabel("seconds on the GPU")
        axis.set_yscale("log" if key == "grad" else "linear")
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
