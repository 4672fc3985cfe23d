"""The controller of the voice-cloning widget: no widgets, one worker thread, plain callbacks.

Its methods never raise on bad input: they say in `status` what happened and what to do. All MLX work is done on the
worker thread, one job at a time; `stop` is seen by the frame loop within a frame.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BreezeLabError
from .clip import RATE
from .engine import Engine, size_text
from .events import State
from .growing import Growing
from .jobs import Stopped
from .likeness import timbre
from .takes import Request, Take
from .voices import VoiceDesk


class CloneSession(VoiceDesk):
    """States: idle, loading, working, cancelled, done, failed. Events: `events.Listeners.NAMES`."""

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        source: str | None = None,
        shelf: Path | None = None,
        voices: Path | None = None,
    ):
        """`engine` speaks (breeze_lab by default); `source` is the model, loaded when first needed; `shelf` is the
        folder of saved voices and `voices` that of the ready-made ones.
        """
        super().__init__(engine, source, shelf, voices)
        self.takes: list[Take] = []  # newest first
        self.removed: list[Take] = []  # by the last removal, to be had back
        self._count = 0

    def load(self, source: str | None = "") -> bool:
        """Load a model (None: the default one, "": that of this session); a job."""

        def work() -> str:
            self.source, self.model, self._kept = self.source if source == "" else source, None, None
            note = self._model()
            trained = "" if note.trained else " It is untrained: what it makes sounds like noise."
            return f"{note.name} is loaded: {size_text(note.memory_gb)}, {note.dtype}.{trained}"

        return self._begin(lambda: None, work, State.LOADING)

    def choose_model(self, source: str | None) -> None:
        """The model to load when one is next needed; nothing happens if it is the one at hand."""
        if not self.busy and (source or None) != (self.source or None):
            self.source, self.model, self._kept = source, None, None
            self.emit("model", None)

    def start(self, request: Request) -> bool:
        """Make `request.takes` takes; a job. Loads the model and encodes the voice first where that is needed."""

        def prepare() -> None:
            request.check()
            self._check_voice()

        return self._begin(prepare, lambda: self._make(request))

    def run(self, request: Request) -> list[Take]:
        """`start`, wait, and return the takes made. For notebooks and scripts: here a failure does raise."""
        before = self._count
        if not self.start(request):
            raise BreezeLabError(self.status.text)
        self.wait()
        if self.state is State.FAILED:
            raise BreezeLabError(self.status.text) from self._error
        return [take for take in self.takes if take.number > before]

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove takes from the history; `bring_back` undoes it until others are removed."""
        numbers = set(numbers)
        self.removed = [take for take in self.takes if take.number in numbers]
        self.takes = [take for take in self.takes if take.number not in numbers]
        self.emit("takes", self.takes)
        which = f"Take {self.removed[0].number} was" if len(self.removed) == 1 else f"{len(self.removed)} takes were"
        self.say("info", f"{which} removed from the history. “Bring back” undoes it.")

    def bring_back(self) -> None:
        self.takes = sorted([*self.takes, *self.removed], key=lambda take: -take.number)
        self.removed = []
        self.emit("takes", self.takes)
        self.say("info", "The history is as it was.")

    def take(self, number: int) -> Take:
        for take in self.takes:
            if take.number == number:
                return take
        raise BreezeLabError(f"Take {number} is no longer in the history. Make it again with its seed.")

    def _make(self, request: Request) -> str:
        voice = self._voice()
        made: list[Take] = []
        for index, seed in enumerate(request.seeds()):
            take = self._one_take(request, voice, seed, index)
            if take is not None:
                made.append(take)
            if self._cancel.is_set():
                break
        if not made:
            raise Stopped
        return self._summary(made, request)

    def _one_take(self, request: Request, voice: Any, seed: int, index: int) -> Take | None:
        """One stream from its first frame to its end, told to the listeners while it grows."""
        assert self.model is not None
        self._count += 1
        known = (voice.transcript, voice.seconds) if voice is not None else ("", 0.0)
        growing = Growing(self._count, seed, self.model.sample_rate, request.expected_seconds(*known))
        self.say("info", f"Making take {index + 1} of {request.takes} with seed {seed}…")
        stream = self.engine.stream(request, voice, seed, self._cancel)
        try:
            for chunk in stream:
                self.emit("sound", growing.add(chunk))
                self.emit("progress", growing.progress(index + 1, request.takes))
        except Exception:
            if growing.pieces:
                growing.finish_reason = "error"
                self._keep(growing, request)
            raise
        finally:
            stream.close()
            if not growing.ended:
                self.emit("sound", growing.broken_off())
        if not growing.pieces:
            if self._cancel.is_set():
                return None
            raise BreezeLabError("The model ended before it made a sound. Try another seed, or a longer text.")
        return self._keep(growing, request)

    def _keep(self, growing: Growing, request: Request) -> Take:
        assert self.model is not None
        take = Take(
            number=growing.number,
            seed=growing.seed,
            request=request,
            voice=self.saved or (self.clip.name if self.clip else ""),
            model=self.model.name,
            samples=np.concatenate(growing.pieces),
            rate=growing.rate,
            finish_reason=growing.finish_reason,
            first_audio_s=growing.first_audio_s,
            seconds_made=growing.made_in_s,
            warm_up=self._cold,
        )
        self._cold = False
        if self.clip is not None and take.seconds >= 0.5:
            heard = slice(0, 15 * RATE)  # enough, and quick
            take.likeness = timbre(self.clip.chosen()[heard], take.samples[heard])
        self.takes = [take, *self.takes]
        self.emit("takes", self.takes)
        return take

    def _summary(self, made: list[Take], request: Request) -> str:
        last = made[-1]
        figures = f"first sound after {made[0].first_audio_s:.2f} s, real-time factor {last.rtf:.2f}"
        if last.warm_up or made[0].warm_up:
            figures += ", with the warm-up of a first run"
        total = sum(take.seconds for take in made)
        if self._cancel.is_set():
            return f"Stopped. {total:.1f} s of sound are kept under “Takes”. Press “Make speech” to go on."
        cut = [take for take in made if take.finish_reason == "max_frames"]
        count = "The take is" if len(made) == 1 else f"{len(made)} takes are"
        if cut:
            self.notes.append("Raise “Longest piece”, shorten the text, or try another seed.")
            return f"{count} made, but cut at {request.max_seconds:g} s ({figures})."
        return f"{count} made: {total:.1f} s of sound, {figures}. Listen under “Takes”."
