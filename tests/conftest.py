"""Fixtures shared by all test files."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

os.environ.setdefault("MLX_ENABLE_TF32", "0")  # float32 is float32 on an NVIDIA GPU too; MLX reads it when it starts

import breeze_lab  # here, so that OpenBLAS comes before MLX whatever a test file imports
from breeze_lab.measure import timing


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of shape `tiny` on disk. Read it, do not write in it."""
    return breeze_lab.make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", 0)


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> "breeze_lab.checkpoint.SpeechModel":
    """The same, loaded. It holds no state, so all tests may share it."""
    return breeze_lab.load(tiny_folder)


@pytest.fixture
def cpu_only() -> None:
    """Skip on a GPU, which has no rung `host` and no compiled loops."""
    if timing.backend() != "cpu":
        pytest.skip("MLX computes on a GPU here")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests, and the processes they start, keep out of the user's cache."""
    before = os.environ.get("BREEZE_LAB_CACHE")
    os.environ["BREEZE_LAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["BREEZE_LAB_CACHE"]
    else:
        os.environ["BREEZE_LAB_CACHE"] = before


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Two seconds of a buzz with a speech-like rhythm, at 16 kHz in stereo."""
    t = np.arange(32000) / 16000
    x = 0.3 * np.sign(np.sin(2 * np.pi * 120 * t)) * np.abs(np.sin(2 * np.pi * 2 * t))
    soundfile.write(tmp_path / "clip.wav", np.stack([x, x], axis=1), 16000)
    return tmp_path / "clip.wav"
