"""What the session needs from a speech model, and the real one. Every call is made on one and the same thread."""

import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .takes import Request


@dataclass(frozen=True)
class ModelNote:
    """What to tell about a loaded model."""

    name: str
    source: str
    sample_rate: int = 24_000
    frame_rate: float = 12.5
    memory_gb: float = 0.0  # parameters
    trained: bool = True
    dtype: str = ""


def size_text(gigabytes: float) -> str:
    return f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{1000 * gigabytes:.0f} MB"


class Engine(Protocol):
    """A voice is opaque to the session: it is made, kept, saved and given back here.

    Warnings of the library are kept in `notes` for the status line.
    """

    notes: list[str]

    def load(self, source: str | None) -> ModelNote: ...

    def encode(self, samples: np.ndarray, transcript: str, name: str) -> Any:
        """A voice of float32 [N] at 24 kHz."""
        ...

    def stream(self, request: Request, voice: Any | None, seed: int, cancel: Any) -> Generator[Any, None, None]:
        """Chunks with samples, is_final, finish_reason and stats; `cancel.is_set()` is looked at once a frame."""
        ...

    def save_voice(self, voice: Any, path: Path, name: str) -> None: ...

    def load_voice(self, path: Path) -> Any: ...

    def close(self) -> None:
        """The thread ends."""
        ...


class BreezeEngine:
    """breeze_lab itself. Imported late: the widget shows before MLX is loaded."""

    def __init__(self, chunk_frames: int | None = None):
        self.model: Any = None
        self.chunk_frames = chunk_frames
        self.notes: list[str] = []

    def load(self, source: str | None) -> ModelNote:
        from .. import checkpoint

        self.model = None  # give the old one's memory back first
        with self._noted():
            self.model = model = checkpoint.load(source)
        return ModelNote(
            name=model.name,
            source=str(source or model.folder),
            sample_rate=model.sample_rate,
            frame_rate=model.codec.frame_rate,
            memory_gb=parameter_bytes(model) / 1e9,
            trained=model.trained,
            dtype=str(model.dtype).rsplit(".", 1)[-1],
        )

    def encode(self, samples: np.ndarray, transcript: str, name: str) -> Any:
        from ..voice import Voice

        with self._noted():
            return Voice.from_audio(self.model, samples, transcript, sample_rate=24_000, name=name)

    def stream(self, request: Request, voice: Any | None, seed: int, cancel: Any) -> Generator[Any, None, None]:
        from ..generate import stream_generate

        options = {
            "chunk_frames": self.chunk_frames,
            "temperature": request.temperature,
            "top_k": request.top_k,
            "top_p": request.top_p,
            "repetition_penalty": request.repetition_penalty,
        }
        yield from stream_generate(
            self.model,
            request.text.strip(),
            voice=voice,
            instruct=request.instruct.strip() or None,
            cfg_scale=request.cfg_scale,
            seed=seed,
            max_frames=request.max_frames,
            cancel=cancel,
            **{name: value for name, value in options.items() if value is not None},
        )

    @contextmanager
    def _noted(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                self.notes.extend(str(w.message) for w in caught if issubclass(w.category, UserWarning))

    def save_voice(self, voice: Any, path: Path, name: str) -> None:
        replace(voice, name=name).save(path)

    def load_voice(self, path: Path) -> Any:
        from ..voice import Voice

        return Voice.load(path)

    def close(self) -> None:
        self.model = None
        if "mlx.core" in sys.modules:  # a load that failed has used it as well
            import mlx.core as mx

            mx.clear_streams()


def parameter_bytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    tensors: list[Any] = [pair[1] for part in (model.lm, model.codec) for pair in tree_flatten(part.parameters())]
    return sum(tensor.nbytes for tensor in tensors)
