"""Where the speech of `say` and `clone` goes: a named file, the next free speech.wav, or raw PCM to a pipe."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .. import audio
from ..errors import BreezeLabError
from ..files import as_path, check_writable

PIPE = "-"  # --out - is raw 16-bit PCM on standard output


def check(out: str | None, json: bool, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before any work, an --out that cannot be written or that is one of the files the command reads."""
    if out is None:
        check_writable(Path("speech-10000.wav"))  # a name that is never taken
    elif out != PIPE:
        path = audio.check_output(out)
        for read in (as_path(name, "the recording") for name in inputs):
            if path.exists() and read.exists() and path.samefile(read):
                raise BreezeLabError(f"--out {out} is the recording that this command reads. Choose another name.")
    elif json:
        raise BreezeLabError("--json and --out - both want standard output. Give --out a file name.")
    elif sys.stdout.isatty():
        raise BreezeLabError("--out - writes raw sound, and standard output is a terminal. Pipe it into a player.")


def write(out: str | None, samples: np.ndarray, rate: int) -> Path:
    """Write float [N] to `out`, or to the first of speech.wav, speech-2.wav, ... that is free now; return its path."""
    if out is not None:
        return audio.write(out, samples, rate)
    path = _reserve()
    try:
        return audio.write(path, samples, rate)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _reserve() -> Path:
    """Make the next free file, so that no other process takes the same name."""
    for name in ("speech.wav", *(f"speech-{n}.wav" for n in range(2, 10_000))):
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            return Path(name)
        except FileExistsError:
            continue
    raise BreezeLabError("speech.wav to speech-9999.wav are all taken. Give --out a file name.")


def send_pcm(samples: np.ndarray) -> bool:
    """Write float [N] as signed 16-bit little-endian to standard output; False once nobody reads it."""
    pcm = (np.clip(samples, -1.0, 1.0) * 32767.0).round().astype("<i2")
    try:
        sys.stdout.buffer.write(pcm.tobytes())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_stdout()
        return False
    return True


@contextmanager
def usable_streams() -> Iterator[None]:
    """Standard streams that a caller closed lead nowhere; what an encoding cannot say comes out as an escape."""
    with ExitStack() as nowhere:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            stream = getattr(sys, name)
            if stream is None:
                setattr(sys, name, nowhere.enter_context(open(os.devnull, mode, encoding="utf-8")))
                nowhere.callback(setattr, sys, name, None)
            elif mode == "w" and not speaks_utf8(stream):
                stream.reconfigure(errors="backslashreplace")
        yield


def speaks_utf8(stream: Any) -> bool:
    """Whether every character can be written to a text stream; one in memory has no encoding."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def discard_stdout() -> None:
    """Let what is still buffered for a closed pipe go nowhere, else Python complains when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
