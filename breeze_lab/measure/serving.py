"""How many voices one machine can serve, by simulation from measured times of batched frames.

All voices that are due go through one batch; its frames take as long as was measured for that batch size.  A voice
needs 12.5 frames each second and starts to play once `buffer` frames are there; it stutters when the next one is late.
"""

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FRAME_S = 0.08


@dataclass(frozen=True)
class Service:
    """What `simulate` found: share of frames that came late, and the median wait for the first sound in seconds."""

    voices: int
    late: float
    first_audio_s: float


def simulate(
    batch_seconds: Mapping[int, Sequence[float]], voices: int, frames: int = 125, buffer: int = 2, seed: int = 0
) -> Service:
    """Serve `voices` utterances of `frames` frames that start at random moments within one second.

    Args:
        batch_seconds: batch size -> measured seconds of one frame step; a batch runs at the next larger measured size.
        buffer: frames that a voice collects before it starts to play.
    """
    rng = random.Random(seed)
    sizes = sorted(batch_seconds)
    starts = sorted(rng.random() for _ in range(voices))
    made: list[list[float]] = [[] for _ in range(voices)]
    now = 0.0
    while any(len(times) < frames for times in made):
        due = [i for i in range(voices) if starts[i] <= now and len(made[i]) < frames]
        due = [i for i in due if _wants(made[i], now, buffer)]
        if not due:
            now = _next_moment(made, starts, now, frames, buffer)
            continue
        due = sorted(due, key=lambda i: len(made[i]))[: sizes[-1]]
        size = sizes[min(bisect_left(sizes, len(due)), len(sizes) - 1)]
        now += rng.choice(batch_seconds[size])
        for i in due:
            made[i].append(now)
    late = sum(_late(times, buffer) for times in made)
    waits = sorted(times[min(buffer, frames) - 1] - start for times, start in zip(made, starts, strict=True))
    return Service(voices, late / (voices * frames), waits[len(waits) // 2])


def most_voices(
    batch_seconds: Mapping[int, Sequence[float]], limit: int, allowed: float = 0.01, buffer: int = 2
) -> int:
    """The number of voices, up to `limit`, up to which never more than the share `allowed` of frames comes late."""
    for voices in range(1, limit + 1):
        if simulate(batch_seconds, voices, buffer=buffer).late > allowed:
            return voices - 1
    return limit


def _play_time(times: Sequence[float], index: int, buffer: int) -> float:
    """When frame `index` is due, once playing has begun."""
    return times[buffer - 1] + index * FRAME_S


def _wants(times: Sequence[float], now: float, buffer: int) -> bool:
    """A voice works ahead by at most twice its buffer."""
    if len(times) < buffer:
        return True
    return _play_time(times, len(times), buffer) - now <= 2 * buffer * FRAME_S


def _next_moment(made, starts, now: float, frames: int, buffer: int) -> float:
    moments = [start for start in starts if start > now]
    for times in made:
        if buffer <= len(times) < frames:
            moments.append(_play_time(times, len(times), buffer) - 2 * buffer * FRAME_S)
    return min((m for m in moments if m > now), default=now) + 1e-6


def _late(times: Sequence[float], buffer: int) -> int:
    """Frames that were not there when due; a late one shifts the rest, as a player that waits does."""
    late, shift = 0, 0.0
    for index in range(buffer, len(times)):
        due = _play_time(times, index, buffer) + shift
        if times[index] > due + 1e-9:
            late += 1
            shift += times[index] - due
    return late
