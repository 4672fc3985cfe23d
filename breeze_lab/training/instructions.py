"""Instructions in plain English for how an utterance was said, drawn from its measured traits."""

import numpy as np

from .teachers import HEART

WORDS = {
    "female": ("a woman", "a female voice", "a woman's voice", "a lady", "female", "a girl"),
    "male": ("a man", "a male voice", "a man's voice", "a guy", "male"),
    "low": ("low-pitched", "deep", "low", "in a low pitch", "with a deep voice", "lower pitch"),
    "high": ("high-pitched", "high", "in a high pitch", "with a high voice", "higher pitch"),
    "slow": ("slow", "slowly", "speaking slowly", "at a slow pace", "unhurried", "taking time"),
    "fast": ("fast", "quickly", "speaking fast", "at a fast pace", "rapidly", "hurried"),
    "quiet": ("quiet", "quietly", "softly", "in a soft voice", "speaking quietly", "gently"),
    "loud": ("loud", "loudly", "speaking loudly", "in a loud voice", "forcefully"),
}
PATTERNS = (
    "{list}.",
    "Speak {list}.",
    "Say it {list}.",
    "{list}",
    "Voice: {list}.",
    "Read this {list}, please.",
    "Please speak {list}.",
    "The speaker is {list}.",
)


def describe(traits: list[str], rng: np.random.Generator) -> str:
    """One wording of traits such as ["male", "slow"]: any order, any synonym, some capitals."""
    words = [str(rng.choice(WORDS[t])) for t in rng.permutation(traits)]
    text = str(rng.choice(PATTERNS)).format(list=str(rng.choice([", ", " and ", " "])).join(words))
    return text[0].upper() + text[1:] if rng.random() < 0.8 else text.lower()


def traits_of(row: dict, rng: np.random.Generator) -> list[str]:
    """Which traits of an utterance to name: those that stand out nearly always, the gender often, never none.

    A voice that isn't the default one has its gender named always: an instruction without it keeps the default voice.
    """
    found = [row[key] for key in ("pitch", "pace", "loudness") if row.get(key)]
    named = [t for t in found if rng.random() < 0.85]
    if row["voice"] != HEART or rng.random() < 0.5 or not named:
        named.append(row["gender"])
    return named
