"""breeze_lab: a research workbench for codec-language-model speech on MLX."""

from .blas import load_openblas

load_openblas()  # before anything imports MLX

from .checkpoint import convert, load, make_checkpoint  # noqa: E402
from .errors import BreezeLabError  # noqa: E402
from .generate import Chunk, Result, Stats, generate, stream_generate  # noqa: E402
from .voice import Voice  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "BreezeLabError",
    "Chunk",
    "Result",
    "Stats",
    "Voice",
    "convert",
    "generate",
    "load",
    "make_checkpoint",
    "stream_generate",
]
