"""Voices by name: the ones in `data/voices/`, and files given by path.

A shipped voice is NAME.json {transcript, licence, source} beside its clip (NAME.wav, .flac, .ogg or .mp3), and may have
NAME.safetensors, the clip already encoded by the default checkpoint's codec.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from .audio import READABLE
from .errors import BreezeLabError
from .files import as_path
from .paths import voices_folder
from .voice import Voice
from .weights import read_json

if TYPE_CHECKING:
    from .checkpoint import SpeechModel


def names() -> list[str]:
    """Names of the shipped voices, in order."""
    return sorted(path.stem for path in voices_folder().glob("*.json") if _clip(path) or _encoded(path).is_file())


def find(name: str | Path) -> Path:
    """The file of a voice: `name` itself where it is a file, else the shipped voice's .safetensors or clip.

    Raises:
        BreezeLabError: no such voice, or a clip without its transcript.
    """
    path = as_path(name, "the voice")
    if not path.is_file():
        if str(name) not in names():
            known = ", ".join(names()) or "none"
            raise BreezeLabError(f"there is no voice {str(name)!r}. Give a .safetensors voice, or one of: {known}.")
        path = voices_folder() / f"{name}.json"
        path = _encoded(path) if _encoded(path).is_file() else _clip(path) or path
    if path.suffix != ".safetensors" and not path.with_suffix(".json").is_file():
        raise BreezeLabError(
            f"{path} is a clip without its transcript. Use: breeze-lab clone --ref-audio '{path}' --ref-text '...'"
        )
    return path


def open_voice(model: "SpeechModel", name: str | Path) -> Voice:
    """The voice `name` for `model`: loaded where the model's own codec encoded it, else encoded from its clip."""
    path = find(name)
    clip = _clip(path)
    if path.suffix == ".safetensors":
        voice = Voice.load(path)
        try:
            voice.check(model.codec)
            return voice
        except BreezeLabError:
            if clip is None or not path.with_suffix(".json").is_file():
                raise
    about = read_json(path.with_suffix(".json"))
    for key in ("transcript", "source", "licence", "license"):
        if not isinstance(about.get(key, ""), str):
            raise BreezeLabError(f"{path.with_suffix('.json')}: {key} is not a text but {about[key]!r}. Mend the file.")
    source = ", ".join(about[key] for key in ("source", "licence", "license") if about.get(key))
    return Voice.from_audio(model, clip or path, about.get("transcript", ""), name=path.stem, source=source)


def _encoded(path: Path) -> Path:
    return path.with_suffix(".safetensors")


def _clip(path: Path) -> Path | None:
    """The sound file with the same stem, if there is one."""
    return next((path.with_suffix(s) for s in READABLE if path.with_suffix(s).is_file()), None)
