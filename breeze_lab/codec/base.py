"""What every codec offers, and what a stream carries between calls."""

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import mlx.nn as nn

from ..errors import BreezeLabError


class StreamState:
    """The memory of one stream: an array for each layer that looks back, in the order in which the layers run.

    The codec's modules never hold it, so streams on one codec cannot disturb each other. Its size is bounded by the
    codec's receptive field, however long the stream is.

    Attributes:
        frames: frames consumed so far.
    """

    def __init__(self) -> None:
        self.frames = 0
        self._kept: list[mx.array] = []
        self._next: list[mx.array] = []

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self._kept)

    @property
    def arrays(self) -> list[mx.array]:
        """What is held, for evaluation."""
        return self._kept

    @contextmanager
    def advance(self, frames: int) -> Iterator[None]:
        """Around one pass over the layers. An exception inside leaves the state as it was."""
        self._next = []
        yield
        self._kept = self._next
        self.frames += frames

    def behind(self, x: mx.array, rows: int, axis: int = 0, pad: bool = True) -> mx.array:
        """`x` with the `rows` entries that came before it on `axis`; remembers its last `rows` for the next call.

        At the start of a stream the missing entries are zeros, or left out where `pad` is false.
        """
        slot = len(self._next)
        if slot < len(self._kept):
            joined = mx.concatenate([self._kept[slot], x], axis=axis)
        else:
            joined = zeros_before(x, rows, axis) if pad else x
        first = max(0, joined.shape[axis] - rows)
        tail = joined[first:] if axis == 0 else joined[..., first:, :]
        self._next.append(mx.contiguous(tail))  # a copy: a view would keep all of `joined` alive
        return joined

    def total(self, x: mx.array) -> mx.array:
        """Running sums of `x` on axis 0 from the start of the stream on; remembers the last."""
        slot = len(self._next)
        sums = mx.cumsum(x, axis=0)
        if slot < len(self._kept):
            sums = sums + self._kept[slot]
        self._next.append(mx.contiguous(sums[-1:]))
        return sums


def zeros_before(x: mx.array, rows: int, axis: int = 0) -> mx.array:
    """`x` with `rows` zeros in front on `axis`."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (rows, 0)
    return mx.pad(x, widths)


class Codec(nn.Module):
    """Audio to codes and back. A codec holds weights only.

    Attributes:
        sample_rate: samples a second, both ways.
        frame_size: samples a frame.
        num_codebooks: K, codes a frame.
        codebook_size: codes lie in 0 .. codebook_size - 1.
    """

    sample_rate: int
    frame_size: int
    num_codebooks: int
    codebook_size: int

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.frame_size

    def encode(self, samples: mx.array) -> mx.array:
        """float32 [N] mono samples at `sample_rate` -> int32 [F, K], F = ceil(N / frame_size)."""
        raise NotImplementedError

    def decode(self, codes: mx.array) -> mx.array:
        """int [F, K] -> float32 [F * frame_size] in [-1, 1]."""
        raise NotImplementedError

    def make_state(self) -> StreamState:
        """The memory of a new stream."""
        return StreamState()

    def decode_step(self, codes: mx.array, state: StreamState) -> mx.array:
        """int [F, K], the next F frames of a stream -> float32 [F * frame_size]; advances `state`."""
        raise NotImplementedError

    def check_samples(self, samples: mx.array) -> mx.array:
        """`samples` as float32 [N].

        Raises:
            BreezeLabError: not one channel, or empty.
        """
        if samples.ndim != 1 or samples.size == 0:
            raise BreezeLabError(
                f"The codec encodes one channel of at least one sample, not shape {list(samples.shape)}. "
                "Mix the channels down and give a 1-dimensional array."
            )
        return samples.astype(mx.float32)

    def check_codes(self, codes: mx.array) -> mx.array:
        """`codes` as int32 [F, K], shape and type checked without reading the values.

        Raises:
            BreezeLabError: another shape or not integers.
        """
        if codes.ndim != 2 or codes.shape[1] != self.num_codebooks or not mx.issubdtype(codes.dtype, mx.integer):
            raise BreezeLabError(
                f"Codes must be integers of shape [frames, {self.num_codebooks}], "
                f"not {codes.dtype} {list(codes.shape)}. Codes of another codec cannot be decoded by this one."
            )
        return codes.astype(mx.int32)

    def check_range(self, codes: mx.array) -> None:
        """Reads the codes once.

        Raises:
            BreezeLabError: a code outside 0 .. codebook_size - 1.
        """
        if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= self.codebook_size):
            raise BreezeLabError(
                f"Codes must lie in 0 .. {self.codebook_size - 1}, but they span {int(codes.min())} .. "
                f"{int(codes.max())}. Leave out reserved ids and padding frames."
            )
