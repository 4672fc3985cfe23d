"""The Hub: offline first, and every failure in plain words. The network is never used."""

import errno

import pytest

import breeze_lab as bl
from breeze_lab import hub

hub_library = pytest.importorskip("huggingface_hub")


@pytest.mark.parametrize("source", ["owner/name", "mlx-community/Breeze-TTS-2-mlx-8bit", "a.b/c_d"])
def test_ids(source):
    assert hub.looks_like_id(source)


@pytest.mark.parametrize("source", ["name", "/tmp/x", "./a/b", "a/b/c", "", "a b/c", "~/x"])
def test_what_is_no_id(source):
    assert not hub.looks_like_id(source)


def test_a_cached_repository_loads_offline(tiny_folder, tmp_path, monkeypatch):
    """The library's own cache layout: refs/main names a snapshot folder."""
    repo = tmp_path / "models--owner--tiny"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(tiny_folder, target_is_directory=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    real = hub_library.snapshot_download
    monkeypatch.setattr(hub_library, "snapshot_download", lambda *a, **k: real(*a, cache_dir=tmp_path, **k))
    assert bl.load("owner/tiny", offline=True).name == "owner/tiny"


def response(status):
    import httpx

    return httpx.Response(status, request=httpx.Request("GET", "https://example.invalid/owner/name"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (lambda e: e.GatedRepoError("gated", response=response(403)), "owner/name is gated.*Accept its terms"),
        (lambda e: e.RepositoryNotFoundError("none", response=response(404)), "not on the Hub.*Check the name"),
        (
            lambda e: e.LocalEntryNotFoundError("offline"),
            "no folder owner/name here.*not in the local cache.*give a folder",
        ),
        (lambda e: e.HfHubHTTPError("500 Server Error", response=response(500)), "could not be fetched.*later"),
        (lambda e: OSError(errno.ENOSPC, "No space left on device"), "does not fit on the disk.*Free some space"),
        (lambda e: ConnectionError("refused"), "could not be fetched.*connection"),
    ],
)
def test_failures_have_cause_and_cure(monkeypatch, error, message):
    def fail(*_args, **_options):
        raise error(hub_library.errors)

    monkeypatch.setattr(hub_library, "snapshot_download", fail)
    with pytest.raises(bl.BreezeLabError, match=message):
        bl.load("owner/name")


@pytest.mark.parametrize(("variable", "offline"), [("1", True), ("0", False), ("", False)])
def test_the_offline_flag_of_the_environment_is_honored(monkeypatch, tiny_folder, variable, offline):
    seen = {}
    monkeypatch.setenv("HF_HUB_OFFLINE", variable)
    monkeypatch.setattr(hub_library, "snapshot_download", lambda repo, **options: seen.update(options) or tiny_folder)
    hub.download("owner/name", progress=False)
    assert seen["local_files_only"] is offline
    assert "*.safetensors" in seen["allow_patterns"]
