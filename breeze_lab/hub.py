"""Checkpoints from the Hugging Face Hub; the library is imported only when an id is asked for."""

import errno
import os
import re
from pathlib import Path

from .errors import BreezeLabError
from .files import as_path

PATTERNS = ["*.json", "*.safetensors", "audio_tokenizer/*"]
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def looks_like_id(source: str) -> bool:
    """Whether `source` has the form owner/name."""
    return _ID.fullmatch(source) is not None


def find_folder(source: str | Path, *, offline: bool | None = None, progress: bool = True) -> Path:
    """The folder of a checkpoint that is named by folder or by Hub id.

    Raises:
        BreezeLabError: neither, or what `download` raises.
    """
    folder = as_path(source, "the checkpoint")
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BreezeLabError(f"{folder} holds no config.json. Give the folder of a whole checkpoint.")
        return folder
    if looks_like_id(str(source)):
        try:
            return download(str(source), offline=offline, progress=progress)
        except BreezeLabError as error:
            raise BreezeLabError(f"There is no folder {source} here, and as a Hub id: {error}") from None
    raise BreezeLabError(f"{source} is neither a folder nor a Hub id such as mlx-community/Breeze-TTS-2-mlx-8bit.")


def download(repo: str, *, offline: bool | None = None, progress: bool = True) -> Path:
    """Fetch a checkpoint, or find it in the local cache, and return its folder.

    Args:
        offline: look in the cache alone; None follows the environment (HF_HUB_OFFLINE).
        progress: show the library's download bars.

    Raises:
        BreezeLabError: no such repository, a gated one, no network and not cached, or a full disk.
    """
    try:
        from huggingface_hub import errors, snapshot_download
        from huggingface_hub.utils import disable_progress_bars, enable_progress_bars
    except ImportError:
        raise BreezeLabError(
            f"Loading {repo} from the Hub needs huggingface_hub. Install it with: python -m pip install huggingface_hub"
        ) from None
    if offline is None:
        offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    (enable_progress_bars if progress else disable_progress_bars)()
    try:
        return Path(snapshot_download(repo, allow_patterns=PATTERNS, local_files_only=offline))
    except errors.GatedRepoError:
        cause, cure = "is gated", f"Accept its terms at huggingface.co/{repo}, then log in with: hf auth login"
    except errors.RepositoryNotFoundError:
        cause, cure = "is not on the Hub, or is private", "Check the name, or log in with: hf auth login"
    except errors.LocalEntryNotFoundError:
        cause = "is not in the local cache, and the Hub was not reached"
        cure = "Connect once, switch offline mode off, or give a folder"
    except errors.HfHubHTTPError as error:
        cause, cure = f"could not be fetched ({str(error).splitlines()[0]})", "Try again later, or give a folder"
    except OSError as error:
        if error.errno == errno.ENOSPC:
            cause, cure = (
                "does not fit on the disk",
                "Free some space (a whole checkpoint takes up to 8 GB) and try again",
            )
        else:
            cause, cure = f"could not be fetched ({error})", "Check the connection, or give a folder"
    raise BreezeLabError(f"{repo} {cause}. {cure}.")
