"""paths.py: the clone's folders, also for a package that is installed elsewhere."""

from pathlib import Path

import pytest

from breeze_lab import paths


def test_the_clone_has_its_folders():
    root = Path(__file__).parent.parent
    assert paths.data_folder() == root / "data" and paths.notebooks_folder() == root / "notebooks"


def test_an_installed_package_finds_the_clone_it_runs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)
    assert paths.data_folder() == tmp_path / "site-packages" / "data" and paths.notebooks_folder() is None
    (tmp_path / "data").mkdir()
    assert paths.data_folder() == tmp_path / "site-packages" / "data"  # any folder may have a data/
    (tmp_path / "breeze_lab").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "00_start_here.ipynb").write_text("{}")
    assert paths.data_folder() == tmp_path / "data" and paths.notebooks_folder() == tmp_path / "notebooks"


def test_the_cache_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BREEZE_LAB_CACHE", str(tmp_path))
    assert paths.cache_folder() == tmp_path
    monkeypatch.delenv("BREEZE_LAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert paths.cache_folder() == tmp_path / "x" / "breeze_lab"
