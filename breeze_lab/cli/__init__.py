"""The command `breeze-lab`: each subcommand is a file here. Mistakes of a user end in one line and exit code 2."""

import sys
import warnings
from collections.abc import Sequence

from .. import __version__
from ..errors import BreezeLabError
from .outputs import discard_stdout, usable_streams
from .parser import Parser

EXIT_OK, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 2, 130


def build_parser() -> Parser:
    """The whole command line; tests and documentation read it too."""
    from ..measure import record
    from . import bench, folders, info, lab, speak

    parser = Parser(prog="breeze-lab", description="Codec-language-model speech in MLX.")
    parser.add_argument("--version", action="version", version=f"breeze-lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (speak, bench, record, info, lab, folders):
        module.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 (bad input, told in one line) or 130 (stopped by Ctrl-C)."""
    with usable_streams(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a user can do nothing about a library's deprecations
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        try:
            args = build_parser().parse_args(_utf8(sys.argv[1:] if argv is None else argv))
            code = args.run(args) or EXIT_OK
            sys.stdout.flush()
            return code
        except BrokenPipeError:  # as with `| head -1`
            discard_stdout()
            return EXIT_OK
        except (BreezeLabError, OSError) as error:
            message = " ".join(str(error).split())
            print(f"breeze-lab: error: {message}", file=sys.stderr)
            return EXIT_BAD_INPUT
        except KeyboardInterrupt:
            print("breeze-lab: stopped by Ctrl-C; nothing was written", file=sys.stderr)
            return EXIT_INTERRUPTED


def _utf8(words: Sequence[str]) -> list[str]:
    """The arguments, none of them with bytes that are not UTF-8."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise BreezeLabError(f"the argument {word!a} is not UTF-8. Type or save it as UTF-8.") from None
    return list(words)


def _show_warning(message: Warning | str, *_args: object, **_kwargs: object) -> None:
    print(f"breeze-lab: note: {' '.join(str(message).split())}", file=sys.stderr)
