"""recorded: round trip, refusals, and the files that are shipped."""

import dataclasses
import json

import pytest

from breeze_lab.errors import BreezeLabError
from breeze_lab.measure import recorded
from breeze_lab.measure.recorded import Record

RECORD = Record(
    "box", "measured", {"device": "Box 9"}, {"mlx": "1"}, "2026-12-01", "breeze-lab record", "", "tiny", {"a": [1.5]}
)


def test_round_trip(tmp_path):
    path = recorded.save(RECORD, tmp_path / "box.json")
    assert recorded.read(path) == RECORD and [p.name for p in tmp_path.iterdir()] == ["box.json"]
    assert RECORD.label() == "Box 9, recorded 2026-12-01"
    busy = dataclasses.replace(RECORD, machine={"device": "Box 9", "cores": 2, "busy_with_others": 7.5})
    assert busy.label() == "Box 9, recorded while busy 2026-12-01"


@pytest.mark.parametrize(
    "change", [{"kind": "guessed"}, {"date": "yesterday"}, {"surprise": 1}, {"machine": None, "date": 3}], ids=str
)
def test_what_is_no_record_is_refused(tmp_path, change):
    data = json.loads(recorded.save(RECORD, tmp_path / "box.json").read_text())
    (tmp_path / "bad.json").write_text(json.dumps(data | change))
    with pytest.raises((BreezeLabError, ValueError, TypeError)):
        recorded.read(tmp_path / "bad.json")


def test_unknown_name_lists_the_known():
    with pytest.raises(BreezeLabError, match="no record 'nobody'"):
        recorded.load("nobody")


@pytest.mark.parametrize("name", recorded.names())
def test_shipped_records_say_what_they_are(name):
    record = recorded.load(name)
    assert record.machine["device"] and record.results
    if record.kind == "measured":
        assert record.command.startswith(("breeze-lab record", "python -m breeze_lab.measure.record"))
        assert record.versions["mlx"]
    elif record.kind == "reported":
        assert record.source.startswith("https://")
    else:
        assert "not in this repository" in record.source
