"""Jupyter and Voila servers for the browser tests, and the files they work on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parents[2]
WORDS = "the salt breeze came across from the sea and the gulls were calling over the harbor wall"
CELL = """
import os
from breeze_lab.widgets import CloneSession, studio
session = CloneSession(source=os.environ["TEST_MODEL"], voices=os.environ["TEST_READY"])
def tell(state):
    with open(os.environ["TEST_STATES"], "a") as file:
        print(os.getpid(), state, file=file)
session.on("state", tell)
studio(session)
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def voice_like(seconds: float, pitch: float = 130.0, rate: int = 24_000) -> np.ndarray:
    """float32 [N]: a buzz with formants and syllables, so that levels and pitch are like those of speech."""
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.06 * np.sin(2 * np.pi * 0.7 * t))) / rate
    buzz = sum(np.sin(k * phase) / k**1.2 for k in range(1, 24))
    syllables = 0.15 + 0.85 * np.clip(np.sin(2 * np.pi * 2.1 * t), 0, 1) ** 0.7
    noise = 0.004 * np.random.default_rng(0).standard_normal(len(t))
    return (0.25 * buzz * syllables + noise).astype(np.float32)


def make_files(folder: Path) -> dict[str, Path]:
    """A tiny random model, one ready-made voice, clips to upload, a notebook."""
    from breeze_lab.checkpoint import make_checkpoint

    ready = folder / "ready"
    ready.mkdir()
    soundfile.write(ready / "harbor.wav", voice_like(6.0), 24_000)
    (ready / "harbor.json").write_text(json.dumps({"transcript": WORDS, "licence": "CC0", "source": "synthetic"}))
    soundfile.write(folder / "clip.wav", voice_like(5.5, 190.0, 16_000), 16_000)
    (folder / "broken.wav").write_bytes(b"RIFF but not a sound")
    (folder / "huge.wav").write_bytes(b"\0" * 7_500_000)
    endless(make_checkpoint(folder / "model", "tiny", 0))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL.strip())])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / "studio.ipynb")
    book.cells.insert(0, nbformat.read(ROOT / "breeze_lab" / "widgets" / "app.ipynb", as_version=4).cells[0])
    nbformat.write(book, folder / "app.ipynb")
    quiet = folder / "settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    names = ("model", "ready", "shelf", "states")
    return {"folder": folder} | {name: folder / name for name in names}


def endless(model: Path) -> None:
    """Keep the random model from stopping at a random frame: its end class gets logit 0, which top-k never keeps."""
    import mlx.core as mx

    from breeze_lab.checkpoint import load

    eos = load(model).config.eos_class
    for path in model.glob("*.safetensors"):
        tensors, metadata = mx.load(str(path), return_metadata=True)
        for name in [n for n in tensors if n.endswith("lm_head.weight")]:
            tensors[name][eos] = 0.0
            mx.eval(tensors)
            mx.save_safetensors(str(path), tensors, metadata)


def environment(files: dict[str, Path]) -> dict[str, str]:
    return os.environ | {
        "TEST_MODEL": str(files["model"]),
        "TEST_READY": str(files["ready"]),
        "TEST_STATES": str(files["states"]),  # what each kernel's session went through
        "BREEZE_LAB_VOICES": str(files["shelf"]),
        "JUPYTER_CONFIG_DIR": str(files["folder"] / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(files["folder"] / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(files["folder"] / "workspaces"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }


class Server:
    """A server process; `url` answers once it is started."""

    def __init__(self, arguments: list[str], port: int, path: str, files: dict[str, Path], log: Path):
        self.port, self.url, self.log = port, f"http://127.0.0.1:{port}{path}", log
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=files["folder"],
                env=environment(files),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._await()

    def _await(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:  # a GET would make Voila run the notebook
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"The server did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self) -> None:
        """The server with its kernels, which share its process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def root_flag() -> list[str]:
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def lab(files: dict[str, Path]) -> Server:
    port = free_port()
    arguments = ["jupyterlab", "--no-browser", f"--port={port}", "--ip=127.0.0.1", "--IdentityProvider.token="]
    arguments += ["--LabApp.expose_app_in_browser=True", "--ServerApp.disable_check_xsrf=True", *root_flag()]
    arguments += [f"--ServerApp.root_dir={files['folder']}"]
    return Server(arguments, port, "/lab", files, files["folder"] / "lab.log")


def voila(files: dict[str, Path], notebook: str) -> Server:
    port = free_port()
    arguments = ["voila", notebook, "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1"]
    return Server(arguments, port, "/", files, files["folder"] / "voila.log")
