"""Starting another program in this one's place."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence


def become(words: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a command and give its exit code. On POSIX it takes over this process, so that whoever ends one ends both."""
    env = dict(os.environ if environment is None else environment)
    if os.name == "posix":
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(words[0], list(words), env)
    try:
        return subprocess.call(words, env=env)
    except KeyboardInterrupt:  # the command has had the same Ctrl-C and ends by itself
        return 0
