"""`breeze-lab record`: measure this machine and write the results as JSON that the notebooks read.

Also `python -m breeze_lab.measure.record --shape full --out FILE`. Random weights, no network, no checkpoint; about a
minute. `full` has the real layer sizes and wants 5 GB of memory; use it on a GPU or a Mac.
"""

import argparse
import datetime
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..errors import BreezeLabError
from ..frames import usable
from ..random_checkpoint import SHAPES
from . import recorded, roofline, stalls, timing, tolerance
from .host_reads import count_host_reads
from .shapes import ShapeConfig, Stacks, batch_step, frame_work, random_stacks, shape_config

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}
BATCHES = (1, 2, 4, 8, 16, 32, 64)
SLOW_S = 4.0  # no larger batch is tried after one that takes this long


def add(commands: Any) -> None:
    """Add the command to `breeze-lab`'s parser."""
    parser = commands.add_parser(
        "record", help="measure this machine for the notebooks", description=(__doc__ or "").split("\n\n")[0]
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu = timing.backend() != "cpu"
    option = parser.add_argument
    option(
        "--shape", choices=list(SHAPES), default="full" if gpu else "small", help="layer sizes; full is the real ones"
    )
    option("--dtype", choices=list(DTYPES), default="bfloat16" if gpu else "float32", help="of the weights")
    option("--out", type=Path, help="file to write; data/recorded/NAME.json without it")
    option("--name", help="name of the record; made from machine and shape without it")
    option("--device-name", help="what to call the machine, such as 'MacBook Pro, M5 Max'; found out without it")
    option("--repeat", type=int, default=9, help="rounds that count")
    option("--json", action="store_true", help="print the record and its file as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure, write, and say where."""
    if args.repeat < 1:
        raise BreezeLabError(f"--repeat {args.repeat} is not 1 or more. Use 9.")
    recorded.check_output(args.out)
    record = measure_machine(args.shape, args.dtype, args.name, args.device_name, args.repeat, _progress)
    path = recorded.save(record, args.out)
    sys.stdout.write(f"{json.dumps(asdict(record) | {'file': str(path)}) if args.json else path}\n")
    return 0


def measure_machine(
    shape: str = "small",
    dtype: str = "float32",
    name: str | None = None,
    device: str | None = None,
    repeat: int = 9,
    progress: Callable[[str], None] = lambda _: None,
) -> recorded.Record:
    """All measurements as a `Record`; times are milliseconds, bandwidths GB/s (1e9 bytes)."""
    machine = timing.machine() | ({"device": device} if device else {})
    if hasattr(os, "getloadavg"):
        machine["busy_with_others"] = round(os.getloadavg()[0], 1)  # processes running when it began
    name = name or re.sub(r"[^a-z0-9]+", "-", f"{machine['device']} {machine['cores']} {shape}".lower()).strip("-")
    config = shape_config(shape)
    progress("attention against float64")
    results: dict[str, Any] = {"dtype": dtype, "attention": [asdict(row) for row in tolerance.attention_errors()]}
    results["attention_tf32_off"] = [asdict(row) for row in tolerance.attention_errors_without_tf32()]
    progress("bandwidth")
    results["bandwidth_gb_s"] = _bandwidth()
    progress("weights")
    stacks = random_stacks(config, DTYPES[dtype])
    results |= _frames(stacks, config, DTYPES[dtype], repeat, progress)
    progress("batches")
    results["batch_ms"] = _batches(stacks, DTYPES[dtype], repeat)
    command = f"breeze-lab record --shape {shape} --dtype {dtype} --repeat {repeat}"
    date = datetime.date.today().isoformat()
    return recorded.Record(name, "measured", machine, timing.versions(), date, command, "", shape, results)


def _bandwidth() -> dict[str, float]:
    megabytes = 128 if timing.backend() == "cpu" else 1024
    gemv = {f"gemv_{name}": roofline.gemv_bandwidth(2048, megabytes, dtype) for name, dtype in DTYPES.items()}
    return _rounded({"add_float32": roofline.add_bandwidth(megabytes), **gemv})


def _frames(stacks: Stacks, config: ShapeConfig, dtype: mx.Dtype, repeat: int, progress: Callable) -> dict[str, Any]:
    """The ladder with and without guidance, host reads, the backbone's step, a step's host and device share, bytes."""
    out: dict[str, Any] = {}
    for key, guided in (("ladder_ms", False), ("ladder_cfg_ms", True)):
        progress(key.removesuffix("_ms"))
        work = frame_work(stacks, config, dtype, guided=guided)
        methods = usable(work.depth)
        times = stalls.compare(work, methods, repeat)
        out[key] = {method: _milliseconds(timed.samples) for method, timed in times.items()}
        out[key.replace("_ms", "_reads")] = {method: _count_reads(work, method) for method in methods}
    seen = stalls.watch(lambda: frame_work(stacks, config, dtype)("cached"))
    out["cached_step_ms"] = _rounded(vars(stalls.step_costs(seen)))
    width = config.backbone.hidden_size
    caches = stacks.backbone_model.make_cache()
    x = mx.zeros((1, 1, width), dtype)
    mx.eval(stacks.backbone_model(mx.zeros((1, 100, width), dtype), caches))
    timed = timing.measure(lambda: stacks.lm_head(stacks.backbone_model(x, caches)), repeat)
    out["backbone_step_ms"] = _milliseconds(timed.samples)
    size = roofline.model_frame_bytes(stacks)
    out["bytes"] = {"backbone": size.backbone, "depth_step": size.depth_step, "depth_steps": size.steps}
    return out


def _batches(stacks: Stacks, dtype: mx.Dtype, repeat: int) -> dict[str, list[float]]:
    """Milliseconds of one frame for several voices at once, batch size by batch size until it gets slow."""
    out: dict[str, list[float]] = {}
    for batch in BATCHES:
        timed = timing.measure(batch_step(stacks, batch, dtype), repeat, warmup=1)
        out[str(batch)] = _milliseconds(timed.samples)
        mx.clear_cache()
        if timed.median * repeat > SLOW_S:
            break
    return out


def _count_reads(work: Callable[[str], Any], method: str) -> int:
    with count_host_reads() as seen:
        work(method)
    return seen.count


def _milliseconds(samples: Sequence[float]) -> list[float]:
    return [round(1e3 * s, 4) for s in samples]


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 4) for key, value in values.items()}


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"record: {what}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m breeze_lab.measure.record`."""
    parser = argparse.ArgumentParser(
        prog="python -m breeze_lab.measure.record", description=(__doc__ or "").split("\n\n")[0]
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
