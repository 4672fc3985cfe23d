"""The published file's tensor names and layouts, and the way from them to this package's parameters.

The layout follows from the format alone, never from a tensor's shape. Attribute paths are the published names except
for what is folded at load: convolutions (stored [O, C, k], transposed ones [C, O, k], under a wrapper named `conv`),
snakes (stored as logarithms) and codebooks (stored as a running sum and a count).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from ...errors import BreezeLabError
from ..conv import CausalConv, DepthwiseConv, StridedConv, TransposedConv
from ..rvq import ResidualVQ, fold_codebook
from .config import CodecConfig
from .decoder import SnakeBeta

Shape = tuple[int, ...]
Adopt = Callable[..., dict[str, mx.array]]

# Published names of the two quantizers of each half, and of what a codebook stores.
QUANTIZERS = {
    "decoder.quantizer.semantic": "decoder.quantizer.rvq_first",
    "decoder.quantizer.acoustic": "decoder.quantizer.rvq_rest",
    "encoder.quantizer.semantic": "encoder.quantizer.semantic_residual_vector_quantizer",
    "encoder.quantizer.acoustic": "encoder.quantizer.acoustic_residual_vector_quantizer",
}
DECODER_BOOK = "{}.vq.layers.{}._codebook.embedding_sum", "{}.vq.layers.{}._codebook.cluster_usage"
ENCODER_BOOK = "{}.layers.{}.codebook.embed_sum", "{}.layers.{}.codebook.cluster_usage"
ENCODER_FLAG = "{}.layers.{}.codebook.initialized"


@dataclass(frozen=True)
class Part:
    """Published tensors by name and shape, and the parameters that `adopt` makes of them (in that order)."""

    shapes: dict[str, Shape]
    adopt: Adopt


def parts(codec: nn.Module) -> Iterator[Part]:
    """What the parameters of `codec` are made of; each comes from exactly one part."""
    folded: list[str] = []
    for path, module in codec.named_modules():
        if isinstance(module, CausalConv | DepthwiseConv | StridedConv | TransposedConv):
            found = _convolution(path, module)
        elif isinstance(module, SnakeBeta):
            found = [_snake(path, module)]
        elif isinstance(module, ResidualVQ):
            found = _quantizer(path, module)
        else:
            continue
        folded.append(path + ".")
        yield from found
    for name, array in dict(tree_flatten(codec.parameters())).items():
        if not name.startswith(tuple(folded)):
            yield _same(name, name, array.shape)


def _same(published: str, name: str, shape: Shape) -> Part:
    return Part({published: shape}, lambda array: {name: array})


def _convolution(path: str, module: CausalConv | DepthwiseConv | StridedConv | TransposedConv) -> list[Part]:
    found = [Part({f"{path}.conv.weight": module.upstream}, lambda weight: {f"{path}.weight": module.adopt(weight)})]
    if "bias" in module:
        found.append(_same(f"{path}.conv.bias", f"{path}.bias", module.bias.shape))
    return found


def _snake(path: str, module: SnakeBeta) -> Part:
    names = (f"{path}.alpha", f"{path}.beta")
    return Part(
        dict.fromkeys(names, module.turns.shape),
        lambda alpha, beta: {f"{path}.{name}": array for name, array in SnakeBeta.adopt(alpha, beta).items()},
    )


def _quantizer(path: str, module: ResidualVQ) -> list[Part]:
    published = QUANTIZERS[path]
    count, size, dims = module.codebooks.shape
    books = DECODER_BOOK if path.startswith("decoder.") else ENCODER_BOOK
    shapes: dict[str, Shape] = {}
    for i in range(count):
        shapes |= {books[0].format(published, i): (size, dims), books[1].format(published, i): (size,)}

    def fold(*arrays: mx.array) -> dict[str, mx.array]:
        return {f"{path}.codebooks": mx.stack([fold_codebook(*arrays[2 * i : 2 * i + 2]) for i in range(count)])}

    found = [Part(shapes, fold)]
    for side in ("input_proj", "output_proj"):
        if side in module:  # stored as a convolution of one tap
            weight = f"{path}.{side}.weight"
            shape = (*module[side].weight.shape, 1)
            found.append(Part({f"{published}.{side}.weight": shape}, lambda w, name=weight: {name: w[:, :, 0]}))
    return found


def unused(config: CodecConfig) -> dict[str, Shape]:
    """Tensors of the file that neither half reads: projections for the other direction, spare quantizers, flags."""
    d, e = config.decoder, config.encoder
    found: dict[str, Shape] = {}
    for name in ("semantic", "acoustic"):
        found[f"{QUANTIZERS[f'decoder.quantizer.{name}']}.input_proj.weight"] = (d.codebook_dim // 2, d.codebook_dim, 1)
        encoder = QUANTIZERS[f"encoder.quantizer.{name}"]
        found[f"{encoder}.output_proj.weight"] = (e.hidden_size, e.codebook_dim, 1)
        semantic = e.num_semantic_quantizers
        used = semantic if name == "semantic" else config.num_codebooks - semantic
        total = semantic if name == "semantic" else e.num_quantizers - semantic
        for i in range(total):
            found[ENCODER_FLAG.format(encoder, i)] = (1,)
            if i >= used:
                found[ENCODER_BOOK[0].format(encoder, i)] = (e.codebook_size, e.codebook_dim)
                found[ENCODER_BOOK[1].format(encoder, i)] = (e.codebook_size,)
    return found


def published_shapes(codec: nn.Module, config: CodecConfig) -> dict[str, Shape]:
    """Name and shape of every tensor of the published file."""
    return {name: shape for part in parts(codec) for name, shape in part.shapes.items()} | unused(config)


def adopt(codec: nn.Module, config: CodecConfig, tensors: dict[str, mx.array], where: str) -> dict[str, mx.array]:
    """The parameters of `codec`, float32 and contiguous, from a published file's tensors.

    Raises:
        BreezeLabError: tensors that are missing, unexpected or of another shape, each named.
    """
    _check(published_shapes(codec, config), tensors, where)
    parameters: dict[str, mx.array] = {}
    for part in parts(codec):
        parameters |= part.adopt(*(tensors[name].astype(mx.float32) for name in part.shapes))
    return {name: mx.contiguous(array) for name, array in parameters.items()}


def _check(wanted: dict[str, Shape], tensors: dict[str, mx.array], where: str) -> None:
    missing = sorted(wanted.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - wanted.keys())
    shapes = [
        f"{name} is {list(tensors[name].shape)}, not {list(shape)}"
        for name, shape in sorted(wanted.items())
        if name in tensors and tensors[name].shape != shape
    ]
    problems = [
        f"{kind} {', '.join(names)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("wrong shape:", shapes))
        if names
    ]
    if problems:
        raise BreezeLabError(f"{where} does not fit its config.json: {'; '.join(problems)}. Use matching files.")
