"""Imports run one way, down: what DESIGN and CONTRIBUTING promise, read from the source itself."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "breeze_lab"
# From the ground up; a file may import its own floor and those below.
FLOORS = [
    {"errors", "blas", "paths", "process", "files", "audio", "beside", "keys", "kernels"},
    {"config", "weights", "cache", "reads", "samplers", "generation_config", "layers", "gelu", "text"},
    {"codec"},
    {"model"},
    {"voice", "host", "frames", "random_checkpoint", "convert", "hub"},
    {"checkpoint", "prompt", "voices"},
    {"checks", "loop", "generate"},
    {"measure", "plots", "training"},
    {"widgets", "bench", "info"},
    {"cli", "__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def rooms() -> list[str]:
    return sorted(
        {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()} - {"__init__", "__pycache__"}
    )


def imported_rooms(path: Path) -> set[str]:
    """Rooms of the package that a file imports, those only for type checking left out."""
    own = path.relative_to(PACKAGE.parent).with_suffix("").parts
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.ImportFrom):
            base = ".".join(own[: len(own) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = []
        for name in names:
            parts = name.split(".")
            if parts[0] == "breeze_lab" and len(parts) > 1 and parts[1] in FLOOR:
                found.add(parts[1])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def test_every_room_has_a_floor():
    known = {room for room in rooms() if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()}
    assert known - set(FLOOR) == set()


@pytest.mark.parametrize("room", sorted(FLOOR))
def test_imports_run_down(room: str):
    paths = sorted((PACKAGE / room).rglob("*.py")) or [p for p in [PACKAGE / f"{room}.py"] if p.is_file()]
    for path in paths:
        for other in imported_rooms(path) - {room}:
            assert FLOOR[other] <= FLOOR[room], f"{path.relative_to(PACKAGE)} imports {other}, which stands above it"


def test_codec_never_imports_model():
    assert all("model" not in imported_rooms(path) for path in (PACKAGE / "codec").rglob("*.py"))


def test_the_library_never_prints():
    printers = {"cli", "training"}
    for path in PACKAGE.rglob("*.py"):
        if printers & set(path.relative_to(PACKAGE).parts) or path.match("bench/clock.py"):
            continue
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        assert not any(isinstance(func, ast.Name) and func.id == "print" for func in calls), path
