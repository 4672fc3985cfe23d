"""Where the files lie that are not code: checkpoints, voices, recorded measurements, notebooks.

In a clone (an editable install) they lie beside the package; nothing here looks inside them.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the clone


def data_folder() -> Path:
    """`data/` of the clone; with the package installed elsewhere, `data/` of the clone that is the current folder."""
    here = Path.cwd() / "data"
    if not (ROOT / "data").is_dir() and (here.parent / "breeze_lab").is_dir() and here.is_dir():
        return here
    return ROOT / "data"


def voices_folder() -> Path:
    """`data/voices/`: NAME.wav or NAME.flac, NAME.json (transcript, licence, source), NAME.safetensors (a Voice)."""
    return data_folder() / "voices"


def notebooks_folder() -> Path | None:
    """The folder that holds `00_start_here.ipynb`: the clone's `notebooks/`, or else one under the current folder."""
    for folder in (ROOT / "notebooks", Path.cwd() / "notebooks", Path.cwd()):
        if (folder / "00_start_here.ipynb").is_file():
            return folder
    return None


def cache_folder() -> Path:
    """This user's cache for files that can be made again: `BREEZE_LAB_CACHE`, else the platform's usual place."""
    named = os.environ.get("BREEZE_LAB_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "breeze_lab"
