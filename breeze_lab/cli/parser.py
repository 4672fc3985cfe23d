"""What all subcommands share: the parser, options of `generate`, loading, the progress bar, Ctrl-C."""

import argparse
import inspect
import json
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn

from tqdm import tqdm

from ..checkpoint import SpeechModel, load
from ..errors import BreezeLabError
from ..frames import METHODS
from ..generate import generate
from .outputs import speaks_utf8

DEFAULTS = {name: p.default for name, p in inspect.signature(generate).parameters.items() if p.default is not p.empty}
"""Defaults of the command line are those of `generate`, read from it."""
SLOW_LOAD = "Loading. The first time on a machine, loops are compiled: some seconds.\n"


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """argparse, with mistakes as BreezeLabError: one line instead of a usage text."""

    def __init__(self, **kwargs: Any):
        super().__init__(**{"allow_abbrev": False, "formatter_class": HelpFormatter} | kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse, but what is left over is refused here, so that the message names the command's own --help."""
        parsed, extra = super().parse_known_args(args, namespace)
        if extra:
            quote = "" if any(word.startswith("-") for word in extra) else ". Put a text of several words in quotes"
            self.error(f"unrecognized arguments: {' '.join(extra)}{quote}")
        return parsed, extra

    def error(self, message: str) -> NoReturn:
        raise BreezeLabError(f"{message}. See: {self.prog} --help")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="FOLDER|HUB_ID", help="checkpoint; without it the default one")


def add_generation(parser: argparse.ArgumentParser) -> None:
    """The options of `generate`, with its defaults."""
    option = parser.add_argument
    option("--instruct", default=DEFAULTS["instruct"], help="how to say it, in plain words")
    option("--cfg-scale", type=float, default=DEFAULTS["cfg_scale"], help="guidance towards --instruct; 1 is off")
    option("--seed", type=int, default=DEFAULTS["seed"], help="same seed, same speech; without it one is drawn")
    own = "(default: the checkpoint's own, see breeze-lab info)"
    option("--temperature", type=float, default=DEFAULTS["temperature"], help=f"0: always the likeliest code {own}")
    option("--top-k", type=int, default=DEFAULTS["top_k"], help=f"draw from the K likeliest codes; 0 is off {own}")
    option("--top-p", type=float, default=DEFAULTS["top_p"], help=f"draw from the likeliest codes of this share {own}")
    penalty = f"for codes that were taken before; 1 is off {own}"
    option("--repetition-penalty", type=float, default=DEFAULTS["repetition_penalty"], help=penalty)
    option("--speaker", default=DEFAULTS["speaker"], help="speaker tag, S0 to S9")
    rung = "rung of the ladder, same codes; without it the fastest"
    option("--method", choices=list(METHODS), default=DEFAULTS["method"], help=rung)


def print_json(value: dict[str, Any]) -> None:
    indent = 1 if sys.stdout.isatty() else None
    print(json.dumps(value, ensure_ascii=not speaks_utf8(sys.stdout), indent=indent))


def load_told(source: str | None, patience: float = 2.0) -> SpeechModel:
    """`load`; on a terminal with a word after `patience` seconds."""
    word = threading.Timer(patience, sys.stderr.write, [SLOW_LOAD])
    word.daemon = True
    if sys.stderr.isatty():
        word.start()
    try:
        with CtrlC(at_once=True) as stopped:
            model = load(source)
    finally:
        word.cancel()
    if stopped.is_set():
        raise KeyboardInterrupt  # the first one came in a library's callback, which let it pass
    return model


class Progress:
    """A bar on a terminal, silence elsewhere. Call it with (frames done, frames expected)."""

    def __init__(self, what: str = "speaking"):
        self.bar = tqdm(desc=what, unit=" frames", disable=not sys.stderr.isatty(), leave=False, file=sys.stderr)

    def __call__(self, done: int, expected: int) -> None:
        self.bar.total = expected
        self.bar.update(done - self.bar.n)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()


class CtrlC:
    """Inside the block a Ctrl-C sets an event, to be passed as `cancel`; a second one, or the first, interrupts."""

    def __init__(self, at_once: bool = False) -> None:
        self.event, self.at_once = threading.Event(), at_once

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        again = self.event.is_set()
        self.event.set()
        if again or self.at_once:
            raise KeyboardInterrupt

    def __enter__(self) -> threading.Event:
        self.main = threading.current_thread() is threading.main_thread()
        if self.main:
            self.before = signal.signal(signal.SIGINT, self._handle)
        return self.event

    def __exit__(self, *_: object) -> None:
        if self.main:
            signal.signal(signal.SIGINT, self.before)
