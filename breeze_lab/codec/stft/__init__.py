"""Waft's codec: spectra in, blocks at frame and hop rate, an inverse STFT out."""

from .codec import StftCodec
from .config import StftCodecConfig

__all__ = ["StftCodec", "StftCodecConfig"]
