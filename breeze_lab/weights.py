"""Tensors in and out of files, and into modules: strictly, each fault named."""

import json
import struct
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from .errors import BreezeLabError
from .files import whole_file


def read_json(path: Path) -> dict:
    """Read a JSON object; a missing or broken file is a BreezeLabError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BreezeLabError(f"{path} does not exist. Give a folder that holds a whole checkpoint.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BreezeLabError(f"{path} cannot be read ({error}). Download or copy the file again.") from None
    if not isinstance(data, dict):
        raise BreezeLabError(f"{path} is not a JSON object. Download or copy the file again.")
    return data


def check_complete(path: Path) -> None:
    """Refuse a safetensors file that is shorter than its own header says, before anything is read lazily."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(header_bytes)) if header_bytes < size else None
        ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]  # type: ignore[union-attr]
        wanted = 8 + header_bytes + max(ends, default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise BreezeLabError(f"{path} is not a safetensors file. Download or copy it again.") from None
    except OSError as error:
        raise BreezeLabError(f"{path} cannot be read ({error.strerror}). Download or copy it again.") from None
    if size < wanted:
        raise BreezeLabError(f"{path} is truncated: {size} of {wanted} bytes. Download or copy it again.")


def read_tensors(folder: Path) -> dict[str, mx.array]:
    """All tensors of a folder's *.safetensors files, lazily loaded.

    With a `model.safetensors.index.json`, exactly the files it names are read, and each must be there.

    Raises:
        BreezeLabError: no such file, a truncated file, or one that is not safetensors.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
            raise BreezeLabError(f"{index} has no weight_map. Download or copy it again.")
        outside = [name for name in names.values() if Path(name).name != name]
        if outside:
            raise BreezeLabError(f"{index} names {outside[0]!r}, which is not a file beside it. Download it again.")
        paths = [folder / name for name in sorted(set(names.values()))]
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            raise BreezeLabError(f"{folder} lacks {', '.join(missing)}, named in {index.name}. Download them again.")
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise BreezeLabError(f"{folder} holds no .safetensors file. Give a folder that holds a whole checkpoint.")
    tensors: dict[str, mx.array] = {}
    for path in paths:
        check_complete(path)
        try:
            tensors.update(mx.load(str(path)))  # type: ignore[arg-type]
        except (RuntimeError, OSError) as error:
            raise BreezeLabError(f"{path} cannot be read ({error}). Download or copy it again.") from None
    return tensors


def write_tensors(path: Path, tensors: dict[str, mx.array]) -> None:
    """Write one safetensors file, whole or not at all."""
    with whole_file(path) as part:
        mx.save_safetensors(str(part), tensors, metadata={"format": "mlx"})


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def assign(module: nn.Module, tensors: dict[str, mx.array], where: str) -> None:
    """Put `tensors` into `module`, which must have exactly these parameters with these shapes, and evaluate them.

    Raises:
        BreezeLabError: tensors that are missing, unexpected or of another shape, each named.
    """
    wanted = dict(tree_flatten(module.parameters()))
    missing = sorted(wanted.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - wanted.keys())
    shapes = [
        f"{name} is {list(tensors[name].shape)}, not {list(array.shape)}"
        for name, array in sorted(wanted.items())
        if name in tensors and tensors[name].shape != array.shape
    ]
    problems = [
        f"{kind} {_some(names)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("wrong shape:", shapes))
        if names
    ]
    if problems:
        raise BreezeLabError(f"{where} does not fit its configuration: {'; '.join(problems)}. Use matching files.")
    module.load_weights(list(tensors.items()), strict=True)
    mx.eval(module.parameters())
