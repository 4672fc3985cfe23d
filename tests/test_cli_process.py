"""The command line as a process: standard streams, pipes, Ctrl-C, the console command, the server of `lab`."""

import contextlib
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import soundfile

import breeze_lab
from breeze_lab.cli import main, speak
from breeze_lab.cli.parser import CtrlC, Progress

ROOT = Path(breeze_lab.__file__).parent.parent


def process(*words: str, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "breeze_lab", *words], **options)


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_closed_standard_streams_are_no_mistake(
    closed: str, here: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    words = ["--model", str(tiny_folder), "--max-seconds", "0.1"]
    for more, code in (([], 0), (["--json"], 0), (["--out", "-"], 0), (["--top-p", "0"], 2)):
        monkeypatch.setattr(sys, closed, None)  # as Python has it after `>&-`
        assert main(["say", "Hi.", *words, *more]) == code
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    assert main(["say", "-", *words]) == 2
    assert len(list(here.glob("speech*.wav"))) == 2


def test_all_standard_streams_closed(here: Path, tiny_folder: Path):
    words = [sys.executable, "-m", "breeze_lab.cli", "say", "Hi.", "--model", str(tiny_folder), "--max-seconds", "0.1"]
    done = subprocess.run(f"{shlex.join(words)} <&- >&- 2>&-", shell=True)
    assert done.returncode == 0 and soundfile.info("speech.wav").frames == 2 * 1920


def test_a_terminal_without_utf_8(here: Path, tiny_folder: Path):
    words = ["say", "Hi.", "--model", str(tiny_folder), "--max-seconds", "0.1", "--out", "caf\u00e9.wav"]
    told = []
    for more in ([], ["--json"]):
        env = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
        running = process(*words, *more, env=env, stdout=subprocess.PIPE)
        told.append(running.communicate()[0].decode("ascii"))
        assert running.returncode == 0
    with contextlib.redirect_stdout(io.StringIO()) as memory:
        assert main([*words, "--json"]) == 0
    assert json.loads(memory.getvalue())["audio"] == "caf\u00e9.wav"
    assert told[0].startswith("caf\\xe9.wav: ") and json.loads(told[1])["audio"] == "caf\u00e9.wav"


def test_a_mistake_in_a_process_of_its_own():
    done = process("say", "", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = done.communicate()
    assert (done.returncode, out, err.count("\n")) == (2, "", 1)


def test_ctrl_c_keeps_what_was_made(
    here: Path, tiny_folder: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    class PressAtFrame3(Progress):
        def __call__(self, done: int, expected: int) -> None:
            if done == 3:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(speak, "Progress", PressAtFrame3)
    before = signal.getsignal(signal.SIGINT)
    words = ["say", "A long story. " * 20, "--model", str(tiny_folder), "--seed", "3", "--out", "x.wav"]
    assert main(words) == 130
    assert "x.wav: stopped by Ctrl-C after 0." in capfd.readouterr().out
    assert len(soundfile.read("x.wav")[0]) in (3 * 1920, 4 * 1920)
    assert main([*words, "--json"]) == 130
    assert json.loads(capfd.readouterr().out)["finish_reason"] == "cancelled"
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_any_sound_tells_what_is_there(
    here: Path, clip: Path, tiny_folder: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    class PressedAtOnce(CtrlC):
        def __enter__(self) -> threading.Event:
            event = super().__enter__()
            event.set()
            return event

    monkeypatch.setattr(speak, "CtrlC", PressedAtOnce)
    words = ["--ref-audio", str(clip), "--ref-text", "the words of the clip", "--save-voice", "v.safetensors"]
    assert main(["clone", "Hello.", *words, "--model", str(tiny_folder)]) == 130
    assert capfd.readouterr().out == "stopped by Ctrl-C before any sound; only v.safetensors written\n"
    assert [path.name for path in here.iterdir()] == ["v.safetensors"]


def console(*words: str, **options) -> subprocess.Popen:
    """The command as pip's script starts it, by the entry point that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, name = project["scripts"]["breeze-lab"].split(":")
    script = f"import sys; from {module} import {name}; sys.exit({name}())"
    return subprocess.Popen([sys.executable, "-c", script, *words], cwd=ROOT, **options)


PRESSES = {
    "plain": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
    # as extensions do whose import is disturbed
    "turned": "import os, signal\ntry:\n  os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException: raise ImportError",
    "raised": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("press", PRESSES)
def test_ctrl_c_while_the_package_is_imported(press: str, tmp_path: Path):
    (tmp_path / "tokenizers.py").write_text(PRESSES[press])
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    running = console("info", env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, b"", b"breeze-lab: stopped by Ctrl-C; nothing was written\n")


def test_a_missing_package_is_named_with_the_cure(tmp_path: Path):
    (tmp_path / "tokenizers.py").write_text("import a_new_dependency")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    running = console("info", env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE)
    err = running.communicate(timeout=60)[1].decode()
    assert running.returncode == 2 and err.count("\n") == 1
    assert "a_new_dependency" in err and "pip install -e ." in err


def test_the_console_command_runs_and_hands_on_its_exit_code():
    for words, code, said in ((["--version"], 0, b"breeze-lab "), (["say", ""], 2, b"breeze-lab: error: ")):
        running = console(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert running.communicate(timeout=60)[0].startswith(said) and running.returncode == code


def test_once_imported_ctrl_c_is_as_before(monkeypatch: pytest.MonkeyPatch):
    import breeze_lab_command

    monkeypatch.setattr(breeze_lab.cli, "main", lambda: signal.getsignal(signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    assert breeze_lab_command.main() is before is signal.getsignal(signal.SIGINT)


def test_pcm_flows_while_it_is_made_and_ctrl_c_ends_it(tiny_folder: Path):
    text = "The salt breeze came across from the sea. " * 30
    words = ["say", text, "--model", str(tiny_folder), "--seed", "11", "--temperature", "0", "--out", "-"]
    running = process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert running.stdout is not None
    first = b""
    while len(first) < 3840:
        first += running.stdout.read(3840 - len(first))
    assert np.abs(np.frombuffer(first, "<i2")).max() > 0 and running.poll() is None
    running.send_signal(signal.SIGINT)
    rest, err = running.communicate(timeout=60)
    assert len(first + rest) % 3840 == 0
    assert running.returncode == 130 and b"stopped by Ctrl-C" in err and b"Traceback" not in err


def test_a_reader_that_has_enough_is_no_mistake(tiny_folder: Path):
    text = "The salt breeze came across from the sea. " * 30
    words = ["say", text, "--model", str(tiny_folder), "--seed", "11", "--temperature", "0", "--out", "-"]
    running = process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert running.stdout is not None and running.stderr is not None
    with running.stdout, running.stderr:
        assert len(running.stdout.read(3000)) > 0
        running.stdout.close()
        err = running.stderr.read().decode()
    assert running.wait(60) == 0 and err.startswith("the reader closed the pipe after") and err.count("\n") == 1


def test_a_report_that_nobody_reads_is_no_mistake():
    read, write = os.pipe()
    os.close(read)
    running = process("info", "--json", stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert running.communicate()[1] == b"" and running.returncode == 0


def test_lab_starts_a_server():
    pytest.importorskip("jupyterlab")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = process("lab", "--no-browser", "--port", str(port), stderr=subprocess.PIPE, start_new_session=True)
    assert running.stderr is not None
    try:
        for _ in range(120):
            assert running.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5) as answer:
                    assert "version" in json.load(answer)
                    break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail("no answer within a minute")
        running.terminate()  # this process alone: the server is it, or would stay behind
        assert f":{port}/lab/tree/notebooks/00_start_here.ipynb".encode() in running.stderr.read()
        running.wait(timeout=30)
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(timeout=30)
        running.stderr.close()
