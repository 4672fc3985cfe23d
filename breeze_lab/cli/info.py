"""`breeze-lab info`."""

import argparse
from typing import Any

from .parser import add_json, print_json


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "info", help="backend, BLAS, versions, checkpoint, and the cure for what is missing", description="Look around."
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..info import collect, lines

    found = collect()
    if args.json:
        print_json(found)
    else:
        print("\n".join(lines(found)))
    return 0
