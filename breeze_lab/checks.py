"""A call to `generate` is checked before any work: what is wrong is refused with cause and cure."""

from dataclasses import replace
from typing import Any

import numpy as np

from .checkpoint import SpeechModel
from .errors import BreezeLabError
from .frames import METHODS, usable
from .keys import check_seed
from .samplers import Sampling
from .voice import Voice


def plain(value: Any) -> Any:
    """A NumPy scalar, such as those of np.arange, as Python's own number; all else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def chosen(own: Sampling, **given: Any) -> Sampling:
    """A checkpoint's own sampling with those numbers in place that were given, not None."""
    return replace(own, **{name: plain(value) for name, value in given.items() if value is not None})


def check_call(
    model: object,
    *,
    voice: object,
    seed: object,
    method: object,
    cancel: object,
    progress: object,
    **whole: object,
) -> None:
    """Refuse what cannot be meant; `whole` are the arguments that are whole numbers of frames.

    Raises:
        BreezeLabError: the first argument that is wrong, by name.
    """
    if not isinstance(model, SpeechModel):
        raise BreezeLabError(f"model is of type {type(model).__name__}. Pass a loaded one: breeze_lab.load().")
    if method not in [None, *METHODS]:
        raise BreezeLabError(f"Unknown method {method!r}. Choose one of {', '.join(METHODS)}.")
    if method is not None and method not in usable(model.lm):
        raise BreezeLabError(
            f"Method {method!r} needs a CPU, float32 weights and Numba. Leave it out, or take 'device'."
        )
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise BreezeLabError(f"cancel is of type {type(cancel).__name__}, without is_set(). Pass a threading.Event.")
    if progress is not None and not callable(progress):
        raise BreezeLabError(f"progress is of type {type(progress).__name__}. Pass a function of (frames, expected).")
    for name, value in whole.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BreezeLabError(f"{name} {value!r} is not a whole number >= 1. Frames last 80 ms.")
    if seed is not None:
        check_seed(seed)
    if voice is not None and not isinstance(voice, Voice):
        raise BreezeLabError(
            f"voice is of type {type(voice).__name__}, not a Voice. Make one with Voice.from_audio or Voice.load, or "
            "open one of data/voices with breeze_lab.voices.open_voice(model, name)."
        )
