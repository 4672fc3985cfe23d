"""What the notebooks show beside their numbers: the machine, the source of functions, a guess and its verdict."""

import inspect
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import blas
from . import timing

if TYPE_CHECKING:
    from ..checkpoint import SpeechModel


def table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> Any:
    """A small table as Markdown; numbers to three digits."""
    from IPython.core.display import Markdown

    lines = [_line(header), "|" + "---|" * len(header), *(_line(row) for row in rows)]
    return Markdown("\n".join(lines))


def number(value: Any) -> str:
    """Three digits, thousands grouped, no exponent where a plain number is short."""
    if isinstance(value, (bool, str)) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    value = float(value)
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
        return f"{value:,.{digits}f}"
    return f"{value:.1e}"


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(number(cell).replace("|", "\\|") for cell in cells) + " |"


def machine_table(model: "SpeechModel | None" = None) -> Any:
    """The conditions of all that follows: versions, device, BLAS, checkpoint."""
    found = timing.versions("mlx", "numpy", "breeze-lab")
    fast = "OpenBLAS" if blas.load_openblas() else f"MLX's own ({blas.why_not()})"
    rows = [
        ["software", ", ".join(f"{name} {version}" for name, version in found.items())],
        ["device", f"{timing.device_name()} ({timing.backend()}), {timing.cores()} cores"],
    ]
    if timing.backend() == "cpu":
        rows.append(["BLAS", fast])
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if busy > timing.cores() + 1:
        rows.append(["load", f"{busy:.0f} processes want these cores: times are too long here, ratios hold"])
    if model is not None:
        trained = "" if model.trained else ", **untrained: it sounds like noise, all measurements hold**"
        rows.append(["checkpoint", f"{model.name}, {_short(model.dtype)}{trained}"])
    return table(rows, ["", "here"])


def capabilities(found: dict[str, Any]) -> Any:
    """What `info.collect()` found, without folders: fit for a stored output."""
    machine, used = found["machine"], found["blas"]
    rows = [
        ["back end", f"{machine['backend']} on {machine['device']}, {machine['cores']} cores"],
        ["BLAS", f"{used['library']}, {number(used['gflops'])} GFLOP/s in float32 products"],
        ["compiler for mx.compile", "yes" if found["compiler"] else "none: it runs uncompiled"],
        ["versions", ", ".join(f"{name} {found['versions'][name]}" for name in ("python", "mlx", "numpy"))],
        ["checkpoint", found["checkpoint"]["kind"]],
        ["voices", ", ".join(found["voices"]) or "none yet"],
    ]
    return table(rows, ["", "here"])


def source(*functions: Callable[..., Any]) -> Any:
    """The functions' own code, docstrings left out: what runs is what is shown."""
    from IPython.core.display import Markdown

    return Markdown("\n".join(f"```python\n{_without_docstring(f)}\n```" for f in functions))


def verdict(what: str, guess: float, measured: float, unit: str = "") -> Any:
    """Your guess beside the measurement."""
    from IPython.core.display import Markdown

    off = max(guess, measured) / max(min(guess, measured), 1e-30)
    whole = isinstance(guess, int) and isinstance(measured, int)
    words = (
        "Spot on."
        if off < 1.25 and (guess == measured or not whole)
        else "Close."
        if off < 2
        else f"Off by a factor of {number(off)}."
    )
    one, other = (f"**{number(value)}{unit}**" for value in (guess, measured))
    return Markdown(f"{what}: you guessed {one}, measured {other}. {words}")


def _without_docstring(function: Callable[..., Any]) -> str:
    code = inspect.getsource(function).rstrip()
    return re.sub(r'\n\s+"""[\s\S]*?"""', "", code, count=1)


def _short(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]
