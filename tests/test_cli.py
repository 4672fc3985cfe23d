"""The command line from outside: exit codes, what is printed where, what is on disk afterwards."""

import inspect
import io
import json
import shlex
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile

import breeze_lab
from breeze_lab.cli import build_parser, main, outputs, parser, speak

JSON_KEYS = set(
    "audio seconds frames finish_reason seed rtf first_audio_s host_reads peak_memory_gb model method sampling".split()
)


def test_say_writes_a_file_and_one_json_object(here: Path, tiny_folder: Path, capfd: pytest.CaptureFixture):
    words = ["say", "Hello there.", "--model", str(tiny_folder), "--seed", "3", "--max-seconds", "0.8", "--json"]
    assert main([*words, "--out", "a.wav"]) == 0
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert told["sampling"] == {"temperature": 0.9, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.1}
    assert set(told) == JSON_KEYS and err == ""
    samples, rate = soundfile.read("a.wav")
    assert told["audio"] == "a.wav" and rate == 24000 and len(samples) == told["frames"] * 1920 > 0
    assert told["seconds"] == len(samples) / 24000 and told["seed"] == 3
    assert told["finish_reason"] in ("eos", "max_frames") and told["frames"] <= 10
    assert told["rtf"] > 0 and told["first_audio_s"] > 0 and (told["host_reads"] == 0) == (told["method"] == "host")
    for more, name in ((["--method", "cached"], "b.wav"), (["--stream"], "c.flac")):  # same seed, same sound
        assert main([*words, *more, "--out", name]) == 0
        again, _ = soundfile.read(name)
        assert np.abs(again - samples).max() < 1e-3
    assert sorted(p.name for p in here.iterdir()) == ["a.wav", "b.wav", "c.flac"]


def test_without_out_the_next_free_name_is_taken(here: Path, tiny_folder: Path, capfd: pytest.CaptureFixture):
    Path("speech.wav").write_text("mine")
    assert main(["say", "Hi.", "--model", str(tiny_folder), "--seed", "1", "--max-seconds", "0.2"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("speech-2.wav: ") and "seed 1" in out and out.count("\n") == 1 and err == ""
    assert Path("speech.wav").read_text() == "mine" and Path("speech-2.wav").stat().st_size > 44


def test_clone_saves_a_voice_that_say_takes(here: Path, tiny_folder: Path, clip: Path, capfd: pytest.CaptureFixture):
    common = ["--model", str(tiny_folder), "--seed", "5", "--max-seconds", "0.4", "--json"]
    reference = ["--ref-audio", str(clip), "--ref-text", "the words of the clip"]
    assert main(["clone", "Hello.", *reference, "--save-voice", "me.safetensors", "--out", "a.wav", *common]) == 0
    assert main(["say", "Hello.", "--voice", "me.safetensors", "--out", "b.wav", *common]) == 0
    first, second = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert first["saved_voice"] == "me.safetensors" and first["frames"] == second["frames"]
    assert Path("a.wav").read_bytes() == Path("b.wav").read_bytes()
    assert main(["clone", *reference, "--save-voice", "only.safetensors", "--model", str(tiny_folder)]) == 0
    assert "a voice of 2.0 s" in capfd.readouterr().out
    assert Path("only.safetensors").read_bytes() == Path("me.safetensors").read_bytes()


def test_text_from_standard_input(
    here: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    words = ["say", "-", "--model", str(tiny_folder), "--seed", "1", "--max-seconds", "0.2", "--out"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfHello from a pipe.\n")))
    assert main([*words, "x.ogg"]) == 0
    assert soundfile.info("x.ogg").samplerate == 24000
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), errors="surrogateescape"))
    assert main([*words, "y.ogg"]) == 2
    assert "standard input is not UTF-8" in capfd.readouterr().err and not Path("y.ogg").exists()


def test_two_processes_never_take_the_same_name(here: Path):
    silence = np.zeros(2400, np.float32)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: str(outputs.write(None, silence, 24000)), range(16)))
    assert len(set(taken)) == 16 and sorted(taken) == sorted(path.name for path in here.iterdir())


def test_a_name_is_given_back_when_nothing_was_written(here: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(breeze_lab.BreezeLabError):
        outputs.write(None, np.full(2400, np.nan, np.float32), 24000)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("how", ["itself", "link"])
def test_the_users_recording_is_never_the_output(
    how: str, here: Path, clip: Path, tiny_folder: Path, capfd: pytest.CaptureFixture
):
    before, out = clip.read_bytes(), clip
    if how == "link":
        out = here / "link.wav"
        out.hardlink_to(clip)
    words = ["--model", str(tiny_folder), "--out", str(out)]
    assert main(["clone", "Hello.", "--ref-audio", str(clip), "--ref-text", "the words", *words]) == 2
    clip.with_suffix(".json").write_text(json.dumps({"transcript": "the words of the clip"}))
    assert main(["say", "Hello.", "--voice", str(clip), *words]) == 2
    assert capfd.readouterr().err.count("is the recording") == 2 and clip.read_bytes() == before


def test_a_voice_whose_json_is_wrong(here: Path, clip: Path, tiny_folder: Path, capfd: pytest.CaptureFixture):
    for key in ("source", "transcript"):
        clip.with_suffix(".json").write_text(json.dumps({"transcript": "the words", key: ["a"]}))
        assert main(["say", "Hello.", "--voice", str(clip), "--model", str(tiny_folder)]) == 2
        assert f"{key} is not a text" in capfd.readouterr().err


def test_the_voice_of_a_refused_request_is_not_kept(
    here: Path, clip: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_args: object, **_options: object) -> None:
        raise breeze_lab.BreezeLabError("the text cannot be read")

    monkeypatch.setattr(speak, "stream_generate", refuse)
    words = ["--ref-audio", str(clip), "--ref-text", "the words of the clip", "--save-voice", "v.safetensors"]
    assert main(["clone", "Hello.", *words, "--model", str(tiny_folder)]) == 2
    assert list(here.iterdir()) == []


@pytest.fixture
def bad(tmp_path: Path, tiny_folder: Path, clip: Path) -> dict[str, str]:
    """Paths of broken things, by name, for the table below."""
    t = np.arange(48000) / 24000
    sounds = {"short": np.sin(t[:480] * 2e3), "silent": np.zeros(48000), "nan": np.full(48000, np.nan)}
    for name, samples in sounds.items():
        soundfile.write(tmp_path / f"{name}.wav", samples, 24000, subtype="FLOAT")
    (tmp_path / "empty").mkdir()
    cut = tmp_path / "cut"
    shutil.copytree(tiny_folder, cut)
    victim = sorted(cut.glob("*.safetensors"))[0]
    victim.write_bytes(victim.read_bytes()[:-100])
    names = {name: str(tmp_path / f"{name}.wav") for name in sounds}
    return names | {"clip": str(clip), "empty": str(tmp_path / "empty"), "cut": str(cut), "tiny": str(tiny_folder)}


BAD = {
    "say ''": "text is empty",
    "say ' '": "text is empty",
    "say": "required: TEXT",
    "clone Hello --ref-audio {clip}": "required: --ref-text",
    "clone Hello --ref-audio {clip} --ref-text ''": "transcript is empty",
    "clone --ref-audio {clip} --ref-text words": "no text to say",
    "clone Hello --ref-audio {short} --ref-text words": "20 ms",
    "clone Hello --ref-audio {silent} --ref-text words": "silent",
    "clone Hello --ref-audio {nan} --ref-text words": "NaN",
    "clone Hello --ref-audio none.wav --ref-text words": "no file none.wav",
    "clone Hello --ref-audio {clip} --ref-text words --save-voice v.wav": "v.safetensors",
    "clone --ref-audio {clip} --ref-text words --save-voice v.safetensors --out x.wav": "--out has no effect",
    "clone --ref-audio {clip} --ref-text words --save-voice v.safetensors --seed 1": "--seed has no effect",
    "clone Hi --ref-audio {clip} --ref-text words --save-voice v.safetensors --max-seconds 0": "--max-seconds",
    "clone Hi --ref-audio {clip} --ref-text words --save-voice v.safetensors --top-p 0": "top_p",
    "say Hello --max-seconds 1e308": "--max-seconds",
    "say Hello --max-seconds nan": "--max-seconds",
    "say caf\udce9": "not UTF-8",
    "record --out none/x.json": "does not exist",
    "say Hello --voice nobody": "no voice 'nobody'",
    "say Hello --voice {clip}": "breeze-lab clone --ref-audio",
    "say Hello --loud": "unrecognized arguments: --loud. See: breeze-lab say --help",
    "say Hello there": "unrecognized arguments: there. Put a text of several words in quotes. See",
    "say Hello --method fast": "invalid choice: 'fast'",
    "say Hello --seed x": "invalid int value",
    "say Hello --model {empty}": "config.json",
    "say Hello --model no/such/folder": "no/such/folder",
    "say Hello --model {cut}": "truncated",
    "say Hello --out none/x.wav": "does not exist",
    "say Hello --out /proc/x.wav": "cannot write",
    "say Hello --out x.m4a": ".wav, .flac, .ogg",
    "say Hello --out {empty}": "cannot write",
    "say Hello --out - --json": "--out a file name",
    "say Hello --model {tiny} --cfg-scale 2": "instruct",
    "say Hello --model {tiny} --temperature -1": "temperature",
    "say Hello --model {tiny} --top-p 0": "top_p",
    "say Hello --model {tiny} --top-k -1": "top_k",
    "say Hello --model {tiny} --repetition-penalty 0": "repetition_penalty",
    "say Hello --model {tiny} --seed -1": "seed",
    "say Hello --model {tiny} --instruct ''": "instruction",
    "say Hello --model {tiny} --speaker Bob": "speaker",
    "say Hello --model {tiny} --max-seconds 0": "--max-seconds",
    "convert {tiny} {empty} --quantize int3": "invalid choice",
    "convert {empty} new --quantize int8": "config.json",
    "make-checkpoint {tiny} --shape tiny": "not empty",
    "bench --model {empty}": "no checkpoint",
    "bench --rounds 0 --shape tiny": "rounds",
    "lab --port 99999999": "not a port",
    "dance": "invalid choice: 'dance'",
    "": "required: COMMAND",
}


@pytest.mark.parametrize("line", BAD)
def test_mistakes_end_in_one_line_and_code_2(line: str, bad: dict, here: Path, capfd: pytest.CaptureFixture):
    if "/proc" in line and not Path("/proc/self").exists():
        pytest.skip("no folder here that nobody can write in")
    assert main([word.format(**bad) for word in shlex.split(line)]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("breeze-lab: error: ") and err.count("\n") == 1 and "Traceback" not in err
    assert BAD[line] in err
    assert list(here.iterdir()) == []  # nothing half-written


def test_warnings_are_notes(here: Path, tiny_folder: Path, clip: Path, capfd: pytest.CaptureFixture):
    words = ["clone", "--ref-audio", str(clip), "--ref-text", "a", "--save-voice", "v.safetensors"]
    assert main([*words, "--model", str(tiny_folder)]) == 0
    err = capfd.readouterr().err
    assert err.startswith("breeze-lab: note: the transcript has too few letters") and err.count("\n") == 1


def test_defaults_are_those_of_generate():
    want = inspect.signature(breeze_lab.generate).parameters
    assert {n: p.default for n, p in inspect.signature(breeze_lab.stream_generate).parameters.items() if n in want} == {
        n: p.default for n, p in want.items()
    }
    args = vars(build_parser().parse_args(["say", "x"]))
    shared = "voice instruct cfg_scale seed temperature top_k top_p repetition_penalty method speaker".split()
    assert {name: args[name] for name in shared} == {name: want[name].default for name in shared}
    own = "temperature top_k top_p repetition_penalty".split()  # the checkpoint's, where they are not given
    assert [args[name] for name in own] == [None] * 4
    assert round(args["max_seconds"] * 12.5) == want["max_frames"].default
    assert set(want) - set(shared) == {"model", "text", "max_frames", "cancel", "progress"}  # each has its own test


def test_sampling_is_the_checkpoints_own_unless_given(here: Path, tiny_folder: Path):
    folder = shutil.copytree(tiny_folder, here / "greedy")
    (folder / "generation_config.json").write_text('{"temperature": 0, "repetition_penalty": 1e6, "max_new_tokens": 9}')
    words = ["say", "Good morning.", "--seed", "3", "--max-seconds", "0.96"]
    greedy, usual = ["--model", "greedy"], ["--model", str(tiny_folder)]
    penalty = ["--repetition-penalty", "1e6"]
    for name, more in {
        "own": greedy,
        "cold": [*usual, *penalty, "--temperature", "0"],
        "narrow": [*usual, *penalty, "--top-k", "1"],
        "sure": [*usual, *penalty, "--top-p", "1e-9"],
        "given": [*greedy, "--temperature", "0.9"],
        "warm": [*usual, *penalty],
        "repeating": [*usual, "--temperature", "0"],
    }.items():
        assert main([*words, *more, "--out", f"{name}.wav"]) == 0
    sound = {path.stem: path.read_bytes() for path in here.glob("*.wav")}
    assert sound["own"] == sound["cold"] == sound["narrow"] == sound["sure"]
    assert sound["given"] == sound["warm"] and len({sound[name] for name in ("own", "warm", "repeating")}) == 3


def test_convert_and_make_checkpoint(here: Path, tiny_folder: Path, capfd: pytest.CaptureFixture):
    assert main(["make-checkpoint", "--shape", "tiny", "--seed", "0", "made", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"folder": "made", "shape": "tiny", "seed": 0}
    for path in tiny_folder.rglob("*.safetensors"):  # the fixture's twin, byte for byte
        assert (here / "made" / path.relative_to(tiny_folder)).read_bytes() == path.read_bytes()
    assert main(["convert", "made", "q", "--quantize", "int8-depth"]) == 0
    assert capfd.readouterr().out == "q: written\n"
    assert main(["say", "Hi.", "--model", "q", "--seed", "1", "--max-seconds", "0.2", "--out", "q.wav"]) == 0


@pytest.mark.parametrize("wrong", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_is_whole_or_not_there(
    wrong: BaseException, here: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    from breeze_lab import random_checkpoint

    write, files = random_checkpoint.write_tensors, []

    def fails_at_the_third_file(path: Path, tensors: dict) -> None:
        files.append(path)
        if len(files) == 3:
            raise wrong
        write(path, tensors)

    monkeypatch.setattr(random_checkpoint, "write_tensors", fails_at_the_third_file)
    assert main(["make-checkpoint", "--shape", "tiny", "new"]) == (130 if isinstance(wrong, KeyboardInterrupt) else 2)
    assert capfd.readouterr().err.count("\n") == 1 and list(here.iterdir()) == []


def test_info_tells_and_cures(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    assert main(["info", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["versions"]["mlx"] and told["blas"]["gflops"] > 0 and told["machine"]["backend"] in "cpu metal cuda"
    assert main(["info"]) == 0
    out = capfd.readouterr().out
    from breeze_lab import info
    from breeze_lab.generation_config import described
    from breeze_lab.samplers import Sampling

    assert "backend" in out and f"sampling   {described(Sampling(**told['checkpoint']['sampling']))}\n" in out

    worst = told | {"compiler": None, "voices": [], "notebooks": None, "lab_installed": False}
    worst |= {
        "machine": told["machine"] | {"backend": "cpu"},
        "checkpoint": {"trained": False, "kind": "", "folder": None, "fault": "Mend x."},
    }
    cures = " ".join(info.cures(worst))
    for cure in ("apt-get install g++", "--model", "clone", ".[lab]", "Mend x."):
        assert cure in cures


def test_info_shows_a_checkpoint_whose_sampling_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    from breeze_lab import info

    (tmp_path / "waft").mkdir()
    (tmp_path / "waft" / "config.json").write_text("{}")
    (tmp_path / "waft" / "generation_config.json").write_text('{"top_p": 7}')
    monkeypatch.setattr(info, "data_folder", lambda: tmp_path)
    assert main(["info"]) == 0
    out = capfd.readouterr().out
    assert "sampling   unreadable" in out and "top_p 7 is not above 0" in out.split("cure", 1)[1]


def test_lab_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture):
    from breeze_lab.cli import lab

    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / lab.FIRST).write_text("{}")
    monkeypatch.setattr(lab, "notebooks_folder", lambda: tmp_path / "notebooks")
    words = lab.command(build_parser().parse_args(["lab", "--no-browser", "--port", "8123"]))
    first = f"--LabApp.default_url=/lab/tree/notebooks/{lab.FIRST}"
    assert {"--no-browser", "--port=8123", first, f"--ServerApp.root_dir={tmp_path}"} <= set(words)
    monkeypatch.setattr(lab, "notebooks_folder", lambda: None)
    assert main(["lab"]) == 2 and "was not found" in capfd.readouterr().err
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert main(["lab"]) == 2 and '".[lab]"' in capfd.readouterr().err


def test_bench_prints_one_object(capfd: pytest.CaptureFixture):
    assert main(["bench", "--shape", "tiny", "--methods", "device", "--frames", "4", "--rounds", "1", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert set(told) >= set("machine versions date command shape methods first_audio_s peers".split())
    row = told["methods"]["device"]
    assert row["frames"] == 4 and row["frame_ms"] > 0 and row["rtf"] > 0 and 4 <= row["host_reads"] <= 5
    assert told["command"].startswith("breeze-lab bench --shape tiny --methods device")


def test_bench_measures_mlx_audio_beside(capfd: pytest.CaptureFixture):
    pytest.importorskip("mlx_audio")
    words = ["bench", "--shape", "tiny", "--methods", "cached", "--peers", "--frames", "3", "--rounds", "1"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert "mlx-audio" in told["peers"] and told["versions"]["mlx-audio"]
    rows = [*told["methods"].values(), *told["peers"].values()]
    assert {row["frames"] for row in rows} == {3}  # the same seed ends at the same frame
    assert told["speedup_method"] == "host" and told["speedup_over_mlx_audio"] > 0


def test_a_ctrl_c_that_a_library_lets_pass_while_loading_still_stops(monkeypatch):
    def load(_source):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(parser, "load", load)
    with pytest.raises(KeyboardInterrupt):
        parser.load_told("folder")


@pytest.mark.parametrize(("terminal", "patience", "told"), [(True, 0, True), (True, 60, False), (False, 0, False)])
def test_a_slow_load_is_told_on_a_terminal_alone(monkeypatch, terminal, patience, told):
    said = threading.Event()

    class Screen(io.StringIO):
        def isatty(self):
            return terminal

        def write(self, text):
            written = super().write(text)
            said.set()
            return written

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(parser, "load", lambda source: (said.wait(30 if told else 0.2), source)[1])
    assert parser.load_told("folder", patience) == "folder"
    assert screen.getvalue() == (parser.SLOW_LOAD if told else "")
