"""`breeze-lab bench`: the ladder's methods and the peers, each in processes of its own, on one checkpoint folder.

Runs alternate (A B C, A B C, ...), so that all meet the same weather, and medians over the rounds are reported. All are
timed by the same clock from outside: the time between two chunks of a stream, warm-up apart, same text, same draws.
"""

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import blas
from ..checkpoint import make_checkpoint
from ..errors import BreezeLabError
from ..frames import METHODS
from ..kernels import loops_run_here
from ..measure import timing

TEXT = "The salt breeze came across from the sea, and the lamps along the harbor wall were lit one after another."
PEER, PEER_BLAS = "mlx-audio", "mlx-audio with OpenBLAS"
HERE = Path(__file__).parent


def methods_here() -> list[str]:
    """The rungs for a checkpoint as `load` opens it on this machine's default device; the last is the default."""
    return [name for name in METHODS if name != "host" or loops_run_here()]


def bench(
    *,
    shape: str = "small",
    model: str | None = None,
    methods: Sequence[str] = (),
    peers: bool = False,
    frames: int = 60,
    rounds: int = 3,
    chunk_frames: int = 4,
    seed: int = 7,
    command: str = "breeze-lab bench",
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure and return one object, fit for JSON: see `summary`.

    Args:
        shape: of a random checkpoint made for this run, where `model` names no folder.
        methods: rungs of the ladder; all by default.
        peers: also measure mlx-audio on the same folder, as installed and with OpenBLAS loaded first.
        frames: most frames of one run; a random checkpoint may end earlier, at the same frame for everyone.
        rounds: alternating runs of everything.
        progress: called with the name of each run.

    Raises:
        BreezeLabError: unknown method, a folder that does not load, a peer that is not installed.
    """
    chosen = list(methods) or methods_here()
    unknown = [name for name in chosen if name not in METHODS]
    if unknown:
        raise BreezeLabError(f"unknown method {', '.join(unknown)}. Choose from {', '.join(METHODS)}.")
    for name, value in (("frames", frames), ("rounds", rounds), ("chunk_frames", chunk_frames)):
        if value < 1:
            raise BreezeLabError(f"{name} is {value}. Give a number from 1.")
    default = methods_here()[-1]
    if default not in chosen and peers:
        chosen.append(default)
    if peers and find_spec("mlx_audio") is None:
        raise BreezeLabError('the peer mlx-audio is not installed. Run: python -m pip install -e ".[test]"')
    with ExitStack() as stack:
        if model is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="breeze_lab-bench-"))) / shape
            make_checkpoint(folder, shape, 0)
        else:
            folder = Path(model).expanduser()
            if not (folder / "config.json").is_file():
                raise BreezeLabError(f"{folder} holds no checkpoint. Give its folder, or --shape.")
        request = {"folder": str(folder), "text": TEXT, "frames": frames, "chunk_frames": chunk_frames, "seed": seed}
        runs = _run_all(request, chosen, peers, rounds, progress)
    return summary(runs, shape if model is None else folder.name, command, chosen, request | {"rounds": rounds})


def summary(
    runs: dict[str, list[dict[str, Any]]], shape: str, command: str, methods: Sequence[str], request: dict[str, Any]
) -> dict[str, Any]:
    """One object: machine, versions, date, command, shape, methods, first_audio_s, peers, speedup_over_mlx_audio.

    frame_ms: median time of a frame in the steady part of a stream. rtf: seconds of work a second of audio, the first
    chunk included. host_reads: a run's total. Speed-ups are medians over the rounds of peer's frame_ms / ours.
    """
    default = methods_here()[-1]
    best = default if default in methods else methods[0]
    out: dict[str, Any] = {
        "machine": timing.machine(),
        "versions": timing.versions(),
        "date": datetime.date.today().isoformat(),
        "command": command,
        "shape": shape,
        "settings": {name: request[name] for name in ("frames", "chunk_frames", "rounds", "seed")},
        "methods": {name: _medians(runs[name]) for name in methods},
        "first_audio_s": _medians(runs[best])["first_audio_s"],
        "peers": {name: _medians(runs[name]) for name in (PEER, PEER_BLAS) if name in runs},
    }
    for name, key in ((PEER, "speedup_over_mlx_audio"), (PEER_BLAS, "speedup_over_mlx_audio_with_openblas")):
        if name in runs:
            ratios = [peer["frame_ms"] / ours["frame_ms"] for peer, ours in zip(runs[name], runs[best], strict=True)]
            out[key] = round(statistics.median(ratios), 2)
    out["speedup_method"] = best
    return out


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = [n for n in ("frame_ms", "rtf", "first_audio_s", "host_reads", "peak_memory_gb") if n in runs[0]]
    medians = {name: round(statistics.median(run[name] for run in runs), 4) for name in names}
    return medians | {"frames": runs[0]["frames"]}


def _run_all(
    request: dict[str, Any], methods: Sequence[str], peers: bool, rounds: int, progress: Callable[[str], None] | None
) -> dict[str, list[dict[str, Any]]]:
    """Name -> one result a round. Every run is a fresh process."""
    jobs: dict[str, tuple[list[str], dict[str, Any], dict[str, str]]] = {
        name: (["-m", "breeze_lab.bench.worker"], request | {"method": name}, {}) for name in methods
    }
    if peers:
        peer = [str(HERE / "peer_mlx_audio.py")]
        jobs[PEER] = (peer, request, {})
        if blas.load_openblas() is not None:
            jobs[PEER_BLAS] = (peer, request, {"BENCH_PRELOAD": blas.__file__})
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for turn in range(rounds):
        for name, (words, job, environment) in jobs.items():
            if progress is not None:
                progress(f"{name}, round {turn + 1} of {rounds}")
            results[name].append(_run(name, words, job, environment))
    return results


def _run(name: str, words: list[str], job: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """One process: the request on its standard input, the result as the last line of its standard output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BreezeLabError(f"{name} failed on {Path(job['folder']).name}: {why}") from None
