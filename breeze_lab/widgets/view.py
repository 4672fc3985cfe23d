"""The page of a session: three cards, one status line. All that is done here is binding."""

import asyncio
import html
import threading
import time
from contextlib import suppress
from typing import Any

import ipywidgets as w

from ..errors import BreezeLabError
from .clip import peaks
from .engine import ModelNote, size_text
from .events import Progress, Sound, State, Status
from .fields import button, line, section, show
from .jobs import BUSY
from .pages import TICK_S
from .parts import Board, Takes
from .player import Player
from .session import CloneSession
from .takes import Take
from .text_panel import SAMPLE, TextPanel
from .voice_panel import VoicePanel

TITLE = "Clone a voice"


class Studio:
    """`widget` is what a cell shows; `session` is what it does."""

    def __init__(self, session: CloneSession):
        self.session = session
        self._feeding = threading.Lock()  # no piece may reach the player after it was told to be silent
        self.board = Board()
        self.voice = VoicePanel(session, self.board.settle)
        self.text = TextPanel(session, self.board.settle)
        self.make = button("Make speech", "Speak the text in the chosen voice", "bl-primary")
        self.stop = button("Stop", "Stop within a frame; what was made is kept", "bl-stop")
        self.clear = button("Clear history", "Remove all takes", "bl-quiet")
        self.back = button("Bring back", "Bring the removed takes back")
        self.player = Player()
        self.takes = Takes()
        self.model_line = w.HTML()
        self.model_line.add_class("bl-modelline")
        head = w.HBox([w.HTML(f"<h2>{TITLE}</h2>"), self.model_line])
        head.add_class("bl-head")
        sheet = w.Box(
            [
                self.voice.widget,
                self.text.widget,
                section("3. Listen", line(self.make, self.stop), self.board, self.player, wide=True),
                section("4. Takes", self.takes, line(self.clear, self.back), wide=True),
            ]
        )
        sheet.add_class("bl-sheet")
        self.widget = w.VBox([head, sheet])
        self.widget.add_class("bl-studio")
        self._bind()
        self.on_model(session.model)
        self.on_status(session.status)
        self.on_state(session.state)
        self.on_takes(session.takes)
        with suppress(RuntimeError):  # no loop, so no kernel and no page
            self._watch(asyncio.get_running_loop())

    def _bind(self) -> None:
        session, act = self.session, self.session.guard
        self.make.on_click(lambda _: self.board.settle(lambda: act(self._make)))
        self.stop.on_click(lambda _: act(self._stop))
        self.clear.on_click(lambda _: act(session.forget, [take.number for take in session.takes]))
        self.back.on_click(lambda _: act(session.bring_back))
        self.takes.on_message("wav", lambda content: act(self._send, content))
        self.takes.on_message("seed", lambda content: act(self._use_seed, content["number"]))
        self.takes.on_message("drop", lambda content: act(session.forget, [content["number"]]))
        self.board.on_message(
            "page", lambda content: session.pages.hear(content["page"], content["seconds"], time.monotonic())
        )
        self.text.text.observe(lambda _: self._look_unsaved(), "value")
        session.on("state", self.on_state)
        session.on("status", self.on_status)
        session.on("progress", self.on_progress)
        session.on("sound", self.on_sound)
        session.on("model", self.on_model)
        session.on("clip", self.voice.on_clip)
        session.on("clip", lambda _: self._look_unsaved())
        session.on("voices", self.voice.on_voices)
        session.on("takes", self.on_takes)

    # --- page to session

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look now and then whether a page is left, on the loop that hears of them."""
        if self.session.pages.gone(time.monotonic()):
            self.session.stop("The page was closed.")
        loop.call_later(TICK_S, self._watch, loop)

    def _make(self) -> None:
        try:
            self.session.choose_model(self.text.model_source())
            request = self.text.request()
        except BreezeLabError as error:
            self.session.refuse(error)
            return
        with self._feeding:
            if self.session.start(request):  # else what sounds goes on
                self.player.halt()

    def _stop(self) -> None:
        with self._feeding:
            self.session.stop()
            self.player.halt()

    def _send(self, content: dict[str, Any]) -> None:
        take = self.session.take(content["number"])
        self.takes.send_wav(take.number, content["why"], take.file_name(), take.wav())
        if content["why"] == "save":
            take.downloaded = True
            self._look_unsaved()
            self.session.say("ok", f"Take {take.number} went to your downloads as {take.file_name()}.")

    def _use_seed(self, number: int) -> None:
        seed = self.session.take(number).seed
        self.text.use_seed(seed)
        self.session.say("info", f"Seed {seed} of take {number} is set and kept. Press “Make speech”.")

    # --- session to page; these may run on the worker thread

    def on_state(self, state: State) -> None:
        busy = state in BUSY
        (self.stop if busy else self.make).disabled = False  # first: the board hands the focus on
        with self.board.hold_sync():
            self.board.ended += not busy and self.board.state in BUSY
            self.board.state = str(state)
        (self.make if busy else self.stop).disabled = True
        self.voice.on_busy(busy)
        self.text.on_busy(busy)
        if not busy or state is State.LOADING:
            self.board.part, self.board.figures = -1.0, ""

    def on_status(self, status: Status) -> None:
        with self.board.hold_sync():
            self.board.kind, self.board.text, self.board.detail = status.kind, status.text, status.detail

    def on_progress(self, progress: Progress) -> None:
        of = f"take {progress.take} of {progress.takes}, " if progress.takes > 1 else ""
        figures = f"{of}{progress.seconds:.1f} s of about {progress.expected_s:.0f} s"
        if progress.first_audio_s:
            figures += f" · first sound {progress.first_audio_s:.2f} s · real-time factor {progress.rtf:.2f}"
        with self.board.hold_sync():
            self.board.part, self.board.figures = progress.part, figures

    def on_sound(self, sound: Sound) -> None:
        with self._feeding:
            if self.session.stopping:
                return
            self.player.feed(
                sound.samples,
                sound.rate,
                take=sound.take,
                seed=sound.seed,
                hold_s=sound.hold_s,
                expected_s=sound.expected_s,
                is_final=sound.is_final,
            )

    def on_model(self, model: ModelNote | None) -> None:
        if model is None:
            told = "The model is loaded when it is first needed"
        else:
            told = f"{html.escape(model.name)} · {size_text(model.memory_gb)} · {model.dtype}"
            told += "" if model.trained else " · <b>untrained: it makes noise</b>"
        self.model_line.value = told

    def on_takes(self, takes: list[Take]) -> None:
        self.takes.items = [card(take) for take in takes]
        show(self.clear, bool(takes))
        show(self.back, bool(self.session.removed))
        self._look_unsaved()

    def _look_unsaved(self) -> None:
        """Whether the page would take something with it that cannot be had again at the press of a button."""
        clip = self.session.clip
        recorded = clip is not None and clip.source == "microphone"
        lost = any(not take.downloaded for take in self.session.takes)
        self.board.unsaved = recorded or lost or self.text.text.value.strip() not in ("", SAMPLE)


def card(take: Take) -> dict[str, Any]:
    """What the page shows of a take."""
    speed = f"{take.rtf:.2f} real-time factor, first sound after {take.first_audio_s:.2f} s"
    lines = [["Voice", take.voice or "made up by the model"], ["Seed", str(take.seed)]]
    lines += [["Speed", speed + (" (first run, with warm-up)" if take.warm_up else "")]]
    if take.request.instruct.strip():
        lines += [["Manner", f"{take.request.instruct.strip()} (CFG {take.request.cfg_scale:g})"]]
    if take.likeness is not None:
        lines += [["Timbre", alike(take.likeness)]]
    return {
        "number": take.number,
        "title": f"Take {take.number} · {take.seconds:.1f} s · {take.ending()}",
        "text": take.request.text.strip(),
        "lines": lines,
        "peaks": peaks(take.samples, 160),
        "seconds": take.seconds,
        "file": take.file_name(),
    }


def alike(timbre: float) -> str:
    """The figure in words: two clips of one voice reach 0.80 and more, two voices 0.00 on average (likeness.py)."""
    word = "like the clip" if timbre >= 0.8 else "near the clip" if timbre >= 0.4 else "not like the clip"
    return f"{word} ({timbre:.2f}; 1 is the same, 0 another voice)"
