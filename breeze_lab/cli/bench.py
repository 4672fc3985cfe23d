"""`breeze-lab bench`."""

import argparse
import shlex
import sys
from typing import Any

from ..frames import METHODS
from .parser import add_json, print_json


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure the ladder's methods, and mlx-audio beside them",
        description="Measure a stream's time a frame, real-time factor and first audio, in alternating processes.",
    )
    parser.add_argument("--shape", choices=("tiny", "small", "full"), default="small", help="of a random checkpoint")
    parser.add_argument("--model", metavar="FOLDER", help="measure this checkpoint instead of a random one")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), metavar="METHOD", help="rungs; without it, all")
    parser.add_argument("--peers", action="store_true", help="also mlx-audio, as installed and with OpenBLAS")
    parser.add_argument("--frames", type=int, default=60, help="most frames of one run; a frame is 80 ms of sound")
    parser.add_argument("--rounds", type=int, default=3, help="alternating runs; medians are reported")
    parser.add_argument("--chunk-frames", type=int, default=4, help="frames a chunk of the stream")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..bench import bench

    result = bench(
        shape=args.shape,
        model=args.model,
        methods=args.methods or (),
        peers=args.peers,
        frames=args.frames,
        rounds=args.rounds,
        chunk_frames=args.chunk_frames,
        command=_command(args),
        progress=_say if sys.stderr.isatty() else None,
    )
    if sys.stderr.isatty():
        _say("")
    if args.json:
        print_json(result)
    else:
        _print_table(result)
    return 0


def _command(args: argparse.Namespace) -> str:
    """The command that repeats this run, with every setting that counts."""
    words = ["breeze-lab", "bench"]
    words += ["--shape", args.shape] if args.model is None else ["--model", args.model]
    words += ["--methods", *args.methods] if args.methods else []
    words += ["--peers"] if args.peers else []
    words += ["--frames", str(args.frames), "--rounds", str(args.rounds), "--chunk-frames", str(args.chunk_frames)]
    return shlex.join(words)


def _print_table(result: dict[str, Any]) -> None:
    machine = result["machine"]
    print(f"{machine['device']}, {machine['cores']} cores, {machine['system']}; {result['date']}; {result['shape']}")
    print(f"{'':26}{'ms a frame':>11}{'rtf':>8}{'first audio':>13}{'host reads':>12}")
    for name, row in (result["methods"] | result["peers"]).items():
        reads = row.get("host_reads", "")
        print(f"{name:26}{row['frame_ms']:11.1f}{row['rtf']:8.2f}{row['first_audio_s']:11.2f} s{reads:>12}")
    for key, words in (
        ("speedup_over_mlx_audio", "times as fast as mlx-audio as installed"),
        ("speedup_over_mlx_audio_with_openblas", "times as fast as mlx-audio with OpenBLAS"),
    ):
        if key in result:
            print(f"{result['speedup_method']}: {result[key]:.2f} {words}")


def _say(what: str) -> None:
    print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
