"""The console command `breeze-lab`.

It stands beside the package: importing that takes a while (MLX and all), and Ctrl-C during it shall end as quietly as
Ctrl-C later.
"""

import os
import signal
import sys
from typing import NoReturn

BAD_INPUT, INTERRUPTED = 2, 130


def main() -> int:
    """Import breeze_lab.cli and run it; its exit code, 130 after Ctrl-C, or 2 where a package is missing."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else the shell told us to ignore it
        signal.signal(signal.SIGINT, _leave)
    try:
        from breeze_lab.cli import main as run
    except KeyboardInterrupt:
        _leave()
    except ModuleNotFoundError as error:  # as after a `git pull` that brought a new dependency
        if str(error.name).startswith("breeze_lab"):
            raise
        sys.stderr.write(f"breeze-lab: error: {error}. In the clone, run: python -m pip install -e .\n")
        return BAD_INPUT
    signal.signal(signal.SIGINT, before)
    return run()


def _leave(*_: object) -> NoReturn:
    """End at once: an exception in the middle of a C extension's import can come out as an ImportError or an abort."""
    os.write(sys.stderr.fileno(), b"breeze-lab: stopped by Ctrl-C; nothing was written\n")
    os._exit(INTERRUPTED)
