"""Saved voices: one NAME.safetensors a voice, with the clip it came from beside it as NAME.wav."""

import os
import re
from pathlib import Path

from ..errors import BreezeLabError

LONGEST = 60
NAME = re.compile(rf"[^\W_][\w .()-]{{0,{LONGEST - 1}}}")


def shelf_folder() -> Path:
    """`BREEZE_LAB_VOICES`, else the platform's place for a user's own data."""
    named = os.environ.get("BREEZE_LAB_VOICES")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "breeze_lab" / "voices"


def check_name(name: str) -> str:
    """The name without outer spaces; refused when a file cannot bear it."""
    name = name.strip()
    if not name:
        raise BreezeLabError("The voice has no name. Type one into the box “Name”.")
    if len(name) > LONGEST:
        raise BreezeLabError(f"The name has {len(name)} characters. Use {LONGEST} at most.")
    if not NAME.fullmatch(name):
        raise BreezeLabError(
            f"“{name}” cannot be a file's name. Use letters, digits, spaces, dots, dashes and round brackets, "
            "a letter or a digit first."
        )
    return name


class Shelf:
    def __init__(self, folder: Path | None = None):
        self.folder = Path(folder) if folder is not None else shelf_folder()

    def path(self, name: str) -> Path:
        return self.folder / f"{check_name(name)}.safetensors"

    def clip_path(self, name: str) -> Path:
        return self.folder / f"{check_name(name)}.wav"

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted((p.stem for p in self.folder.glob("*.safetensors") if NAME.fullmatch(p.stem)), key=str.lower)

    def free(self, name: str) -> Path:
        """The path for a new voice; a name that is taken is refused, never overwritten."""
        path = self.path(name)
        if path.exists():
            raise BreezeLabError(f"A voice “{path.stem}” exists already. Choose another name, or delete it first.")
        self.folder.mkdir(parents=True, exist_ok=True)
        return path

    def held(self, name: str) -> Path:
        path = self.path(name)
        if not path.is_file():
            raise BreezeLabError(f"There is no saved voice “{name}” in {self.folder}. Choose one from the list.")
        return path

    def rename(self, old: str, new: str) -> str:
        """Move the voice and its clip; returns the new name."""
        source = self.held(old)
        if check_name(new) == check_name(old):
            raise BreezeLabError(f"“{new.strip()}” is its name already. Type another one.")
        target = self.free(new)
        source.rename(target)
        if self.clip_path(old).is_file():
            self.clip_path(old).rename(self.clip_path(new))
        return target.stem

    def delete(self, name: str) -> None:
        self.held(name).unlink()
        self.clip_path(name).unlink(missing_ok=True)
