"""The second card: the text, the manner, seed and takes, sampling, and the model."""

import html
import secrets

import ipywidgets as w

from .fields import button, field, fold, line, panel, section, show
from .parts import Prose
from .presets import EVENTS, HUB_MODELS, PRESETS, model_notice
from .session import CloneSession
from .takes import MOST_TAKES, Request

WAFT, FOLDER, HUB = "Waft (comes with breeze_lab)", "A folder", "From the Hugging Face Hub"
SAMPLE = "The salt breeze came across from the sea."


class TextPanel:
    """Binds the text half of a session. `request()` is what the page asks for."""

    def __init__(self, session: CloneSession):
        self.session = session
        self.text = Prose(
            label="Text to say", value=SAMPLE, rows=5, chips=list(EVENTS), chips_label="Insert an event at the cursor"
        )
        self.preset = field(w.Dropdown, "Manner", options=list(PRESETS))
        self.instruct = field(w.Text, "Instruction", placeholder="such as: speak calmly", grow="3 1 220px")
        self.cfg = field(w.BoundedFloatText, "CFG, 1 to 4", 1.0, min=1.0, max=4.0, step=0.1, grow="1 1 90px")
        self.seed = field(w.BoundedIntText, "Seed", 7, min=0, max=2**32 - 1, grow="2 1 120px")
        self.lock = w.ToggleButton(
            value=True, description="Kept", tooltip="Kept: the same seed each time, the same speech"
        )
        self.dice = button("Dice", "Draw another seed")
        self.takes = field(w.BoundedIntText, "Takes", 1, min=1, max=MOST_TAKES, grow="1 1 70px")
        self.temperature = field(w.BoundedFloatText, "Temperature", 0.9, min=0.0, max=2.0, step=0.05)
        self.top_k = field(w.BoundedIntText, "Top-k (0: off)", 50, min=0, max=2048)
        self.top_p = field(w.BoundedFloatText, "Top-p", 1.0, min=0.01, max=1.0, step=0.01)
        self.penalty = field(w.BoundedFloatText, "Repetition penalty", 1.1, min=1.0, max=2.0, step=0.05)
        self.longest = field(w.BoundedFloatText, "Longest piece, s", 60.0, min=1.0, max=120.0, step=1.0)
        self.choice = field(w.Dropdown, "Model", options=[WAFT, FOLDER, HUB])
        self.folder = field(w.Text, "Folder", placeholder="a folder with config.json")
        self.hub = field(w.Combobox, "Hub id", placeholder="owner/name", options=list(HUB_MODELS), ensure_option=False)
        self.notice = w.HTML()
        self.load = button("Load", "Load this model now; else it is loaded when it is first needed")
        if session.source:
            self.choice.value, self.folder.value = FOLDER, session.source
        self.manner_note = w.HTML("<p>CFG weighs the instruction; events often need 2 to 3, above 3 sounds harsh.</p>")
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
        self.preset.observe(lambda change: act(self._preset_changed), "value")
        self.lock.observe(lambda change: setattr(self.lock, "description", "Kept" if change.new else "New"), "value")
        self.dice.on_click(lambda _: act(self._roll))
        self.load.on_click(lambda _: self.session.load(self.model_source()))
        for control in (self.choice, self.folder, self.hub):
            control.observe(lambda change: act(self._model_changed), "value")

    def request(self) -> Request:
        """What is asked for now; a seed that is not kept is drawn first."""
        if not self.lock.value:
            self._roll()
        return Request(
            text=self.text.value,
            instruct=self.instruct.value,
            cfg_scale=round(self.cfg.value, 2),
            seed=self.seed.value,
            takes=self.takes.value,
            temperature=self.temperature.value,
            top_k=self.top_k.value,
            top_p=self.top_p.value,
            repetition_penalty=self.penalty.value,
            max_seconds=self.longest.value,
        )

    def model_source(self) -> str | None:
        """None is the default model."""
        named = {WAFT: "", FOLDER: self.folder.value.strip(), HUB: self.hub.value.strip()}[self.choice.value]
        return named or None

    def on_busy(self, busy: bool) -> None:
        for control in (self.load, self.choice, self.folder, self.hub):
            control.disabled = busy

    def use_seed(self, seed: int) -> None:
        self.seed.value, self.lock.value, self.takes.value = seed, True, 1

    def _roll(self) -> None:
        self.seed.value = secrets.randbelow(2**31)

    def _preset_changed(self) -> None:
        preset = PRESETS[self.preset.value]
        self.instruct.value, self.cfg.value = preset.instruct, preset.cfg_scale
        self.temperature.value, self.top_k.value = preset.temperature, preset.top_k

    def _model_changed(self) -> None:
        show(self.folder, self.choice.value == FOLDER)
        show(self.hub, self.choice.value == HUB)
        source = self.model_source()
        if source is None and self.choice.value != WAFT:
            self.notice.value = "<p>Say which one, then press Load.</p>"
            return
        self.notice.value = "".join(f"<p>{html.escape(told)}</p>" for told in model_notice(source or ""))
