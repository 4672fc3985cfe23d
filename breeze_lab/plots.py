"""One style for all figures: colors that color-blind readers can tell apart, units on the axes, the finding as title.

Every function draws a new figure and returns it; `show()` displays it with a sentence that says in
words what is seen. Needs matplotlib (extra `lab`).
"""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from .measure.report import number

# Okabe and Ito's palette, the strong ones first; yellow is too pale for lines on white.
COLORS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "sky": "#56B4E9",
    "purple": "#CC79A7",
    "gray": "#7F7F7F",
    "black": "#000000",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "//", "..", "\\\\", "xx", "++")
RECORDED = "//"  # hatch of every bar that was not measured here and now


def use_style() -> None:
    """Set matplotlib's defaults for the notebook."""
    mpl.rcParams.update(
        {
            "figure.figsize": (7.2, 3.2),
            "figure.dpi": 80,
            "savefig.dpi": 80,
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=list(COLORS.values())),
            "axes.grid": False,
            "legend.frameon": False,
            "image.cmap": "cividis",
        }
    )


def show(figure: Figure, sentence: str) -> None:
    """Display a figure and below it the sentence that says what it shows, for readers who cannot see it."""
    from IPython.core.display import Markdown
    from IPython.display import display

    display(figure)
    plt.close(figure)
    display(Markdown(f"*{' '.join(sentence.split())}*"))


def bars(
    values: Mapping[str, float],
    title: str,
    unit: str,
    *,
    recorded: Sequence[str] = (),
    floor: float | None = None,
    floor_label: str = "floor",
    spread: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """Horizontal bars from zero with their numbers.

    Args:
        values: label -> number, drawn from top to bottom.
        unit: of the axis.
        recorded: labels that were measured elsewhere; hatched.
        floor: a vertical line that no bar can pass, with `floor_label`.
        spread: label -> all samples, drawn as dots on the bar.
    """
    figure, ax = plt.subplots(figsize=(7.2, 0.9 + 0.36 * len(values)))
    labels = list(values)
    for row, label in enumerate(labels):
        far = label in recorded
        color = COLORS["gray"] if far else COLORS["blue"]
        ax.barh(
            row, values[label], 0.62, color="white" if far else color, edgecolor=color, hatch=RECORDED if far else ""
        )
        samples = (spread or {}).get(label, ())
        ax.plot(samples, [row] * len(samples), ".", color=COLORS["black"], markersize=4, alpha=0.6)
        end = max([values[label], *samples])
        ax.annotate(
            f" {number(values[label])}",
            (end, row),
            va="center",
            ha="left",
            xytext=(3, 0),
            textcoords="offset points",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            zorder=5,
        )
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.margins(x=0.14)
    ax.set_xlim(left=0)
    ax.tick_params(axis="y", length=0)
    if floor is not None:
        ax.axvline(floor, color=COLORS["vermilion"], linestyle="--", linewidth=1.5)
        ax.annotate(
            f"{floor_label} {number(floor)}", (floor, 1), xycoords=("data", "axes fraction"), xytext=(4, -2),
            textcoords="offset points", va="bottom", color=COLORS["vermilion"], annotation_clip=False,
        )  # fmt: skip
    ax.set_xlabel(unit)
    _title(figure, title)
    return figure


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str,
    xlabel: str,
    ylabel: str,
    *,
    log: str = "",
    limit: float | None = None,
    limit_label: str = "",
) -> Figure:
    """Lines with markers and labels at a legend.

    Args:
        series: label -> (x, y).
        log: axes that are logarithmic, "x", "y" or "xy"; the axis label says so.
        limit: a horizontal line with `limit_label`.
    """
    figure, ax = plt.subplots()
    for index, (label, (x, y)) in enumerate(series.items()):
        ax.plot(x, y, marker=MARKERS[index % len(MARKERS)] if len(x) <= 30 else "", markersize=5, label=label)
    if limit is not None:
        ax.axhline(limit, color=COLORS["black"], linestyle="--", linewidth=1, label=limit_label or None)
    ax.set_xscale("log" if "x" in log else "linear")
    ax.set_yscale("log" if "y" in log else "linear")
    if "y" not in log:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(xlabel + (" (log scale)" if "x" in log else ""))
    ax.set_ylabel(ylabel + (" (log scale)" if "y" in log else ""))
    ticks = sorted({float(value) for x, _ in series.values() for value in x})
    if "x" in log and len(ticks) <= 10:
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
    if max(map(len, series)) > 34:  # long labels go below the axes, one a line
        figure.set_size_inches(7.2, 3.2 + 0.25 * len(series))
        figure.legend(loc="outside lower left")
    elif len(series) + bool(limit_label) > 2:
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    elif len(series) > 1 or limit_label:
        ax.legend()
    _title(figure, title)
    return figure


def dots(
    series: Mapping[str, Mapping[str, float]],
    title: str,
    ylabel: str,
    *,
    recorded: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
) -> Figure:
    """Points on a log axis, one column a category.

    Args:
        series: label -> {category: value}; categories in the order of their first appearance; zeros are left out.
        recorded: labels measured elsewhere, drawn hollow.
        limits: category -> a short dash across its column, such as a tolerance.
    """
    figure, ax = plt.subplots(figsize=(7.2, 3.4))
    columns = list(dict.fromkeys(category for values in series.values() for category in values))
    for index, (label, values) in enumerate(series.items()):
        x = [columns.index(c) + 0.09 * (index - (len(series) - 1) / 2) for c in values]
        color = list(COLORS.values())[index % len(COLORS)]
        fill = "white" if label in recorded else color
        ax.plot(
            x,
            [v or np.nan for v in values.values()],
            MARKERS[index % len(MARKERS)],
            color=color,
            label=label,
            markerfacecolor=fill,
        )
    for category, limit in (limits or {}).items():
        middle = columns.index(category)
        ax.plot([middle - 0.35, middle + 0.35], [limit, limit], color=COLORS["black"], linestyle="--", linewidth=1)
    if limits:
        ax.plot([], [], color=COLORS["black"], linestyle="--", linewidth=1, label="tolerance")
    ax.set_yscale("log")
    ax.set_ylabel(f"{ylabel} (log scale)")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    _title(figure, title)
    return figure


def stacked(rows: Mapping[str, Mapping[str, float]], title: str, unit: str) -> Figure:
    """Horizontal bars made of parts, from zero.

    Args:
        rows: bar label -> {part: number}, bars from top to bottom; the same parts get the same color and hatch.
    """
    figure, ax = plt.subplots(figsize=(7.2, 1.3 + 0.42 * len(rows)))
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    colors = list(COLORS.values())
    for index, part in enumerate(parts):
        for y, row in enumerate(rows.values()):
            left = sum(row.get(before, 0.0) for before in parts[:index])
            ax.barh(
                y, row.get(part, 0.0), 0.62, left=left, color=colors[index], hatch=HATCHES[index], edgecolor="white"
            )
        ax.barh(0, 0, color=colors[index], hatch=HATCHES[index], edgecolor="white", label=part)
    for y, row in enumerate(rows.values()):
        ax.annotate(f" {number(sum(row.values()))}", (sum(row.values()), y), va="center")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set_xlim(left=0)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(unit)
    figure.legend(loc="outside lower center", ncols=len(parts))
    _title(figure, title)
    return figure


def grids(cells: Mapping[str, np.ndarray], title: str, xlabel: str, ylabel: str) -> Figure:
    """Matrices of zeros and ones beside each other: which position is computed at which step."""
    figure, axes = plt.subplots(1, len(cells), figsize=(7.2, 3.6), squeeze=False)
    for ax, (label, matrix) in zip(axes[0], cells.items(), strict=True):
        ax.imshow(matrix, cmap=ListedColormap(["#EDEDED", COLORS["blue"]]), vmin=0, vmax=1)
        ax.set_xticks(np.arange(matrix.shape[1] + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(matrix.shape[0] + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.5)
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(label, fontsize=10, fontweight="normal", loc="center")
        ax.set_xlabel(xlabel)
    axes[0][0].set_ylabel(ylabel)
    _title(figure, title)
    return figure


def timeline(
    lanes: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], title: str, colors: Mapping[str, str]
) -> Figure:
    """Who is busy when.

    Args:
        lanes: lane label -> kind of span -> [(start, end)] in milliseconds, lanes from top to bottom.
        colors: kind -> one of `COLORS`; also the legend.
    """
    figure, ax = plt.subplots(figsize=(7.2, 0.9 + 0.42 * len(lanes)))
    for row, spans in enumerate(lanes.values()):
        for kind, parts in spans.items():
            ax.broken_barh(
                [(a, max(b - a, 1e-6)) for a, b in parts], (row - 0.35, 0.7), color=COLORS[colors[kind]], linewidth=0.3,
                edgecolor="white",
            )  # fmt: skip
    for kind, color in colors.items():
        ax.plot([], [], "s", color=COLORS[color], label=kind)
    ax.set_yticks(range(len(lanes)), list(lanes))
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("milliseconds")
    figure.legend(loc="outside lower center", ncols=len(colors))
    _title(figure, title)
    return figure


def spectrograms(sounds: Mapping[str, np.ndarray], title: str, rate: int = 24_000) -> Figure:
    """Spectrograms beside each other on one color scale: 0 to 8 kHz, 60 dB below the loudest point of all."""
    figure, axes = plt.subplots(1, len(sounds), figsize=(1.4 + 1.35 * len(sounds), 2.6), sharey=True, squeeze=False)
    levels = {label: _pooled(spectrogram(samples), rate) for label, samples in sounds.items()}
    top = max(level.max() for level in levels.values())
    for ax, (label, level) in zip(axes[0], levels.items(), strict=True):
        extent = (0, len(sounds[label]) / rate, 0, 8)
        ax.imshow(level, origin="lower", aspect="auto", extent=extent, vmin=top - 60, vmax=top, interpolation="nearest")
        ax.set_title(label, fontsize=10, fontweight="normal", loc="center")
        ax.set_xlabel("seconds")
    axes[0][0].set_ylabel("kHz")
    figure.colorbar(axes[0][0].images[0], ax=axes[0], label="dB", fraction=0.05)
    _title(figure, title)
    return figure


def _pooled(level: np.ndarray, rate: int, columns: int = 64) -> np.ndarray:
    """dB [bins, frames] -> means of three bins up to 8 kHz and of as many frames as leave `columns`: small pictures."""
    bins = int(8000 / (rate / 2) * (len(level) - 1)) // 3 * 3
    step = max(1, -(-level.shape[1] // columns))
    frames = max(step, level.shape[1] // step * step)
    level = np.pad(level, ((0, 0), (0, max(0, frames - level.shape[1]))), mode="edge")
    return level[:bins, :frames].reshape(bins // 3, 3, frames // step, step).mean((1, 3))


def spectrogram(samples: np.ndarray, size: int = 512, hop: int = 240) -> np.ndarray:
    """Magnitudes in dB, float32 [size / 2 + 1, frames], Hann window."""
    padded = np.pad(np.asarray(samples, np.float32), (size // 2, size))
    starts = np.arange(0, max(len(samples), 1), hop)
    frames = padded[starts[:, None] + np.arange(size)] * np.hanning(size).astype(np.float32)
    return (20 * np.log10(np.abs(np.fft.rfft(frames, axis=1)) + 1e-6)).T


def waves(
    sounds: Mapping[str, np.ndarray],
    title: str,
    rate: int = 24_000,
    marks: Sequence[float] = (),
    ylabel: str = "sample value",
) -> Figure:
    """Wave forms under each other on one scale; `marks` are vertical lines in seconds."""
    figure, axes = plt.subplots(
        len(sounds), 1, figsize=(7.2, 0.8 + 1.1 * len(sounds)), sharex=True, sharey=True, squeeze=False
    )
    for ax, (label, samples) in zip(axes[:, 0], sounds.items(), strict=True):
        ax.plot(np.arange(len(samples)) / rate, samples, linewidth=0.6)
        for mark in marks:
            ax.axvline(mark, color=COLORS["vermilion"], linewidth=0.8, linestyle=":")
        ax.set_title(label, fontsize=10, fontweight="normal", loc="left")
    axes[-1, 0].set_xlabel("seconds")
    figure.supylabel(ylabel, fontsize=10)
    _title(figure, title)
    return figure


def _title(figure: Figure, title: str) -> None:
    """Titles start at the figure's left edge, so that long ones have room."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
