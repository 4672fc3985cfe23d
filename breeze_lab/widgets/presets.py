"""What the widget offers ready-made: manners of speaking, events, voices, models with their notices."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from .clip import Clip, clip_from_file
from .engine import size_text

EVENTS = ("(laugh)", "(cough)", "(clears throat)", "(sigh)", "[笑]", "[咳嗽]", "[清嗓子]", "[叹气]")  # Breeze TTS 2


@dataclass(frozen=True)
class Preset:
    """A manner of speaking: instruction, CFG and sampling together."""

    instruct: str = ""
    cfg_scale: float = 1.0
    temperature: str = ""  # "": the model's own
    top_k: str = ""


PRESETS = {
    "As the reference": Preset(),
    "Steady": Preset(temperature="0.5", top_k="30"),
    "Lively": Preset("Speak lively and with joy.", 2.0),
    "Calm": Preset("Speak slowly and calmly, in a low voice.", 2.0),
    "Whisper": Preset("Whisper, close to the microphone.", 3.0),
    "News": Preset("Speak like a news anchor: clear, even, serious.", 2.0),
}

HUB_MODELS = {  # Hub id: size in GB
    "mlx-community/Breeze-TTS-2-mlx-4bit": 2.3,
    "mlx-community/Breeze-TTS-2-mlx-8bit": 3.9,
    "mlx-community/Breeze-TTS-2-mlx": 6.9,
}
BREEZE_LICENSE = (
    "Breeze TTS 2 is under its authors' research license: non-commercial use only, and that covers the sound you make."
)


def events(source: str) -> tuple[str, ...]:
    """What a model can be asked for besides words; `source` as for `model_notice`. Waft's corpus held none of it."""
    try:
        config = json.loads((_folder(source) / "config.json").read_text(encoding="utf-8")) if source else {}
    except (OSError, ValueError):
        return EVENTS  # not here yet: Breeze TTS 2, probably
    return EVENTS if source and not config.get("text_frontend") else ()


def model_notice(source: str) -> tuple[str, str]:
    """(memory, license) of a model before it is loaded, as sentences. `source`: "" (Waft), a folder or a Hub id."""
    if not source:
        folder = paths.data_folder() / "waft"
        size = f"{_megabytes(folder):.0f} MB of weights" if folder.is_dir() else "A few MB of weights"
        return (
            f"{size}, runs on a CPU.",
            "Waft was made for breeze_lab and is free to use; its card is data/waft/README.md.",
        )
    folder = _folder(source)
    if (folder / "config.json").is_file():
        size = _megabytes(folder)
        license = next((p.name for p in sorted(folder.glob("LICEN[SC]E*"))), "")
        told = (
            f"Its license is in {license}." if license else "The folder holds no license file: ask where it came from."
        )
        return f"{size_text(size / 1000)} of weights will be held in memory.", told
    if source in HUB_MODELS:
        gb = HUB_MODELS[source]
        return (
            f"{gb} GB to download once and to hold in memory; about {gb + 1.5:.0f} GB in use while it speaks.",
            BREEZE_LICENSE,
        )
    if source.count("/") == 1 and not source.startswith((".", "/", "~")):
        return "Size unknown before the download.", f"License: see https://huggingface.co/{source} before you use it."
    return f"There is no model in {folder}.", "Give a folder with config.json in it, or a Hub id such as owner/name."


def _folder(source: str) -> Path:
    return Path(os.path.expanduser(source))


def _megabytes(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*.safetensors")) / 1e6


def ready_voices(folder: Path | None = None) -> dict[str, Path]:
    """Name to sound file of data/voices/: NAME.wav or NAME.flac with NAME.json beside it."""
    folder = paths.voices_folder() if folder is None else Path(folder)
    if not folder.is_dir():
        return {}
    sounds = {p.stem: p for suffix in ("*.flac", "*.wav") for p in folder.glob(suffix)}
    return {name: path for name, path in sorted(sounds.items()) if path.with_suffix(".json").is_file()}


def ready_clip(path: Path) -> Clip:
    """A ready-made voice's clip with its transcript; the codes are made anew, as each model has its own codec."""
    told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    license = told.get("license") or told.get("licence") or ""
    return clip_from_file(path, "ready", path.stem, told.get("transcript", ""), str(license))
