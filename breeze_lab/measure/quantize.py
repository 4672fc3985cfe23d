"""A depth decoder with packed weights beside the one it came from: bytes saved, logits moved."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .tolerance import divergence, to_float64
from .walks import as_dtype, cached_logits

FORMATS: dict[str, dict[str, Any]] = {
    "int8": {"group_size": 64, "bits": 8, "mode": "affine"},
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    "int4": {"group_size": 64, "bits": 4, "mode": "affine"},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
}


def quantized_twin(depth: nn.Module, name: str) -> Any:
    """A copy of a dense depth decoder with its linear layers packed as `FORMATS[name]`; embeddings and heads stay."""
    twin = as_dtype(depth)
    nn.quantize(twin, class_predicate=lambda _, module: isinstance(module, nn.Linear) and FORMATS[name])
    mx.eval(twin.parameters())
    return twin


@dataclass(frozen=True)
class Drift:
    """What packing does to the logits, a value a codebook [K - 1]: divergence in nats, share of equal best codes."""

    divergence: np.ndarray
    top1: np.ndarray


def drift(reference: np.ndarray, depth: Any, codes: mx.array, hidden: mx.array) -> Drift:
    """Teacher-forced: `depth` sees the same codes int [F, K] and states [F, C] as gave `reference` [F, K - 1, V]."""
    logits = to_float64(cached_logits(depth, codes, hidden))
    agree = logits.argmax(-1) == reference.argmax(-1)
    return Drift(divergence(reference, logits).mean(0), agree.mean(0))
