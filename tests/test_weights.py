"""Files and modules that do not fit are refused, each fault named."""

import json
import re

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from breeze_lab.errors import BreezeLabError
from breeze_lab.weights import assign, read_json, read_tensors, write_tensors


@pytest.fixture
def file(tmp_path):
    write_tensors(tmp_path / "model.safetensors", {"a": mx.arange(1000.0), "b": mx.ones((2, 3), mx.bfloat16)})
    return tmp_path / "model.safetensors"


def test_tensors_come_back_with_their_dtype(file):
    tensors = read_tensors(file.parent)
    assert tensors["a"].tolist() == list(range(1000))
    assert tensors["b"].dtype == mx.bfloat16
    assert [p.name for p in file.parent.iterdir()] == ["model.safetensors"]  # no temporary file left


@pytest.mark.parametrize("keep", [0, 4, 60, 200, 3000, -1])
def test_a_truncated_file_is_refused(file, keep):
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BreezeLabError, match=r"(truncated|not a safetensors file).*again"):
        read_tensors(file.parent)


def test_a_file_of_something_else_is_refused(file):
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n" * 9)
    with pytest.raises(BreezeLabError, match="not a safetensors file"):
        read_tensors(file.parent)


def test_a_shard_that_the_index_names_must_be_there(file):
    index = {"weight_map": {"a": "model.safetensors", "c": "model-00002.safetensors"}}
    (file.parent / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BreezeLabError, match="lacks model-00002.safetensors"):
        read_tensors(file.parent)


def test_an_index_that_leads_out_of_its_folder_is_refused(file):
    (file.parent / "inner").mkdir()
    for name in ("../inner/model.safetensors", str(file), "inner/../model.safetensors"):
        (file.parent / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(BreezeLabError, match="not a file beside it"):
            read_tensors(file.parent)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(BreezeLabError, match="no .safetensors"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff"])
def test_broken_json_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BreezeLabError, match=re.escape(str(path))):
        read_json(path)


def test_assign_names_every_fault_and_changes_nothing():
    module = nn.Linear(3, 2)
    before = dict(tree_flatten(module.parameters()))
    with pytest.raises(
        BreezeLabError, match=r"there.*missing bias.*unexpected extra.*weight is \[3, 2\], not \[2, 3\]"
    ):
        assign(module, {"weight": mx.zeros((3, 2)), "extra": mx.zeros(1)}, "there")
    assert all((before[k] == v).all() for k, v in tree_flatten(module.parameters()))
