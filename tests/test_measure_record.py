"""record: a tiny run end to end through the command, read back; the shapes against the published sizes."""

import json

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.cache import bytes_per_position
from breeze_lab.errors import BreezeLabError
from breeze_lab.frames import METHODS
from breeze_lab.measure import record, recorded, roofline
from breeze_lab.measure.shapes import batch_step, random_stacks, shape_config


def test_full_shape_is_the_published_one():
    config = shape_config("full")
    assert roofline.stack_parameters(config.backbone) / 1e6 == pytest.approx(1409.4, abs=0.2)
    assert roofline.stack_parameters(config.depth) / 1e6 == pytest.approx(333.5, abs=0.1)
    assert (bytes_per_position(config.depth), bytes_per_position(config.backbone)) == (12_288, 114_688)
    with pytest.raises(BreezeLabError, match="tiny, small, full"):
        shape_config("huge")


def test_a_batch_of_voices_makes_what_each_makes_alone():
    stacks = random_stacks(shape_config("tiny"), mx.float32)
    one, three = (np.array(batch_step(stacks, n, mx.float32, context=8)()) for n in (1, 3))
    assert one.shape == (1, 16) and three.shape == (3, 16)
    np.testing.assert_array_equal(three, np.repeat(one, 3, axis=0))


def test_command_writes_a_record_that_reads_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "BATCHES", (1, 2))
    monkeypatch.setattr(record, "_bandwidth", lambda: {"add_float32": 1.0})
    path = tmp_path / "here.json"
    assert record.main(["--shape", "tiny", "--dtype", "float32", "--repeat", "1", "--out", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    got = recorded.read(path)
    assert told.pop("file") == str(path) and recorded.Record(**told | {"name": "here"}) == got
    assert got.kind == "measured" and got.shape == "tiny" and "--shape tiny" in got.command
    rungs = {method for method in METHODS if method != "host" or mx.default_device() == mx.cpu}
    assert set(got.results["ladder_ms"]) == set(got.results["ladder_cfg_ms"]) == rungs
    reads = got.results["ladder_reads"]
    assert reads["device"] == 1 and reads["cached"] == reads["recompute"] == 17
    assert set(got.results["batch_ms"]) == {"1", "2"}
    assert str(tmp_path) not in json.dumps(got.machine | got.versions)


def test_repeat_is_checked():
    with pytest.raises(BreezeLabError, match="--repeat 0"):
        record.main(["--repeat", "0"])
