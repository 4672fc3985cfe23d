"""A player that sounds while the sound is made: PCM pieces go to WebAudio in the page, which keeps the time."""

import uuid

import numpy as np
import traitlets as t

from .parts import Part, module


class Player(Part):
    """`phase`: idle, waiting (filling the buffer), playing, muted, blocked (by the browser) or done.

    `clock` seconds of the take were played by the audio clock, `ahead` seconds are ready; the sound ran dry `gaps`
    times for `gap_s` seconds together.
    """

    _esm = module("draw.js", "player.js")
    key = t.Unicode().tag(sync=True)
    phase = t.Unicode("idle").tag(sync=True)
    clock = t.Float(0.0).tag(sync=True)
    ahead = t.Float(0.0).tag(sync=True)
    gaps = t.Int(0).tag(sync=True)
    gap_s = t.Float(0.0).tag(sync=True)
    listen = t.Bool(True).tag(sync=True)
    gain = t.Float(1.0).tag(sync=True)

    @t.default("key")
    def _new_key(self) -> str:
        return uuid.uuid4().hex

    def feed(
        self,
        samples: np.ndarray,
        rate: int,
        *,
        take: int = 1,
        seed: int = 0,
        hold_s: float = 0.25,
        expected_s: float = 0.0,
        is_final: bool = False,
    ) -> None:
        """Queue float32 [n]. Playing starts when `hold_s` seconds are there, or with the final piece."""
        message = {"type": "sound", "take": take, "seed": seed, "rate": rate, "hold": hold_s}
        message |= {"expected": expected_s, "final": is_final}
        self.send(message, [np.ascontiguousarray(samples, dtype="<f4").tobytes()])

    def halt(self) -> None:
        """Silence at once, and forget what was queued."""
        self.send({"type": "halt"})
