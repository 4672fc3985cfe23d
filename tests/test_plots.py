"""plots: figures are made, bars start at zero, numbers read well, the spectrogram finds a tone."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from breeze_lab import plots


@pytest.fixture(autouse=True)
def style():
    plots.use_style()
    yield
    plots.plt.close("all")


def test_bars_start_at_zero_and_recorded_ones_differ():
    figure = plots.bars(
        {"here": 3.0, "there": 1.0}, "t", "ms", recorded=["there"], floor=0.5, spread={"here": [2.9, 3.4]}
    )
    ax = figure.axes[0]
    assert ax.get_xlim()[0] == 0 and ax.get_xlabel() == "ms"
    here, there = ax.patches
    assert (here.get_hatch(), there.get_hatch()) == ("", plots.RECORDED)
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "first label on top"


def test_log_axes_are_announced():
    ax = plots.lines({"a": ([1, 10], [1, 2]), "b": ([1, 10], [2, 3])}, "t", "x", "y", log="x", limit=2.5).axes[0]
    assert ax.get_xlabel() == "x (log scale)" and ax.get_ylabel() == "y" and ax.get_ylim()[0] == 0
    assert {line.get_marker() for line in ax.lines[:2]} == {"o", "s"}, "told apart without color"


def test_spectrogram_has_its_peak_at_the_tone():
    level = plots.spectrogram(np.sin(2 * np.pi * 3000 * np.arange(24_000) / 24_000))
    assert level.shape == (257, 100)
    assert abs(level[:, 50].argmax() * 24_000 / 512 - 3000) < 24_000 / 512


def test_pooled_spectrogram_keeps_the_tone():
    level = plots._pooled(plots.spectrogram(np.sin(2 * np.pi * 3000 * np.arange(72_000) / 24_000)), 24_000)
    assert level.shape[1] <= 64
    assert abs((level[:, 20].argmax() + 0.5) * 3 * 24_000 / 512 - 3000) < 3 * 24_000 / 512


def test_other_figures_draw():
    plots.grids({"a": np.tri(4, dtype=int), "b": np.eye(4)}, "t", "x", "y")
    plots.stacked({"a": {"p": 1.0, "q": 2.0}, "b": {"q": 1.0}}, "t", "ms")
    plots.dots({"a": {"x": 1e-3, "y": 0.0}, "b": {"y": 1.0}}, "t", "err", recorded=["b"], limits={"x": 1e-2})
    plots.timeline({"host": {"builds": [(0, 1)], "waits": [(1, 2)]}, "device": {"works": [(1, 2)]}}, "t",
                   {"builds": "blue", "waits": "orange", "works": "green"})  # fmt: skip
    plots.spectrograms({"a": np.ones(2400), "b": np.zeros(2400)}, "t")
    plots.waves({"a": np.ones(2400), "b": np.zeros(2400)}, "t", marks=[0.05])
    for number in plots.plt.get_fignums():
        plots.plt.figure(number).canvas.draw()


def test_show_displays_figure_then_sentence_and_closes(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    figure = plots.bars({"a": 1.0}, "t", "ms")
    plots.show(figure, "what\n is   seen")
    assert shown[0] is figure and shown[1].data == "*what is seen*"
    assert not plots.plt.get_fignums()


def test_stacked_parts_add_up():
    figure = plots.stacked({"a": {"p": 1.0, "q": 2.0}, "b": {"q": 1.0}}, "t", "ms")
    ends = {}
    for bar in figure.axes[0].patches:
        y = round(bar.get_y() + bar.get_height() / 2)
        ends[y] = max(ends.get(y, 0), bar.get_x() + bar.get_width())
    assert ends == {0: 3.0, 1: 1.0}
