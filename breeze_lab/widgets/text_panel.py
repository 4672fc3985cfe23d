"""The second card: the text, the manner, seed and takes, sampling, and the model."""

import html
import secrets
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as w

from ..errors import BreezeLabError
from ..hub import looks_like_id
from .fields import button, field, fold, line, panel, section, show
from .parts import Number, Prose
from .presets import EVENTS, HUB_MODELS, PRESETS, events, model_notice
from .session import CloneSession
from .takes import MOST_TAKES, Request

WAFT, FOLDER, HUB = "Waft (comes with breeze_lab)", "A folder", "From the Hugging Face Hub"
CFG_NOTE = "<p>CFG weighs the instruction: 2 follows it more closely than 1, above 3 sounds harsh."
SAMPLE = "The salt breeze came across from the sea."


class TextPanel:
    """Binds the text half of a session. `request()` is what the page asks for."""

    def __init__(self, session: CloneSession, settle: Callable[[Callable[[], Any]], None]):
        """`settle` is that of the board."""
        self.session, self._settle = session, settle
        self.text = Prose(label="Text to say", value=SAMPLE, rows=5, chips_label="Insert an event at the cursor")
        self.preset = field(w.Dropdown, "Manner", options=list(PRESETS))
        self.instruct = field(w.Text, "Instruction", placeholder="such as: speak calmly", grow="3 1 220px")
        self.cfg = Number("CFG", 1, 1, 4, 0.1)
        self.seed = Number("Seed", 7, 0, 2**32 - 1, grow="2 1 120px")
        self.lock = w.ToggleButton(
            value=True, description="Kept", tooltip="Kept: the same seed each time, the same speech"
        )
        self.dice = button("Dice", "Draw another seed")
        self.takes = Number("Takes", 1, 1, MOST_TAKES, grow="1 1 70px")
        self.temperature = Number("Temperature", "", 0, 2, 0.05)
        self.top_k = Number("Top-k", "", 0, 2048, after=" (0: off)")
        self.top_p = Number("Top-p", "", 0.01, 1, 0.01)
        self.penalty = Number("Repetition penalty", "", 1, 2, 0.05)
        self.longest = Number("Longest piece", 60, 0.1, 120, 0.1, after=" s")
        self.choice = field(w.Dropdown, "Model", options=[WAFT, FOLDER, HUB])
        self.folder = field(w.Text, "Folder", placeholder="a folder with config.json", continuous_update=False)
        self.hub = field(w.Combobox, "Hub id", placeholder="owner/name", options=list(HUB_MODELS), ensure_option=False)
        self.notice = w.HTML()
        self.load = button("Load", "Load this model now; else it is loaded when it is first needed")
        if session.source:
            is_id = looks_like_id(session.source) and not Path(session.source).is_dir()
            self.choice.value, box = (HUB, self.hub) if is_id else (FOLDER, self.folder)
            box.value = session.source
        self.manner_note = w.HTML()
        self.widget = section(
            "2. Text",
            self.text,
            line(self.preset, self.instruct, self.cfg),
            self.manner_note,
            line(self.seed, self.lock, self.dice, self.takes),
            fold(
                "Advanced sampling",
                line(self.temperature, self.top_k, self.top_p),
                line(self.penalty, self.longest),
            ),
            fold("Model, memory and license", self.choice, panel(self.folder, self.hub), self.notice, line(self.load)),
        )
        self._bind()
        self._model_changed()

    def _bind(self) -> None:
        act = self.session.guard
        self.text.observe(lambda change: act(self._text_changed), "value")
        self.preset.observe(lambda change: act(self._preset_changed), "value")
        self.lock.observe(lambda change: setattr(self.lock, "description", "Kept" if change.new else "New"), "value")
        self.dice.on_click(lambda _: act(self._roll))
        self.load.on_click(lambda _: self._settle(lambda: act(lambda: self.session.load(self.model_source()))))
        for control in (self.choice, self.folder, self.hub):
            control.observe(lambda change: act(self._model_changed), "value")

    def request(self) -> Request:
        """What is asked for now; a seed that is not kept is drawn first."""
        if not self.lock.value:
            self._roll()
        return Request(
            text=self.text.value,
            instruct=self.instruct.value,
            cfg_scale=self.cfg.number(),
            seed=self.seed.number(),
            takes=self.takes.number(),
            temperature=self.temperature.number(),
            top_k=self.top_k.number(),
            top_p=self.top_p.number(),
            repetition_penalty=self.penalty.number(),
            max_seconds=self.longest.number(),
        )

    def model_source(self) -> str | None:
        """None is the default model."""
        if self.choice.value == WAFT:
            return None
        box = self.folder if self.choice.value == FOLDER else self.hub
        if not box.value.strip():
            raise BreezeLabError(f"The box “{box.description}” is empty. Type which model it is, or choose Waft.")
        return box.value.strip()

    def on_busy(self, busy: bool) -> None:
        for control in (self.load, self.choice, self.folder, self.hub):
            control.disabled = busy

    def use_seed(self, seed: int) -> None:
        self.seed.value, self.lock.value, self.takes.value = str(seed), True, "1"

    def _roll(self) -> None:
        self.seed.value = str(secrets.randbelow(2**31))

    def _text_changed(self) -> None:
        text = self.text.value
        mute = [c for c in dict.fromkeys(text) if c > "\u2600" and unicodedata.category(c) == "So"]
        mute += [event for event in EVENTS if event in text and not self.text.chips]
        self.text.note = f"{' '.join(mute[:8])} will be passed over in silence." if mute else ""

    def _preset_changed(self) -> None:
        preset = PRESETS[self.preset.value]
        self.instruct.value, self.cfg.value = preset.instruct, f"{preset.cfg_scale:g}"
        self.temperature.value, self.top_k.value = preset.temperature, preset.top_k

    def _model_changed(self) -> None:
        show(self.folder, self.choice.value == FOLDER)
        show(self.hub, self.choice.value == HUB)
        try:
            source = self.model_source() or ""
        except BreezeLabError:
            self.notice.value = "<p>Say which one, then press Load.</p>"
            return
        self.text.chips = list(events(source))
        self._text_changed()
        self.manner_note.value = CFG_NOTE + (" Events often need 2 to 3." if self.text.chips else "") + "</p>"
        self.notice.value = "".join(f"<p>{html.escape(told)}</p>" for told in model_notice(source))
