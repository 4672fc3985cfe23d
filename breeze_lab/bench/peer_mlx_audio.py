"""One bench run of mlx-audio, as its own users run it: this file never imports breeze_lab.

A request as JSON on standard input, a result as JSON on standard output. With `BENCH_PRELOAD` set to the path of
breeze_lab's blas.py, that file alone is run first, so that OpenBLAS serves the peer as it serves breeze_lab.
"""

import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from clock import FRAME_SECONDS, answer, timed

if os.environ.get("BENCH_PRELOAD"):
    runpy.run_path(os.environ["BENCH_PRELOAD"])["load_openblas"]()

import mlx.core as mx
import numpy as np
from mlx_audio.tts.utils import load_model


def main() -> None:
    job = json.load(sys.stdin)
    model: Any = load_model(Path(job["folder"]))
    samples_a_frame = round(FRAME_SECONDS * 24000)

    def stream(frames: int) -> Iterator[int]:
        for part in model.generate(
            job["text"],
            seed=job["seed"],
            repetition_penalty=1.0,
            max_tokens=frames,
            stream=True,
            streaming_interval=job["chunk_frames"] * FRAME_SECONDS + 1e-3,
        ):
            yield len(np.asarray(part.audio)) // samples_a_frame

    result = timed(stream, job["frames"])
    answer(result | {"peak_memory_gb": mx.get_peak_memory() / 1e9})


if __name__ == "__main__":
    main()
