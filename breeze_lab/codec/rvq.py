"""Split residual vector quantization: codes to vectors and back.

A residual quantizer describes a vector by the sum of one entry from each of K codebooks; each codebook quantizes what
the earlier ones left over. The split form has two of them side by side on the same input, one for the first
("semantic") codebooks and one for the rest ("acoustic"); their outputs are added.
"""

import mlx.core as mx
import mlx.nn as nn

_USAGE_FLOOR = 1e-5


def fold_codebook(embedding_sum: mx.array, cluster_usage: mx.array) -> mx.array:
    """Entries [N, D] from a training-time running sum [N, D] and count [N] of the vectors that fell to each."""
    return embedding_sum / mx.maximum(cluster_usage, _USAGE_FLOOR)[:, None]


class ResidualVQ(nn.Module):
    """K codebooks of N entries, with a projection into and out of their space.

    Args:
        dims: C, width outside.
        entry_dims: D, width of a codebook entry.
        encodes, decodes: which directions this one serves; the other's projection is not held.
    """

    def __init__(self, codebooks: int, size: int, dims: int, entry_dims: int, encodes: bool, decodes: bool):
        super().__init__()
        self.codebooks = mx.zeros((codebooks, size, entry_dims))
        if encodes:
            self.input_proj = nn.Linear(dims, entry_dims, bias=False)
        if decodes:
            self.output_proj = nn.Linear(entry_dims, dims, bias=False)

    def decode(self, codes: mx.array) -> mx.array:
        """int [..., K] -> [..., C]."""
        count, size, dims = self.codebooks.shape
        entries = self.codebooks.reshape(count * size, dims)[codes + mx.arange(count) * size]  # [..., K, D]
        return self.output_proj(entries.sum(axis=-2))

    def encode(self, x: mx.array) -> mx.array:
        """[..., C] -> int32 [..., K]: the nearest entry of each codebook to what is left."""
        rest = self.input_proj(x)
        codes = []
        for book in mx.split(self.codebooks, self.codebooks.shape[0]):
            book = book.squeeze(0)
            # |rest - e|^2 = |rest|^2 + 2 (|e|^2 / 2 - rest . e), and |rest|^2 is the same for every entry.
            codes.append(mx.argmin(0.5 * book.square().sum(axis=-1) - rest @ book.T, axis=-1))
            rest = rest - book[codes[-1]]
        return mx.stack(codes, axis=-1).astype(mx.int32)


class SplitRVQ(nn.Module):
    """Two residual quantizers side by side: codebook ids 0 .. semantic - 1, then the acoustic ones."""

    def __init__(
        self,
        codebooks: int,
        size: int,
        dims: int,
        entry_dims: int,
        *,
        semantic: int = 1,
        encodes: bool = True,
        decodes: bool = True,
    ):
        super().__init__()
        self.split = semantic
        self.semantic = ResidualVQ(semantic, size, dims, entry_dims, encodes, decodes)
        self.acoustic = ResidualVQ(codebooks - semantic, size, dims, entry_dims, encodes, decodes)

    def decode(self, codes: mx.array) -> mx.array:
        """int [..., K] -> [..., C]."""
        return self.semantic.decode(codes[..., : self.split]) + self.acoustic.decode(codes[..., self.split :])

    def encode(self, x: mx.array) -> mx.array:
        """[..., C] -> int32 [..., K]."""
        return mx.concatenate([self.semantic.encode(x), self.acoustic.encode(x)], axis=-1)
