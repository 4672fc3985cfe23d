"""What `say` and `clone` are asked for, read and checked before a model is loaded or a file is written."""

import argparse
import math
import sys
from typing import Any

from ..errors import BreezeLabError
from ..keys import check_seed
from ..prompt import check_request
from ..samplers import Sampling
from .parser import DEFAULTS

FRAME_SECONDS = 0.08
MAX_SECONDS = 3600.0
SAMPLING = "temperature top_k top_p repetition_penalty".split()
OPTIONS = ["instruct", "cfg_scale", "seed", *SAMPLING, "speaker", "method"]


def read_text(given: str) -> str:
    """TEXT as it was given, or all of standard input for "-"."""
    text = _standard_input() if given == "-" else given
    if not text.strip():
        raise BreezeLabError("the text is empty. Give at least one word to say.")
    return text


def options(args: argparse.Namespace, text: str) -> dict[str, Any]:
    """Keyword arguments of `stream_generate`, all of them checked."""
    check_request(text, args.instruct, args.cfg_scale, args.speaker)
    given = {name: getattr(args, name) for name in SAMPLING}
    Sampling(**{name: value for name, value in given.items() if value is not None})
    if args.seed is not None:
        check_seed(args.seed, "--seed")
    return {name: getattr(args, name) for name in OPTIONS} | {"max_frames": frames(args.max_seconds)}


def refuse_without_text(args: argparse.Namespace) -> None:
    """Refuse options that have no effect where only a voice is saved."""
    usual = DEFAULTS | {"max_seconds": DEFAULTS["max_frames"] * FRAME_SECONDS, "stream": False, "out": None}
    idle = [name for name in ("out", "stream", "max_seconds", *OPTIONS) if getattr(args, name) != usual[name]]
    if idle:
        raise BreezeLabError(f"--{idle[0].replace('_', '-')} has no effect without a text. Give TEXT, or leave it out.")


def frames(seconds: float) -> int:
    """Frames of 80 ms that hold `seconds`."""
    if not 0 < seconds <= MAX_SECONDS:
        raise BreezeLabError(
            f"--max-seconds {seconds:g} is not above 0 and at most {MAX_SECONDS:g}. Leave it out for 60."
        )
    return max(1, math.ceil(seconds / FRAME_SECONDS - 1e-9))


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BreezeLabError(f"standard input is not UTF-8 (byte {error.start}). Save the text as UTF-8.") from None
