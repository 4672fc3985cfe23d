"""Files written whole or not at all, and refusals before work starts."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import BreezeLabError


def as_path(value: Any, what: str) -> Path:
    """What a caller gave as a path, "~" resolved; refused where it is none, or one that the system cannot look at."""
    try:
        path = Path(value).expanduser()
        path.exists()
    except TypeError:
        kind = type(value).__name__
        raise BreezeLabError(f"{what} is of type {kind}, not a path. Give a str or a pathlib.Path.") from None
    except RuntimeError:
        raise BreezeLabError(f"{what} {value} names a user without a home folder here. Write the path out.") from None
    except OSError as error:
        name = str(value)[:80]
        raise BreezeLabError(f"{what} {name} cannot be looked at ({error.strerror}). Choose another path.") from None
    if "\0" in str(path):
        raise BreezeLabError(f"{what} {str(path)!r} holds a zero byte, which no path may. Correct it.")
    return path


def check_writable(path: Path) -> None:
    """Refuse `path` if no file can be made there: it is a folder, its folder is missing or not writable."""
    if path.is_dir():
        raise BreezeLabError(f"{path} is a folder. Give a file name in it.")
    if not path.parent.is_dir():
        raise BreezeLabError(f"the folder {path.parent} does not exist. Make it, or choose another place.")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".breeze_lab-"):
            pass
    except OSError as error:
        raise BreezeLabError(f"cannot write in {path.parent} ({error.strerror}). Choose another place.") from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to, beside `path`; it takes its place if the block ends well, else is removed."""
    check_writable(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".breeze_lab-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(temporary, path)
    except (RuntimeError, OSError) as error:  # libsndfile's and MLX's write errors are RuntimeErrors
        raise BreezeLabError(f"could not write {path} ({error}). Check the free space and the rights there.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
