"""pyproject.toml, environment.yml, README and CI say the same; the package installs what it needs and no more."""

import re
import shlex
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import soundfile
import yaml
from packaging.requirements import Requirement

import breeze_lab
from breeze_lab.cli import build_parser

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text()
LAB = 'python -m pip install -e ".[lab]" && breeze-lab lab'
TEST = 'python -m pip install -e ".[lab,test]" && pytest'


def requirements() -> list[Requirement]:
    return [Requirement(line) for group in [PROJECT["dependencies"], *EXTRAS.values()] for line in group]


def test_floors_and_no_pins():
    for requirement in requirements():
        operators = {specifier.operator for specifier in requirement.specifier}
        if requirement.name == "mlx-audio":  # the peer that parity is stated against; only in the extra `test`
            assert operators == {"=="} and str(requirement) in EXTRAS["test"]
        else:
            assert operators == {">="}, f"{requirement} needs a floor and nothing else"
        assert requirement.url is None


def test_extras_and_platforms():
    assert {"lab", "test", "cuda", "train", "hub"} <= set(EXTRAS)
    for platform, wanted in {"linux": {"mlx", "mlx[cpu]", "cmeel-openblas"}, "darwin": {"mlx"}}.items():
        needed = [
            f"{r.name}[{','.join(r.extras)}]" if r.extras else r.name
            for r in map(Requirement, PROJECT["dependencies"])
            if r.marker is None or r.marker.evaluate({"sys_platform": platform})
        ]
        assert {name for name in needed if name.startswith(("mlx", "cmeel"))} == wanted
    heavy = {"torch", "transformers", "mlx-audio", "mlx-lm", "librosa", "huggingface-hub", "scipy", "matplotlib"}
    assert not heavy & {Requirement(line).name for line in PROJECT["dependencies"]}
    assert PROJECT["license"] == "MIT" and (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert (ROOT / "breeze_lab" / "py.typed").is_file()


def test_conda_brings_python_and_pip_brings_the_rest():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [line for line in environment["dependencies"] if isinstance(line, str)]
    (pip,) = [line["pip"] for line in environment["dependencies"] if isinstance(line, dict)]
    assert pip == ["-e .[lab,test]"]
    assert f"python{PROJECT['requires-python']}" in plain
    named = {Requirement(line).name for line in plain}
    assert not named & {r.name for r in requirements()}  # versions of packages live in pyproject.toml alone
    assert all(not Requirement(line).specifier for line in plain if not line.startswith("python"))


def test_one_version():
    assert PROJECT["version"] == breeze_lab.__version__ == version("breeze-lab")


def test_no_index_and_no_machine_is_named():
    marks = re.compile(r"--(extra-)?index-url|--find-links|/simple/|file:///|(?<![\w.])/(root|work|home)/\w")
    suffixes = {".py", ".toml", ".yml", ".md", ".cfg", ".json", ".ipynb", ".js", ""}
    skip = {".git", ".venv", "venv", "shared", "node_modules", "build", "dist"}
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.suffix not in suffixes or skip & set(parts) or not path.is_file() or path == Path(__file__):
            continue
        if any(part.startswith(".") and part != ".ci" for part in parts) or path.stat().st_size > 5e6:
            continue
        found = marks.search(path.read_text(encoding="utf-8", errors="replace"))
        assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]}"


def test_the_two_commands_stand_in_the_readme_and_ci_runs_the_second():
    lines = README.splitlines()
    assert LAB in lines and TEST in lines
    ci = (ROOT / ".ci" / "run").read_text()
    pattern = re.search(r"grep -m1 -E '(.+)' README.md", ci)
    assert pattern and [line for line in lines if re.search(pattern[1], line)] == [TEST]


def documented_commands() -> list[str]:
    """Every breeze-lab command of a code block or of `code` in README and CONTRIBUTING."""
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)) + "\n"
    blocks += "\n".join(re.findall(r"(?<!`)`(breeze-lab [^`]+)`", text))
    return sorted(set(re.findall(r"breeze-lab [^\n|<#&;]*", blocks)))


@pytest.mark.parametrize("command", documented_commands())
def test_documented_commands_parse(command: str):
    args = build_parser().parse_args(shlex.split(command)[1:])
    assert callable(args.run)


def test_the_readmes_python_runs(tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(breeze_lab, "load", lambda: tiny)
    short = {"max_frames": 6}
    for name in ("generate", "stream_generate"):
        whole = getattr(breeze_lab, name)
        monkeypatch.setattr(breeze_lab, name, lambda *a, whole=whole, **k: whole(*a, **(k | short)))
    exec(compile(code, "README.md", "exec"), {})
    assert soundfile.info("breeze.wav").samplerate == 24000 and Path("me.safetensors").is_file()
    assert "recompute" in capsys.readouterr().out


def test_public_names():
    """The surface grows by decision, not by accident."""
    assert sorted(breeze_lab.__all__) == sorted(
        "BreezeLabError Chunk Result Stats Voice convert generate load make_checkpoint stream_generate".split()
    )
    assert all(hasattr(breeze_lab, name) for name in breeze_lab.__all__)
