"""What the notebooks may hold as they are kept; mend by: python tests/notebooks/clean.py notebooks/*.ipynb"""

import ast
import json
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TAGS = {"nbval-ignore-output", "nbval-check-output", "nbval-skip", "nbval-raises-exception", "raises-exception"}
PRIVATE = re.compile(
    r"(?<![\w.])/(home|Users|root|work|tmp|opt|mnt|var|workspace)/|[A-Z]:\\\\Users|0x[0-9a-f]{8,}|localhost:\d+"
)
OUTPUT_LIMIT, FILE_LIMIT = 100_000, 1_000_000


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_reading_order_is_whole():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{i:02d}" for i in range(7)]


def test_valid_and_for_the_plain_kernel(notebook):
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"


def test_no_widget_state_and_no_timestamps(notebook):
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}, "only tags: no execution times, no editor state"
        for out in cell.get("outputs", []):
            assert not any("widget" in kind for kind in out.get("data", {}))


def test_ran_in_order_and_to_the_end(notebook):
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    for cell in code(notebook):
        for out in cell.outputs:
            assert out.output_type != "error" or "raises-exception" in " ".join(cell.metadata.get("tags", []))
            assert out.get("name") != "stderr"


def test_only_known_tags(notebook):
    assert {tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])} <= TAGS


def test_outputs_are_small_silent_and_public(notebook):
    for cell in code(notebook):
        for out in cell.outputs:
            text = json.dumps(out)
            assert len(text) < OUTPUT_LIMIT, cell.source
            assert "data:audio" not in text, "sound is made when the cell runs, not stored"
            shown = json.dumps({k: v for k, v in out.get("data", {}).items() if not k.startswith("image/")}) + out.get(
                "text", ""
            )
            assert not PRIVATE.search(shown), PRIVATE.search(shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_files_are_small(path):
    assert path.stat().st_size < FILE_LIMIT


def test_sources_are_public_and_fetch_nothing(notebook):
    for cell in notebook.cells:
        assert not PRIVATE.search(cell.source), cell.source
    for cell in code(notebook):
        assert not re.search(r"^\s*[!%]", cell.source, re.MULTILINE), "no shell, no magics, no pip"


def test_functions_are_at_most_ten_lines(notebook):
    for cell in code(notebook):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno - node.lineno < 10, f"{node.name} belongs in the package"


def test_cells_are_short_and_claims_are_asserted(notebook):
    assert all(len(cell.source.splitlines()) <= 25 for cell in code(notebook))
    assert sum("assert " in cell.source for cell in code(notebook)) >= 2


def test_the_head_says_what_and_every_plot_has_its_sentence(notebook):
    head = notebook.cells[0]
    assert head.cell_type == "markdown" and head.source.startswith("# ")
    for words in (r"\*\*You will (see|use|hear)", r"\*\*You will learn", r"\*\*You need"):
        assert re.search(words, head.source), words
    for cell in code(notebook):
        pictures = [out for out in cell.outputs if "image/png" in out.get("data", {})]
        captions = [out for out in cell.outputs if out.get("data", {}).get("text/markdown", "").startswith("*")]
        assert len(captions) >= len(pictures), f"a plot without caption: {cell.source}"
