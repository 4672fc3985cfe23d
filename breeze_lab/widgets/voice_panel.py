"""The first card: where the voice comes from, the clip, its words, consent, and the saved voices."""

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from .. import audio
from .clip import RATE, UPLOAD_LIMIT, Clip, length_hint, levels, pace_hint, peaks
from .fields import button, field, line, panel, section, show
from .mic import Mic
from .parts import Prose, Wave
from .session import CloneSession

PLACES = {  # of a VoiceDesk, by the button that shows them
    "Ready-made": "ready",
    "Upload": "upload",
    "Microphone": "microphone",
    "Saved": "saved",
    "Made up": "none",
}
BINS = 400


class VoicePanel:
    """Binds the voice half of a session. `widget` is shown; session events come in by `on_*`."""

    def __init__(self, session: CloneSession, settle: Callable[[Callable[[], Any]], None]):
        """`settle` is that of the board."""
        self.session, self._settle = session, settle
        self._filling = False
        self._doomed = ""  # the saved voice that Delete was pressed for once
        self._waiting: tuple[Any, int] | None = None  # a recording that came in the middle of a job
        self.source = w.ToggleButtons(options=list(PLACES.items()), description="", style={"button_width": "auto"})
        self.source.add_class("bl-sources")
        self.ready = field(w.Dropdown, "Ready-made voice", options=[])
        self.upload = w.FileUpload(accept=".wav,.flac,.ogg,.mp3", multiple=False, description="Choose a file")
        self.path = field(w.Text, "or the path of a larger file", placeholder="clips/me.wav", continuous_update=False)
        self.read = button("Read", "Read the file at this path, where the kernel runs")
        self.mic = Mic()
        self.saved = field(w.Dropdown, "Saved voice", options=[])
        self.new_name = field(w.Text, "New name", placeholder="for Rename")
        self.rename = button("Rename", "Give the chosen saved voice the new name")
        self.delete = button("Delete", "Delete the chosen saved voice and its clip", "bl-quiet")
        self.wave = Wave()
        self.words = Prose(
            label="Words of the clip (transcript)",
            placeholder="Exactly what is said in the clip, not what you want to hear",
            rows=3,
        )
        self.consent = w.Checkbox(
            description="The speaker is me or agreed to being cloned, and I will say that the speech is synthetic.",
            indent=False,
        )
        self.name = field(w.Text, "Name", placeholder="to keep this voice")
        self.save = button("Save voice", "Encode the clip once, and keep it for later")
        upload_note = w.HTML(
            f"<p>WAV, FLAC, OGG or MP3 up to {UPLOAD_LIMIT / 1e6:.0f} MB. Larger: drop it into the file browser.</p>"
        )
        self.panels = {
            "ready": panel(self.ready),
            "upload": panel(line(self.upload), upload_note, line(self.path, self.read)),
            "microphone": panel(self.mic),
            "saved": panel(line(self.saved), line(self.new_name, self.rename, self.delete)),
            "none": panel(w.HTML("<p>The model makes a voice up; its seed decides which.</p>")),
        }
        self.keep = line(self.name, self.save)
        self.widget = section(
            "1. Voice", self.source, *self.panels.values(), self.wave, self.words, self.consent, self.keep
        )
        self._bind()
        self.ready.options = [("Choose a voice…", ""), *((n.replace("_", " "), n) for n in session.ready())]
        self.on_voices(session.shelf.names())
        if not session.place:
            session.turn_to("ready" if session.ready() else "none")
        self.on_clip(session.clip)

    def _bind(self) -> None:
        """Page to session."""
        session, act = self.session, self.session.guard
        self.source.observe(lambda change: self._try(self._turned, change.new), "value")
        self.ready.observe(lambda change: self._try(self._chosen, session.use_ready, change.new), "value")
        self.saved.observe(lambda change: self._try(self._chosen, session.use_saved, change.new), "value")
        self.upload.observe(lambda change: act(self._uploaded), "value")
        for button_, action in (
            (self.read, self._read_path),
            (self.rename, self._rename),
            (self.delete, self._delete),
            (self.save, lambda: session.save_voice(self.name.value)),
        ):
            button_.on_click(lambda _, action=action: self._settle(lambda: act(action)))
        self.mic.on_recording(lambda samples, rate: act(self._recorded, samples, rate))
        self.mic.observe(lambda change: change.new and session.say("error", change.new), "problem")
        self.words.observe(lambda change: self._try(self._words_changed), "value")
        self.consent.observe(lambda change: setattr(session, "consent", bool(change.new)), "value")
        self.wave.observe(lambda change: self._try(self._trimmed), ["start", "end"])
        self.wave.on_message("hear", lambda _: act(self._hear))

    # --- session to page

    def on_clip(self, clip: Clip | None) -> None:
        self._filling = True
        try:
            session, fixed = self.session, bool(self.session.saved)
            self._doomed = ""
            self.source.value = session.place
            self.words.value = session.transcript
            self.words.disabled = fixed
            self.consent.value = session.consent
            self.wave.trimmable = not fixed
            if clip is None:
                self.wave.seconds = 0.0
            else:
                with self.wave.hold_sync():
                    self.wave.peaks, self.wave.start, self.wave.end = peaks(clip.samples, BINS), clip.start, clip.end
                    self.wave.seconds = clip.seconds
            show(self.words, clip is not None and not fixed)
            show(self.consent, clip is not None and clip.needs_consent)
            show(self.keep, clip is not None and not fixed)
            if session.place == "saved":
                self.saved.value = session.saved if session.saved in session.shelf.names() else ""
            if session.place == "ready":
                self.ready.value = clip.name if clip is not None and clip.name in session.ready() else ""
            for place, box in self.panels.items():
                show(box, place == session.place)
            self._hints()
        finally:
            self._filling = False

    def on_voices(self, names: list[str]) -> None:
        self._filling = True
        try:
            self.saved.options = [
                ("Choose a voice…" if names else "Nothing is saved yet", ""),
                *((n, n) for n in names),
            ]
            self.saved.value = self.session.saved if self.session.saved in names else ""
            if self.name.value.strip() in names:
                self.name.value = ""
        finally:
            self._filling = False

    def on_busy(self, busy: bool) -> None:
        controls = (self.source, self.ready, self.saved, self.upload, self.read, self.rename, self.delete, self.save)
        for control in controls:
            control.disabled = busy
        self.wave.trimmable = not busy and not self.session.saved
        self.words.disabled = busy or bool(self.session.saved)
        if not busy and self._waiting is not None:
            self._recorded(*self._waiting)

    # --- page to session

    def _try(self, action: Any, *args: Any) -> None:
        """An action that answers False when it was refused: the page then shows again what holds."""
        if not self._filling and not action(*args):
            self.on_clip(self.session.clip)

    def _turned(self, place: str) -> bool:
        went_well = self.session.turn_to(place)
        if went_well and place == "saved":
            self.session.list_voices()
        return went_well

    def _chosen(self, use: Any, name: str) -> bool:
        return use(name) if name else self.session.use_nothing()

    def _uploaded(self) -> None:
        if self.upload.value:
            file: Any = self.upload.value[0]
            self.session.use_upload(bytes(file.content), file.name)
            self.upload.value = ()

    def _recorded(self, samples: Any, rate: int) -> None:
        self._waiting = (samples, rate) if self.session.busy else None
        if self._waiting is None:
            self.session.use_samples(samples, rate)

    def _read_path(self) -> None:
        if not self.path.value.strip():
            self.session.say("error", "The path box is empty. Type the path of a sound file, then press Read.")
            return
        self.session.use_file(self.path.value.strip())

    def _rename(self) -> None:
        if self._one_saved() and self.session.rename_voice(self.saved.value, self.new_name.value):
            self.new_name.value = ""

    def _delete(self) -> None:
        name = self.saved.value
        if self._one_saved() and self._doomed == name:
            self.session.delete_voice(name)
        elif name:
            self._doomed = name
            self.session.say("warn", f"Press Delete again to delete “{name}” with its clip. It cannot be had back.")

    def _one_saved(self) -> bool:
        if not self.saved.value:
            self.session.say("error", "No saved voice is chosen. Choose one from the list first.")
        return bool(self.saved.value)

    def _words_changed(self) -> bool:
        self.session.transcript = self.words.value
        self._hints()
        return True

    def _trimmed(self) -> bool:
        went_well = self.session.trim(self.wave.start, self.wave.end)
        self._hints()
        return went_well

    def _hear(self) -> None:
        if self.session.clip is not None:
            self.wave.send_wav(audio.wav_bytes(self.session.clip.chosen(), RATE))

    def _hints(self) -> None:
        clip = self.session.clip
        if clip is None:
            self.words.note, self.words.kind = "", "info"
            return
        peak, mean = levels(clip.chosen())
        self.wave.kind, told = length_hint(clip)
        self.wave.told = f"{clip.name}: {told} Peak {peak:.0f} dB, mean {mean:.0f} dB." + (
            f" License: {clip.license}." if clip.license else ""
        )
        kind, self.words.note = pace_hint(self.words.value, clip)
        self.words.kind = "info" if kind == "empty" else kind
