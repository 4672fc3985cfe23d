"""Front-ends: what the tokenizer sees of a text.

Breeze's own tokenizer takes text as it is. Waft reads American English phonemes, which hibari's grapheme-to-phoneme
library makes; it also says numbers, dates, money, units, abbreviations and titles as words. A checkpoint's config.json
names its front-end under `text_frontend`.
"""

import functools
import re
import threading
import unicodedata
from collections.abc import Callable

from .errors import BreezeLabError

EVENTS = ("laugh", "laughs", "cough", "coughs", "clears throat", "sigh", "sighs")
CHINESE_EVENTS = ("笑", "咳嗽", "清嗓子", "叹气")

# What no front-end may touch: speaker tags, instructions with their marks, audio marks, events.
PROTECTED = re.compile(
    r"(\[S\d\]|<ins_bos>.*?<ins_eos>|<\|AUDIO\|>|<\|audio_eos\|>"
    rf"|\((?:{'|'.join(EVENTS)})\)|\[(?:{'|'.join(CHINESE_EVENTS)})\])",
    re.DOTALL,
)
_WEB = re.compile(r"\bwww\.(?=\w)|(?<=\w)\.(?=(?:com|org|net|edu|gov|io|dev|co|uk|de)\b)")
_TYPOGRAPHY = str.maketrans(
    {"\u00a0": " ", "\u2010": "-", "\u2011": "-", "\u2212": "-", "\u2032": "'", "\u2033": '"', "（": "(", "）": ")"}
)


def frontend(name: str | None) -> Callable[[str], str]:
    """The function text -> tokenizer input of a checkpoint.

    Args:
        name: `text_frontend` of its config.json; None leaves the text as it is.

    Raises:
        BreezeLabError: a name that this release does not know.
    """
    if name is None:
        return lambda text: text
    if name not in FRONTENDS:
        raise BreezeLabError(
            f"The checkpoint wants the text front-end {name!r}; this release knows {', '.join(sorted(FRONTENDS))}. "
            "Upgrade breeze_lab, or set text_frontend in the checkpoint's config.json to one of these or to null."
        )
    return FRONTENDS[name]


def hibari_us(text: str) -> str:
    """American English phonemes (misaki's alphabet, with stress and punctuation), protected parts as they are.

    >>> hibari_us("[S0]Dr. Smith paid $3. (laugh)")
    '[S0]dˈɑktəɹ smˈɪθ pˈAd θɹˈi dˈɑləɹz. (laugh)'

    Raises:
        BreezeLabError: nothing in the text can be read aloud (another script, or signs alone).
    """
    parts = PROTECTED.split(text)  # odd ones are protected
    foreign = list(dict.fromkeys(c for part in parts[::2] for c in part if c.isalpha() and not _is_latin(c)))
    if foreign:
        raise BreezeLabError(
            f"Waft cannot read {''.join(foreign[:12])!r} aloud: it knows English words and numbers. "
            "Write it in English letters, or leave it out."
        )
    spoken = [part if i % 2 else _phonemes(part) for i, part in enumerate(parts)]
    heard = [part for part in parts[1::2] if not part.startswith(("<", "[S"))]  # events
    if not heard and not any(c.isalnum() for s in spoken[::2] for c in s):
        raise BreezeLabError(f"There is nothing to say in {text.strip()[:40]!r}. Give at least one word.")
    return "".join(spoken)


def _is_latin(letter: str) -> bool:
    """Whether a letter is of the Latin script, in any width or style, or a sign such as that of micro."""
    return "SIGN" in unicodedata.name(letter, "") or all(
        "LATIN" in unicodedata.name(c, "") for c in unicodedata.normalize("NFKD", letter) if c.isalpha()
    )


def _phonemes(text: str) -> str:
    """One unprotected stretch; its outer blanks stay, so that an event keeps its distance from the words."""
    if not text.strip():
        return " " if text else ""
    text = _WEB.sub(
        lambda m: "double u double u double u dot " if m[0][0] == "w" else " dot ", text.translate(_TYPOGRAPHY)
    )
    folded = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    with _lock:  # the library's lazy parts are not made for several threads at once
        spoken = _g2p()(" ".join(folded.split()))
    head, tail = " " * folded[0].isspace(), " " * folded[-1].isspace()
    return f"{head}{spoken}{tail}" if spoken else ""


_lock = threading.Lock()


@functools.cache
def _g2p() -> Callable[[str], str]:
    try:
        from hibari.g2p import G2P
    except ImportError as e:
        raise BreezeLabError(
            "Waft reads text through the package hibari-tts, which is missing. Install it: pip install hibari-tts"
        ) from e
    return G2P()


FRONTENDS: dict[str, Callable[[str], str]] = {"hibari_us": hibari_us}
