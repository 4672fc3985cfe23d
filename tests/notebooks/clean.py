"""Bring notebooks to the form in which they are kept: python tests/notebooks/clean.py [--run] notebooks/*.ipynb

Drops widget state, timestamps, warnings and sound; numbers the cells; keeps plots, tables and text. `test_policy.py`
holds the result. `--run` executes them first; do that on a quiet machine, since times are kept too.
"""

import re
import sys
from pathlib import Path

import nbformat

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SOUND = re.compile(r"<audio\b[^>]*data:audio.*?</audio>", re.DOTALL)
HEARD = "<small>(run the cell to hear it)</small>"


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Clean in place and return it."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    count = 0
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index:02d}"
        cell.metadata = nbformat.from_dict({"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {})
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        cell.outputs = [out for out in map(_output, cell.outputs) if out is not None]
        for out in cell.outputs:
            if "execution_count" in out:
                out.execution_count = count
    return notebook


def _output(out: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    if out.output_type == "stream":
        return None if out.name == "stderr" else out
    if "data" not in out:
        return out
    out.metadata = nbformat.from_dict({})
    data = out.data
    if any("widget" in kind for kind in data):
        return None
    if "data:audio" in data.get("text/html", ""):
        data["text/html"] = SOUND.sub(HEARD, data["text/html"])
        data["text/plain"] = data.get("text/plain", "").split("(")[0]  # the repr of a player holds its samples
    return out


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Execute in place, as a reader does who runs all cells from the top."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


def main(arguments: list[str]) -> None:
    for path in map(Path, (argument for argument in arguments if argument != "--run")):
        notebook = nbformat.read(path, as_version=4)
        if "--run" in arguments:
            run(notebook, path.parent)
        path.write_text(nbformat.writes(clean(notebook)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
