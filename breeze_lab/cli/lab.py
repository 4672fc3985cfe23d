"""`breeze-lab lab`: JupyterLab at the first notebook."""

import argparse
import importlib.util
import os
import sys
from typing import Any
from urllib.parse import quote

from ..errors import BreezeLabError
from ..paths import notebooks_folder
from ..process import become

FIRST = "00_start_here.ipynb"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lab", help="open JupyterLab at the first notebook", description=f"Open JupyterLab at notebooks/{FIRST}."
    )
    parser.add_argument("--no-browser", action="store_true", help="only start the server and print the address")
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
    first = f"/lab/tree/{quote(folder.name)}/{FIRST}"
    words = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={folder.parent}",
        f"--LabApp.default_url={first}",
    ]
    if args.no_browser:
        words.append("--no-browser")
    if args.port is not None:
        words.append(f"--port={args.port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--allow-root")  # containers; Jupyter refuses root otherwise
    return words


def run(args: argparse.Namespace) -> int:
    return become(command(args))
