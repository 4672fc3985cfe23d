"""Codecs: audio to codes [F, K] and back, behind one interface."""

from pathlib import Path

from ..errors import BreezeLabError
from ..weights import read_json
from .base import Codec, StreamState
from .qwen12hz import Qwen12HzCodec, make_random_codec

__all__ = ["Codec", "StreamState", "load_codec", "make_random_codec"]


def load_codec(folder: Path) -> Codec:
    """The codec in an `audio_tokenizer` folder; its config.json says which one.

    Raises:
        BreezeLabError: files are missing or broken, or the codec is not one of the known ones.
    """
    folder = Path(folder)
    kind = read_json(folder / "config.json").get("model_type")
    if kind == "qwen3_tts_tokenizer_12hz":
        return Qwen12HzCodec.load(folder)
    if kind == "breeze_lab_stft_codec":
        from .stft import StftCodec

        return StftCodec.load(folder)
    raise BreezeLabError(
        f"{folder / 'config.json'} says model_type {kind!r}, which is not a known codec. "
        'Known are "qwen3_tts_tokenizer_12hz" and "breeze_lab_stft_codec".'
    )
