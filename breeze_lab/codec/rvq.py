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

    def entries(self, codes: mx.array) -> mx.array:
        """int [..., K] -> sums of the codebooks' entries [..., D]."""
        count, size, dims = self.codebooks.shape
        return self.codebooks.reshape(count * size, dims)[codes + mx.arange(count) * size].sum(axis=-2)

    def decode(self, codes: mx.array) -> mx.array:
        """int [..., K] -> [..., C]."""
        return self.output_proj(self.entries(codes))

    def encode(self, x: mx.array, beam: int = 1) -> mx.array:
        """[..., C] -> int32 [..., K]: the nearest entry of each codebook to what is left.

        beam: so many sums are followed at a time and the nearest is taken at the end, which comes nearer than one.
        """
        rest = self.input_proj(x)
        if beam > 1:
            codes = self._search(rest.reshape(-1, rest.shape[-1]), beam)
            return codes.reshape(*x.shape[:-1], -1)
        codes = []
        for book in mx.split(self.codebooks, self.codebooks.shape[0]):
            book = book.squeeze(0)
            # |rest - e|^2 = |rest|^2 + 2 (|e|^2 / 2 - rest . e), and |rest|^2 is the same for every entry.
            codes.append(mx.argmin(0.5 * book.square().sum(axis=-1) - rest @ book.T, axis=-1))
            rest = rest - book[codes[-1]]
        return mx.stack(codes, axis=-1).astype(mx.int32)

    def _search(self, x: mx.array, beam: int) -> mx.array:
        """[M, D] -> int32 [M, K]; b sums of the first codebooks are kept, by how little they leave."""
        rest, codes = x[:, None], mx.zeros((x.shape[0], 1, 0), mx.int32)  # [M, b, D], [M, b, codebooks so far]
        for book in mx.split(self.codebooks, self.codebooks.shape[0]):
            book = book.squeeze(0)
            left = 0.5 * rest.square().sum(axis=-1, keepdims=True) + 0.5 * book.square().sum(axis=-1) - rest @ book.T
            left = left.reshape(x.shape[0], -1)  # half the squared distance after each entry: [M, b * N]
            best = mx.arange(left.shape[1])[None] if left.shape[1] <= beam else mx.argpartition(left, beam - 1, axis=-1)
            best = mx.broadcast_to(best, (x.shape[0], best.shape[1]))[:, :beam]
            parent, code = best // book.shape[0], best % book.shape[0]
            rest = mx.take_along_axis(rest, parent[..., None], axis=1) - book[code]
            codes = mx.take_along_axis(codes, parent[..., None], axis=1) if codes.shape[-1] else codes
            codes = mx.broadcast_to(codes, (*code.shape, codes.shape[-1]))
            codes = mx.concatenate([codes, code[..., None].astype(mx.int32)], axis=-1)
        nearest = rest.square().sum(axis=-1).argmin(axis=-1)
        return mx.take_along_axis(codes, nearest[:, None, None], axis=1).squeeze(1)


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
        beam: int = 1,
    ):
        super().__init__()
        self.split, self.beam = semantic, beam
        self.semantic = ResidualVQ(semantic, size, dims, entry_dims, encodes, decodes)
        self.acoustic = ResidualVQ(codebooks - semantic, size, dims, entry_dims, encodes, decodes)

    def entries(self, codes: mx.array) -> mx.array:
        """int [..., K] -> the semantic and the acoustic codebooks' sums of entries, side by side [..., 2 D]."""
        parts = [self.semantic.entries(codes[..., : self.split]), self.acoustic.entries(codes[..., self.split :])]
        return mx.concatenate(parts, axis=-1)

    def project(self, entries: mx.array) -> mx.array:
        """[..., 2 D] -> [..., C]."""
        semantic, acoustic = mx.split(entries, 2, axis=-1)
        return self.semantic.output_proj(semantic) + self.acoustic.output_proj(acoustic)

    def decode(self, codes: mx.array) -> mx.array:
        """int [..., K] -> [..., C]."""
        return self.semantic.decode(codes[..., : self.split]) + self.acoustic.decode(codes[..., self.split :])

    def encode(self, x: mx.array) -> mx.array:
        """[..., C] -> int32 [..., K]."""
        return mx.concatenate([self.semantic.encode(x, self.beam), self.acoustic.encode(x, self.beam)], axis=-1)
