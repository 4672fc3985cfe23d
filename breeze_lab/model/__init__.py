"""The parts of Breeze TTS 2: weights and pure functions of them, no state."""

from .backbone import Backbone
from .breeze import Breeze
from .depth import DepthDecoder
from .text_encoder import TextEncoder

__all__ = ["Backbone", "Breeze", "DepthDecoder", "TextEncoder"]
