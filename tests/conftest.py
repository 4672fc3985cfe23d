"""Fixtures shared by all test files."""

import os
from pathlib import Path

import pytest

import breeze_lab  # here, so that OpenBLAS comes before MLX whatever a test file imports


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of shape `tiny` on disk. Read it, do not write in it."""
    return breeze_lab.make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", 0)


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> "breeze_lab.checkpoint.SpeechModel":
    """The same, loaded. It holds no state, so all tests may share it."""
    return breeze_lab.load(tiny_folder)


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
