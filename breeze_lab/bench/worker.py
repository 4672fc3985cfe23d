"""One bench run of breeze_lab: a request as JSON on standard input, a result as JSON on standard output."""

import json
import sys
from collections.abc import Iterator

from breeze_lab import load, stream_generate

from .clock import answer, timed


def main() -> None:
    job = json.load(sys.stdin)
    model = load(job["folder"])
    host_reads, peak = 0, 0.0

    def stream(frames: int) -> Iterator[int]:
        nonlocal host_reads, peak
        host_reads = 0
        for chunk in stream_generate(
            model,
            job["text"],
            seed=job["seed"],
            temperature=0.9,  # mlx-audio's defaults; the draws are then the same
            top_k=50,
            top_p=1.0,
            repetition_penalty=1.0,
            max_frames=frames,
            chunk_frames=job["chunk_frames"],
            method=job["method"],
        ):
            host_reads += chunk.stats.host_reads
            peak = max(peak, chunk.stats.peak_memory_gb)
            yield chunk.stats.frames

    result = timed(stream, job["frames"])
    answer(result | {"host_reads": host_reads, "peak_memory_gb": peak})


if __name__ == "__main__":
    main()
