"""report: numbers and tables as people read them, sources without docstrings, verdicts, nothing private."""

from pathlib import Path

import pytest

from breeze_lab import info
from breeze_lab.measure import report
from breeze_lab.paths import ROOT


@pytest.mark.parametrize(
    "value, text",
    [(0.0, "0"), (1.2345, "1.23"), (12.345, "12.3"), (123.45, "123"), (12345.6, "12,346"), (0.01234, "0.0123"),
     (7.7e-7, "7.7e-07"), (196_608, "196,608"), ("a|b", "a|b"), (None, ""), (True, "True"), (-2.5, "-2.50")],
)  # fmt: skip
def test_number(value, text):
    assert report.number(value) == text


def test_table_is_markdown():
    text = report.table([["a", 1.0], ["b", 22]], ["name", "ms"]).data
    assert text.splitlines() == ["| name | ms |", "|---|---|", "| a | 1.00 |", "| b | 22 |"]


def test_source_leaves_the_docstring_out():
    from breeze_lab.frames import start_frame

    text = report.source(start_frame).data
    assert text.startswith("```python\ndef start_frame(") and text.endswith("```")
    assert '"""' not in text and "depth.model(hidden[:, None, :], caches)" in text


@pytest.mark.parametrize(
    "guess, measured, word",
    [
        (8.0, 8.1, "Spot on."),
        (15, 17, "Close."),
        (17, 17, "Spot on."),
        (1.0, 1.9, "Close."),
        (0.01, 0.1, "factor of 10.0"),
    ],
)
def test_verdict(guess, measured, word):
    text = report.verdict("Speed", guess, measured, " ms").data
    assert text.startswith("Speed: you guessed **") and word in text and " ms**" in text


def test_tables_of_this_machine_name_no_folder():
    found = info.collect(measure=False)
    found["blas"]["gflops"] = 50.0
    for shown in (report.machine_table().data, report.capabilities(found).data):
        assert shown.startswith("|  | here |") and "mlx" in shown
        assert str(ROOT) not in shown and str(Path.home()) not in shown
