"""Measurements kept as JSON in `data/recorded/`: one file a run, with machine, versions, date and command.

A notebook shows them beside the live numbers, labelled; `label()` makes that label.
"""

import datetime
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BreezeLabError
from ..files import check_writable, whole_file
from ..paths import data_folder

KINDS = ("measured", "prototype", "reported")


@dataclass(frozen=True)
class Record:
    """One run.

    kind: "measured" (by `breeze-lab record`), "prototype" (by a study whose commands are not in this repository) or
    "reported" (published by others; `source` is the address).
    """

    name: str
    kind: str
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str  # YYYY-MM-DD
    command: str
    source: str
    shape: str  # tiny, small, full, or a checkpoint's name
    results: dict[str, Any] = field(default_factory=dict)

    def label(self) -> str:
        """Who measured this, where and when, for a legend or a table."""
        device = self.machine.get("device", "unknown machine")
        if self.kind == "reported":
            return f"{device}, as reported ({self.source})"
        busy = self.machine.get("busy_with_others", 0) > self.machine.get("cores", 1) + 1
        how = "prototype study" if self.kind == "prototype" else "recorded while busy" if busy else "recorded"
        return f"{device}, {how} {self.date}"


def folder() -> Path:
    return data_folder() / "recorded"


def load(name: str) -> Record:
    """Read `data/recorded/NAME.json`.

    Raises:
        BreezeLabError: no such record, or not one.
    """
    path = folder() / f"{name}.json"
    if not path.is_file():
        known = ", ".join(names()) or "none"
        raise BreezeLabError(f"There is no record {name!r} in data/recorded. Records: {known}.")
    return read(path)


def read(path: Path) -> Record:
    """Read one record file.

    Raises:
        BreezeLabError: not JSON, a missing or unknown key, or a value out of place.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        record = Record(name=Path(path).stem, **data)
    except (OSError, ValueError, TypeError) as error:
        raise BreezeLabError(f"{Path(path).name} is not a record: {error}. Make it by: breeze-lab record.") from None
    if record.kind not in KINDS:
        raise BreezeLabError(f"{Path(path).name}: kind {record.kind!r} is not one of {', '.join(KINDS)}.")
    datetime.date.fromisoformat(record.date)
    return record


def save(record: Record, path: Path | None = None) -> Path:
    """Write the record (atomically) to `path`, by default `data/recorded/NAME.json`."""
    path = check_output(path, record.name)
    data = {key: value for key, value in asdict(record).items() if key != "name"}
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def check_output(path: Path | None, name: str = "record") -> Path:
    """The file of a record, by default `data/recorded/NAME.json`; refused, before any work, if it cannot be written."""
    if path is None:
        folder().mkdir(parents=True, exist_ok=True)
        path = folder() / f"{name}.json"
    path = Path(path).expanduser()
    check_writable(path)
    return path


def names() -> list[str]:
    """Names of all records, in order."""
    return sorted(path.stem for path in folder().glob("*.json"))


def all_records(kind: str | None = None) -> list[Record]:
    return [r for r in map(load, names()) if kind in (None, r.kind)]
