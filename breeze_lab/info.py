"""`breeze-lab info`: what this machine has, what breeze_lab found, and the cure for what is missing."""

import os
import shutil
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx

from . import blas, kernels, voices
from .errors import BreezeLabError
from .generation_config import described, read_sampling
from .measure import timing
from .paths import cache_folder, data_folder, notebooks_folder
from .samplers import Sampling

PACKAGES = (
    "breeze-lab mlx mlx-cpu mlx-cuda-12 mlx-cuda-13 mlx-metal cmeel-openblas numba numpy soundfile soxr tokenizers "
    "tqdm hibari-tts huggingface-hub jupyterlab ipywidgets anywidget matplotlib voila mlx-audio torch"
).split()
SLOW_GFLOPS = 15.0  # two cores with OpenBLAS give over 100; the wheel's own BLAS gives 4


def collect(measure: bool = True) -> dict[str, Any]:
    """Everything `breeze-lab info` tells, fit for JSON. `measure` times a float32 product, well under 1 s."""
    found: dict[str, Any] = {
        "machine": timing.machine(),
        "versions": timing.versions(*PACKAGES),
        "blas": {
            "library": _library(),
            "config": blas.openblas_version(),
            "why_not_openblas": blas.why_not(),
            "gflops": round(blas.gflops(), 1) if measure else None,
        },
        "compiler": shutil.which(os.environ.get("CXX", "g++")),
        "memory_gb": _memory_gb(),
        "checkpoint": _checkpoint(),
        "voices": voices.names(),
        "notebooks": _short(notebooks_folder()),
        "lab_installed": find_spec("jupyterlab") is not None,
    }
    return found | {"cures": cures(found)}


def cures(found: dict[str, Any]) -> list[str]:
    """What to do about each thing that is missing or slow, one sentence each."""
    out = []
    backend, blas_found = found["machine"]["backend"], found["blas"]
    if sys.platform.startswith("linux") and blas_found["why_not_openblas"]:
        out.append(f"OpenBLAS is not loaded, products are 10 to 30 times slower: {blas_found['why_not_openblas']}.")
    elif backend == "cpu" and blas_found["gflops"] is not None and blas_found["gflops"] < SLOW_GFLOPS:
        out.append("Matrix products are slow here. Close other programs; check OPENBLAS_NUM_THREADS.")
    if backend == "cpu" and kernels.why_not():
        out.append(f"Numba does not work, so frames take longer: {kernels.why_not()}. python -m pip install -U numba")
    if backend == "cpu" and shutil.which("nvidia-smi"):
        out.append('There is an NVIDIA driver, but MLX runs on the CPU: python -m pip install -e ".[cuda]"')
    if backend == "cpu" and found["compiler"] is None:
        out.append("No g++, so mx.compile runs uncompiled on the CPU: apt-get install g++ (or your system's).")
    if not found["checkpoint"]["trained"]:
        out.append("No trained checkpoint in data/waft: speech will be noise. Clone again, or pass --model.")
    if found["checkpoint"]["fault"]:
        out.append(found["checkpoint"]["fault"])
    if not found["voices"]:
        out.append("No voices in data/voices: clone one with breeze-lab clone --ref-audio CLIP --ref-text WORDS.")
    if found["notebooks"] is None:
        out.append("The notebooks were not found: run breeze-lab in a clone of the repository.")
    if not found["lab_installed"]:
        out.append('JupyterLab is not installed: python -m pip install -e ".[lab]"')
    return out


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    machine, used, sampling = found["machine"], found["blas"], found["checkpoint"]["sampling"]
    speed = "" if used["gflops"] is None else f", {used['gflops']:g} GFLOP/s in float32 products"
    where = f" in {found['checkpoint']['folder']}" if found["checkpoint"]["folder"] else ""
    rows = [
        ("backend", f"{machine['backend']} on {machine['device']}"),
        ("machine", f"{machine['system']}, {machine['cores']} cores, {found['memory_gb'] or '?'} GB"),
        ("BLAS", f"{used['config'] or used['library']}{speed}"),
        ("compiler", found["compiler"] or "none"),
        ("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())),
        ("checkpoint", f"{found['checkpoint']['kind']}{where}"),
        ("sampling", "unreadable" if sampling is None else described(Sampling(**sampling))),
        ("voices", ", ".join(found["voices"]) or "none"),
        ("notebooks", found["notebooks"] or "none"),
    ]
    return [f"{name:11}{value}" for name, value in rows] + [f"{'cure':11}{cure}" for cure in found["cures"]]


def _library() -> str:
    if blas.load_openblas():
        return "OpenBLAS"
    return "Accelerate" if sys.platform == "darwin" else "the reference BLAS of the MLX wheel"


def _checkpoint() -> dict[str, Any]:
    """The default checkpoint, without making one. sampling is None, with the fault, where its file is broken."""
    waft, made = data_folder() / "waft", cache_folder() / "random-small"
    found: dict[str, Any] = {"kind": "none yet; a random one is made when first asked for", "folder": None}
    found |= {"trained": False, "sampling": asdict(Sampling()), "fault": None}
    for folder, kind, trained in ((waft, "Waft", True), (made, "random, untrained", False)):
        if (folder / "config.json").is_file():
            found |= {"kind": kind, "folder": _short(folder), "trained": trained}
            try:
                return found | {"sampling": asdict(read_sampling(folder))}
            except BreezeLabError as error:
                return found | {"sampling": None, "fault": str(error)}
    return found


def _short(path: Path | None) -> str | None:
    """A path as people read it: relative to the current folder where it lies inside."""
    if path is None:
        return None
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _memory_gb() -> float | None:
    """Memory that MLX may use: the GPU's own where it tells, else the machine's, in 1e9 bytes."""
    told = mx.device_info().get("memory_size") if timing.backend() != "cpu" else None
    if told is None and hasattr(os, "sysconf"):
        told = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None if told is None else round(float(told) / 1e9, 1)
