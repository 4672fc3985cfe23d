"""A microphone for notebooks: float32 PCM from the browser to the kernel, as one binary trait."""

from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets as t

from .parts import _HERE, Part, as_float32


class Mic(Part):
    """`pcm` holds the last recording; `count` grows by one with each. `problem` says why the microphone fails.

    `pcm` is `Any`: the page's bytes come as a memoryview, which `traitlets.Bytes` refuses without a word.
    """

    _esm = _HERE / "mic.js"
    pcm = t.Any(None, allow_none=True).tag(sync=True)
    rate = t.Float(0.0).tag(sync=True)
    count = t.Int(0).tag(sync=True)
    problem = t.Unicode().tag(sync=True)
    limit = t.Float(30.0).tag(sync=True)

    def on_recording(self, callback: Callable[[np.ndarray, int], Any]) -> None:
        """`callback(samples float32 [N], rate)` for each recording; the page's copy is dropped after it."""

        def arrived(change: Any) -> None:
            if self.pcm is not None:
                samples, rate = as_float32(self.pcm), round(self.rate)
                self.pcm = None
                callback(samples, rate)

        self.observe(arrived, "count")
