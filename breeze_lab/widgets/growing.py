"""One take while it grows: pieces, times and estimates."""

import time
from typing import Any

import numpy as np

from .events import Progress, Sound

LEAST_HOLD_S = 0.25
MOST_HOLD_S = 60.0  # nobody waits longer to hear the first of a long text


class Growing:
    """Fed with chunks; says after each what to play and how far it is."""

    def __init__(self, number: int, seed: int, rate: int, expected_s: float):
        self.number, self.seed, self.rate, self.expected_s = number, seed, rate, expected_s
        self.pieces: list[np.ndarray] = []
        self.first_audio_s = self.made_in_s = 0.0
        self.finish_reason = "cancelled"
        self.ended = False
        self._began = time.perf_counter()

    def add(self, chunk: Any) -> Sound:
        self.made_in_s = time.perf_counter() - self._began
        samples = np.asarray(chunk.samples, dtype=np.float32)
        is_first = not self.pieces and len(samples) > 0
        if is_first:
            self.first_audio_s = self.made_in_s
        if len(samples):
            self.pieces.append(samples)
        if chunk.is_final:
            self.ended, self.finish_reason = True, chunk.finish_reason
        if self.seconds > self.expected_s:
            self.expected_s = self.seconds * 1.1
        hold = hold_seconds(self.expected_s, self.steady_rtf)
        return Sound(self.number, self.seed, samples, self.rate, is_first, self.ended, hold, self.expected_s)

    def broken_off(self) -> Sound:
        """What tells the player that no more will come of a take that failed."""
        self.ended = True
        return Sound(self.number, self.seed, np.zeros(0, np.float32), self.rate, False, True, 0.0, self.seconds)

    @property
    def seconds(self) -> float:
        return sum(map(len, self.pieces)) / self.rate

    @property
    def steady_rtf(self) -> float:
        """Real-time factor after the first piece, which the prompt delays."""
        if len(self.pieces) < 2:
            return self.made_in_s / self.seconds if self.pieces else 0.0
        return (self.made_in_s - self.first_audio_s) / max(self.seconds - len(self.pieces[0]) / self.rate, 0.08)

    def progress(self, take: int, takes: int) -> Progress:
        rtf = self.made_in_s / self.seconds if self.pieces else 0.0
        return Progress(take, takes, self.seconds, self.expected_s, rtf, self.first_audio_s)


def hold_seconds(expected_s: float, rtf: float) -> float:
    """Sound to have before playing starts, so that neither a slow nor an unsteady device leaves a gap.

    A device that takes r seconds a second of sound has E - B seconds to make while the B held and then the rest play:
    (E - B) r <= E, with r raised by a fourth, as others on the machine come and go, and E by a sixth, being a guess.
    """
    if rtf <= 0.5:
        return LEAST_HOLD_S
    whole = max(LEAST_HOLD_S + 2.0 * (rtf - 0.5), 7 / 6 * expected_s * (1.0 - 1.0 / (1.25 * rtf)))
    return min(whole, MOST_HOLD_S)
