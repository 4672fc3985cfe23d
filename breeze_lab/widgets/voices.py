"""The voice to speak with: choose it, trim it, save it, and encode it no more than once."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import audio
from ..errors import BreezeLabError
from . import clip as clips
from .clip import Clip
from .engine import BreezeEngine, Engine, ModelNote
from .events import State
from .jobs import Jobs, Stopped
from .presets import ready_clip, ready_voices
from .shelf import Shelf

NOTHING = {
    "ready": "No ready-made voice is chosen. Choose one from the list",
    "upload": "No file was read here. Choose a sound file",
    "microphone": "Nothing was recorded here. Press “Record”",
    "saved": "No saved voice is chosen. Choose one from the list",
}


class VoiceDesk(Jobs):
    """Holds the model, too: a voice is encoded by the model's own codec.

    A voice is chosen at a place: "ready", "upload", "microphone", "saved", or "none" where the model makes one up. Each
    place keeps its own choice, and the one turned to speaks; "" is where nothing was chosen yet, and no page shows it.
    """

    def __init__(self, engine: Engine | None, source: str | None, shelf: Path | None, voices: Path | None):
        self.engine: Engine = engine if engine is not None else BreezeEngine()
        super().__init__(self.engine.close)
        self.notes = self.engine.notes
        self.source = source
        self.shelf = Shelf(shelf)
        self.voices_folder = voices
        self.model: ModelNote | None = None
        self.clip: Clip | None = None
        self.transcript = ""
        self.consent = False
        self.saved = ""  # name of the saved voice in use
        self.place = ""
        self._held: dict[str, tuple[Clip | None, str, bool, str]] = {}  # what is chosen at the other places
        self._kept: tuple[tuple[Any, ...], Any] | None = None  # (what it was made from, voice)
        self._cold = True  # nothing was made yet since loading

    def turn_to(self, place: str) -> bool:
        """Speak in the voice that is chosen at this place from now on."""

        def act() -> None:
            self._not_while_busy("change the voice")
            first = not self.place
            self._turn(place)
            self.emit("clip", self.clip)
            if not first:
                self._tell_choice()

        return self.guard(act)

    def use_file(self, path: str | Path) -> bool:
        return self.guard(lambda: self._use(clips.clip_from_file(path)), name=clips.short(Path(path).name))

    def use_upload(self, content: bytes, name: str) -> bool:
        return self.guard(lambda: self._use(clips.clip_from_bytes(content, name)), name=clips.short(name))

    def use_samples(self, samples: np.ndarray, rate: int, name: str = "recording", source: str = "microphone") -> bool:
        return self.guard(lambda: self._use(clips.make_clip(samples, rate, name, source)))

    def ready(self) -> dict[str, Path]:
        return ready_voices(self.voices_folder)

    def use_ready(self, name: str) -> bool:
        def act() -> None:
            path = self.ready().get(name)
            if path is None:
                raise BreezeLabError(f"There is no ready-made voice “{name}”. Choose one from the list.")
            self._use(ready_clip(path))

        return self.guard(act)

    def use_saved(self, name: str) -> bool:
        """A saved voice: nothing is encoded again. Its file is read on the worker when it is needed."""

        def act() -> None:
            self.shelf.held(name)
            sound = self.shelf.clip_path(name)
            clip = clips.clip_from_file(sound, "saved", name) if sound.is_file() else None
            self._use(clip, saved=name)

        return self._with_list(act)

    def use_none(self) -> bool:
        """No reference: the model makes a voice up."""
        return self.guard(lambda: self._use(None))

    def use_nothing(self) -> bool:
        """Unchoose what is chosen at this place."""

        def act() -> None:
            self._not_while_busy("change the voice")
            self._choose(None)

        return self.guard(act)

    def _turn(self, place: str) -> None:
        self._held[self.place] = self.clip, self.transcript, self.consent, self.saved
        self.clip, self.transcript, self.consent, self.saved = self._held.get(place, (None, "", False, ""))
        self.place = place

    def _use(self, clip: Clip | None, saved: str = "") -> None:
        self._not_while_busy("change the voice")
        self._turn("saved" if saved else clip.place if clip else "none")
        self._choose(clip, saved)

    def _choose(self, clip: Clip | None, saved: str = "") -> None:
        self.clip, self.saved, self.transcript, self.consent = clip, saved, clip.transcript if clip else "", False
        self.emit("clip", clip)
        self._tell_choice()

    def _tell_choice(self) -> None:
        clip, chosen = self.clip, "Type a text, then press “Make speech”."
        if self.saved:
            self.say("ok", f"Saved voice “{self.saved}” is chosen. {chosen}")
        elif clip is None and self.place in NOTHING:
            self.say("info", f"{NOTHING[self.place]}.")
        elif clip is None:
            self.say("info", f"No reference: the model makes a voice up. {chosen}")
        elif clip.end < clip.seconds and clip.start == 0.0 and not self.transcript:
            self.say(
                "warn",
                f"{clip.name} is {clip.seconds:.0f} s long; the first {clip.end:.0f} s are selected. "
                "Move the selection, and type what is said in it.",
            )
        elif self.transcript:
            self.say("ok", f"{clip.name} is chosen, {clip.seconds:.1f} s. {chosen}")
        else:
            self.say("ok", f"{clip.name} was read, {clip.seconds:.1f} s. Now type exactly what is said in it.")

    def trim(self, start: float, end: float) -> bool:
        def act() -> None:
            self._not_while_busy("trim the clip")
            if self.clip is None or self.saved:
                raise BreezeLabError("There is no clip to trim. Choose one first.")
            self.clip = clips.trim(self.clip, start, end)
            whole = self.clip.chosen_seconds > self.clip.seconds - 0.05
            self.say(
                "info",
                f"{self.clip.chosen_seconds:.1f} s of {self.clip.name} are selected. "
                + ("" if whole else "The transcript must hold just what is said in them."),
            )

        return self.guard(act)

    def save_voice(self, name: str) -> bool:
        """Encode the chosen clip if that was not done, and save it; a job. The clip is saved beside the codes."""

        def prepare() -> None:
            self._check_voice()
            if self.clip is None or self.saved:
                raise BreezeLabError("There is no new voice to save. Upload, record or choose a clip first.")
            self.shelf.free(name)

        def work() -> str:
            assert self.clip is not None
            samples = self.clip.chosen()
            voice = self._voice(name)
            path = self.shelf.free(name)
            self.engine.save_voice(voice, path, path.stem)
            audio.write(self.shelf.clip_path(name), samples)
            self.emit("voices", self.shelf.names())
            return f"Saved “{path.stem}” in {self.shelf.folder}. It is now under “Saved”."

        return self._begin(prepare, work)

    def rename_voice(self, old: str, new: str) -> bool:
        def act() -> None:
            self._not_while_busy("rename a voice")
            name = self.shelf.rename(old, new)
            if self.saved == old:
                self.saved = name
            self.say("ok", f"“{old}” is now “{name}”.")

        return self._with_list(act)

    def delete_voice(self, name: str) -> bool:
        def act() -> None:
            self._not_while_busy("delete a voice")
            self.shelf.delete(name)
            if self.saved == name:
                self._choose(None)
            self.say("ok", f"“{name}” was deleted, with its clip.")

        return self._with_list(act)

    def list_voices(self) -> None:
        """Tell the listeners which voices are saved now: another page may have saved or deleted some."""
        names = self.shelf.names()
        if self.saved and self.saved not in names:
            self._choose(None)
        self.emit("voices", names)

    def _with_list(self, act: Callable[[], None]) -> bool:
        """`guard`, and the list as it is then, gone well or not: it may have failed since the list was old."""
        went_well = self.guard(act)
        told = self.status
        if not self.busy:
            self.list_voices()
        if self.status is not told:
            self.say(told.kind, told.text, told.detail)
        return went_well

    def _check_voice(self) -> None:
        if self.saved:
            try:
                self.shelf.held(self.saved)
            except BreezeLabError:
                self.list_voices()
                raise
            return
        if self.clip is None:
            if self.place in NOTHING:
                raise BreezeLabError(
                    f"{NOTHING[self.place]}, or turn to “Made up”, where the model makes a voice of its own."
                )
            return
        if not self.transcript.strip():
            raise BreezeLabError("The transcript of the clip is missing. Type exactly what is said in it, all of it.")
        if self.clip.chosen_seconds > clips.LONGEST_VOICE:
            raise BreezeLabError(
                f"{self.clip.chosen_seconds:.0f} s of clip are selected; {clips.LONGEST_VOICE:.0f} s are the most. "
                "Select 5 to 15 s."
            )
        if self.clip.needs_consent and not self.consent:
            raise BreezeLabError("Consent is missing. Tick the box if the speaker agrees to being cloned.")

    def _model(self) -> ModelNote:
        if self.model is None:
            self._enter(State.LOADING)
            self.model = self.engine.load(self.source or None)
            self._cold = True
            self.emit("model", self.model)
        return self.model

    def _voice(self, name: str = "") -> Any:
        """The chosen voice, encoded at most once for a model, a clip and a transcript."""
        model = self._model()
        if self._cancel.is_set():
            raise Stopped
        self._enter(State.WORKING)
        if self.saved:
            path = self.shelf.held(self.saved)
            return self._once((path, path.stat().st_mtime_ns), lambda: self.engine.load_voice(path))
        if self.clip is None:
            return None
        clip, transcript = self.clip, self.transcript.strip()

        def encode() -> Any:
            self.say("info", f"Encoding {clip.name}…")
            return self.engine.encode(clip.chosen(), transcript, name or clip.name)

        digest = hashlib.sha256(clip.chosen().tobytes()).digest()
        return self._once((model.source, digest, transcript), encode)

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` returns; not made again while the key stays the same."""
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, make())
        return self._kept[1]
