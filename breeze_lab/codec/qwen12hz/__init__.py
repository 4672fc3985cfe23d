"""The codec of the published Breeze TTS 2 checkpoints."""

from .codec import Qwen12HzCodec
from .random import make_random_codec

__all__ = ["Qwen12HzCodec", "make_random_codec"]
