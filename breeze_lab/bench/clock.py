"""Time a stream from outside, the same for every implementation. Only the standard library: peers import it by path."""

import json
import statistics
import time
from collections.abc import Callable, Iterable

FRAME_SECONDS = 0.08
WARMUP_FRAMES = 6


def timed(stream: Callable[[int], Iterable[int]], frames: int) -> dict[str, float | int]:
    """Run `stream(max_frames)`, which yields the frames of each chunk, twice: a warm-up, and the run that counts.

    frame_ms: median over the chunks after the first of time / frames. rtf: all time / all audio.
    first_audio_s: time to the first chunk.
    """
    for _ in stream(WARMUP_FRAMES):
        pass
    begun = mark = time.perf_counter()
    spans: list[tuple[float, int]] = []
    for count in stream(frames):
        now = time.perf_counter()
        if count:
            spans.append((now - mark, count))
        mark = now
    total, made = time.perf_counter() - begun, sum(count for _, count in spans)
    steady = [span / count for span, count in spans[1:]] or [total / max(made, 1)]
    return {
        "frames": made,
        "frame_ms": 1e3 * statistics.median(steady),
        "rtf": total / (made * FRAME_SECONDS) if made else float("nan"),
        "first_audio_s": spans[0][0] if spans else float("nan"),
    }


def answer(result: dict) -> None:
    """The result as one line on standard output."""
    print(json.dumps(result), flush=True)  # noqa: T201
