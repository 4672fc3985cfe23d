"""The small anywidgets that the studio is made of. Each also works alone in a cell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w
import numpy as np
import traitlets as t

from ..errors import BreezeLabError

_HERE = Path(__file__).parent


def module(*names: str) -> str:
    """One ES module of several files: a page gives a module no way to import its neighbors."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


class Part(anywidget.AnyWidget):
    _css = _HERE / "studio.css"

    def on_message(self, kind: str, callback: Any) -> None:
        """`callback(content)` for each message of this type from the page."""
        self.on_msg(lambda _, content, buffers: callback(content) if content.get("type") == kind else None)


class Prose(Part):
    """A labelled text box; `chips` insert themselves at the cursor. `rows` 0 is a box for a number."""

    _esm = _HERE / "prose.js"
    label = t.Unicode().tag(sync=True)
    value = t.Unicode().tag(sync=True)
    placeholder = t.Unicode().tag(sync=True)
    rows = t.Int(4).tag(sync=True)
    chips = t.List(t.Unicode()).tag(sync=True)
    chips_label = t.Unicode("Insert").tag(sync=True)
    note = t.Unicode().tag(sync=True)
    kind = t.Unicode("info").tag(sync=True)
    disabled = t.Bool(False).tag(sync=True)


class Number(Prose):
    """A box for a number from `least` to `most`, whole where `step` is 1. It never takes another than is typed."""

    least = t.Float().tag(sync=True)
    most = t.Float().tag(sync=True)
    step = t.Float(1.0).tag(sync=True)

    def __init__(
        self,
        name: str,
        value: Any,
        least: float,
        most: float,
        step: float = 1.0,
        grow: str = "1 1 90px",
        after: str = "",
    ):
        """`value` "" leaves the number to the model; `after` follows the range in the label."""
        self.name, self._may_be_empty = name, value == ""
        self._range = f"{name}, {least:.10g} to {most:.10g}{after}"
        super().__init__(
            label=self._range,
            value=str(value),
            placeholder="model's own" if self._may_be_empty else "",
            rows=0,
            least=least,
            most=most,
            step=step,
            layout=w.Layout(width="auto", flex=grow),
        )
        self.observe(self._look, "value")

    def fault(self) -> str:
        """What is wrong with what is typed, and the cure, or ""."""
        try:
            number = float(self.value or ("nan" if not self._may_be_empty else self.least))
        except ValueError:
            number = float("nan")
        if self.least <= number <= self.most and (self.step != 1 or number.is_integer()):
            return ""
        kind = "a whole number" if self.step == 1 else "a number"
        return f"{self.name}: choose {kind} from {self.least:.10g} to {self.most:.10g}."

    def number(self) -> Any:
        """What is typed, an int where only whole ones are taken; None where it is left to the model."""
        if self.fault():
            raise BreezeLabError(self.fault())
        return None if not self.value else int(float(self.value)) if self.step == 1 else float(self.value)

    def _look(self, _: Any) -> None:
        with self.hold_sync():
            self.label = self.fault() or self._range
            self.kind = "warn" if self.fault() else "info"


class Wave(Part):
    """A clip's waveform with a selection. `on_hear()` is asked for the WAV bytes of the selection."""

    _esm = module("draw.js", "wave.js")
    peaks = t.List(t.Float()).tag(sync=True)
    seconds = t.Float(0.0).tag(sync=True)
    start = t.Float(0.0).tag(sync=True)
    end = t.Float(0.0).tag(sync=True)
    told = t.Unicode().tag(sync=True)
    kind = t.Unicode("info").tag(sync=True)
    trimmable = t.Bool(True).tag(sync=True)

    def send_wav(self, content: bytes) -> None:
        self.send({"type": "wav"}, [content])


class Board(Part):
    """Status line, progress and folded traceback. `part` -1 means unknown; `unsaved` is asked about before leaving."""

    _esm = _HERE / "board.js"
    kind = t.Unicode("info").tag(sync=True)
    text = t.Unicode().tag(sync=True)
    detail = t.Unicode().tag(sync=True)
    state = t.Unicode("idle").tag(sync=True)
    ended = t.Int(0).tag(sync=True)
    part = t.Float(-1.0).tag(sync=True)
    figures = t.Unicode().tag(sync=True)
    unsaved = t.Bool(False).tag(sync=True)

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._here = False  # a page shows it
        self._due: dict[int, Callable[[], Any]] = {}
        self._asked = 0
        self.on_message("here", lambda _: setattr(self, "_here", True))
        self.on_message("settled", lambda content: self._due.pop(content["number"], lambda: None)())

    def settle(self, action: Callable[[], Any]) -> None:
        """Do what a click asks for once all that was typed before it has arrived.

        A click is sent at once, but what is typed waits in the page until the kernel has answered for what was typed
        before. When the page has this message it has sent it all.
        """
        if not self._here:
            action()
            return
        self._asked += 1
        self._due[self._asked] = action
        self.send({"type": "settle", "number": self._asked})


class Takes(Part):
    """Cards of takes; their WAV is sent when the page asks for it."""

    _esm = module("draw.js", "takes.js")
    items = t.List(t.Dict()).tag(sync=True)

    def send_wav(self, number: int, why: str, file: str, content: bytes) -> None:
        self.send({"type": "wav", "number": number, "why": why, "file": file}, [content])


def as_float32(pcm: Any) -> np.ndarray:
    """float32 [N] of the bytes that a page sent."""
    return np.frombuffer(bytes(pcm), dtype="<f4").astype(np.float32)
