"""`breeze-lab lab`: JupyterLab at the first notebook."""

import argparse
import importlib.util
import os
import subprocess
import sys
from typing import Any

from ..errors import BreezeLabError
from ..paths import notebooks_folder

FIRST = "00_start_here.ipynb"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lab", help="open JupyterLab at the first notebook", description=f"Open JupyterLab at notebooks/{FIRST}."
    )
    parser.add_argument("--no-browser", action="store_true", help="only start the server and print its address")
    parser.add_argument("--port", type=int, help="port of the server; by default Jupyter's choice")
    parser.set_defaults(run=run)


def command(args: argparse.Namespace) -> list[str]:
    """The JupyterLab command for `args`.

    Raises:
        BreezeLabError: JupyterLab or the notebooks are not there.
    """
    if args.port is not None and not 1 <= args.port <= 65535:
        raise BreezeLabError(f"--port {args.port} is not a port. Give a number from 1 to 65535.")
    if importlib.util.find_spec("jupyterlab") is None:
        raise BreezeLabError('JupyterLab is not installed. In the clone, run: python -m pip install -e ".[lab]"')
    folder = notebooks_folder()
    if folder is None:
        raise BreezeLabError(f"notebooks/{FIRST} was not found. Run breeze-lab lab in a clone of breeze_lab.")
    words = [sys.executable, "-m", "jupyterlab", str(folder / FIRST), f"--ServerApp.root_dir={folder.parent}"]
    if args.no_browser:
        words.append("--no-browser")
    if args.port is not None:
        words.append(f"--port={args.port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--allow-root")  # containers; Jupyter refuses root otherwise
    return words


def run(args: argparse.Namespace) -> int:
    words = command(args)
    try:
        return subprocess.call(words)
    except KeyboardInterrupt:  # Jupyter has had the same Ctrl-C and ends by itself
        return 0
