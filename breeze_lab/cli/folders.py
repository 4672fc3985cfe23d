"""`breeze-lab convert` and `breeze-lab make-checkpoint`: commands that write checkpoint folders."""

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..checkpoint import convert, make_checkpoint
from ..files import as_path
from .parser import add_json, print_json

QUANTIZE = ("int8-depth", "mxfp8", "mxfp4", "int8")
SHAPES = ("tiny", "small", "full")


def add(commands: Any) -> None:
    """Add both commands to the parser."""
    parser = commands.add_parser(
        "convert", help="quantize a checkpoint", description="Write a quantized copy of a checkpoint folder."
    )
    parser.add_argument("source", metavar="SRC", help="checkpoint folder or Hub id")
    parser.add_argument("folder", metavar="DIR", help="new folder")
    parser.add_argument("--quantize", choices=QUANTIZE, required=True, help="int8-depth: the depth decoder only")
    add_json(parser)
    parser.set_defaults(run=run_convert)

    parser = commands.add_parser(
        "make-checkpoint",
        help="write a random checkpoint for tests and measurements",
        description="Write a random checkpoint in the real layout. It speaks noise; its speed is real.",
    )
    parser.add_argument("folder", metavar="DIR", help="new folder")
    parser.add_argument("--shape", choices=SHAPES, required=True, help="about 1 M, 40 M or 3 B parameters")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    add_json(parser)
    parser.set_defaults(run=run_make)


def run_convert(args: argparse.Namespace) -> int:
    with _whole(args.folder):
        folder = convert(args.source, args.folder, args.quantize)
    _report(args, {"folder": str(folder), "quantize": args.quantize})
    return 0


def run_make(args: argparse.Namespace) -> int:
    with _whole(args.folder):
        folder = make_checkpoint(args.folder, args.shape, args.seed)
    _report(args, {"folder": str(folder), "shape": args.shape, "seed": args.seed})
    return 0


@contextmanager
def _whole(name: str) -> Iterator[None]:
    """Take back a new or empty folder that was filled in part, also after Ctrl-C."""
    folder = as_path(name, "the new folder")
    new = not folder.exists()
    mine = new or (folder.is_dir() and not any(folder.iterdir()))
    try:
        yield
    except BaseException:
        if mine:
            shutil.rmtree(folder, ignore_errors=True)
            if not new:
                folder.mkdir(exist_ok=True)
        raise


def _report(args: argparse.Namespace, made: dict[str, Any]) -> None:
    if args.json:
        print_json(made)
    else:
        print(f"{made['folder']}: written")
