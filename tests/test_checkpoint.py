"""Checkpoints: what loads, in which dtype, and what is refused."""

import json
import shutil

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import breeze_lab as bl
from breeze_lab.checkpoint import default_folder
from breeze_lab.weights import read_tensors, write_tensors

CODES = mx.array(np.random.default_rng(0).integers(0, 128, (1, 4, 16)))


def hidden(model):
    embedded = model.lm.embed_text(mx.array([model.tokens("[S0]One two three.")]))
    return model.lm.backbone_model(mx.concatenate([embedded, model.lm.embed_frames(CODES)], axis=1))


def gap(a, b):
    return float(mx.abs(a - b).max() / mx.abs(b).max())


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy to break."""
    return shutil.copytree(tiny_folder, tmp_path / "copy")


def change(folder, edit):
    """Edit the tensors of a checkpoint folder and write them as one file."""
    tensors = read_tensors(folder)
    mx.eval(tensors)
    for path in [*folder.glob("*.safetensors"), folder / "model.safetensors.index.json"]:
        path.unlink()
    edit(tensors)
    write_tensors(folder / "model.safetensors", tensors)


def test_dead_weights_are_never_loaded(folder):
    def edit(tensors):
        tensors["codec_model.encoder.weight"] = mx.zeros((3, 3))
        tensors["text_encoder.layers.0.self_attn.rotary_emb.inv_freq"] = mx.zeros((3,))
        tensors["backbone_model.embed_tokens.embed_audio_tokens.weight"] = mx.zeros((5, 5))  # stale: tied elsewhere

    change(folder, edit)
    names = {name for name, _ in tree_flatten(bl.load(folder).lm.parameters())}
    assert not any(
        name.startswith(("embed_text_tokens", "codec_model", "backbone_model.embed_tokens")) for name in names
    )


def test_the_tied_embedding_may_stand_under_either_name(folder, tiny):
    def edit(tensors):
        tied = tensors.pop("depth_decoder.model.embed_tokens.weight")
        tensors["backbone_model.embed_tokens.embed_audio_tokens.weight"] = tied

    change(folder, edit)
    assert gap(hidden(bl.load(folder)), hidden(tiny)) == 0


@pytest.mark.parametrize(("scheme", "bound"), [("int8-depth", 1e-6), ("int8", 0.03), ("mxfp8", 0.2), ("mxfp4", 0.9)])
def test_quantized_layouts_load_packed_and_dense(tiny_folder, tiny, tmp_path, scheme, bound):
    folder = bl.convert(tiny_folder, tmp_path / scheme, scheme)
    dense, packed = (bl.load(folder, dtype=dtype) for dtype in ("float32", "checkpoint"))
    assert {str(v.dtype) for _, v in tree_flatten(dense.lm.parameters())} == {"mlx.core.float32"}
    packed_names = [n for n, _ in tree_flatten(packed.lm.parameters()) if n.endswith(".scales")]
    only_depth = scheme == "int8-depth"
    assert len(packed_names) == (2 * 7 + 1 if only_depth else 3 * 7 + 2 * 7 + 2 * 7 + 1 + 1 + 2)
    assert all(name.startswith("depth_decoder.") for name in packed_names) == only_depth
    assert gap(hidden(dense), hidden(tiny)) <= bound
    assert (gap(hidden(dense), hidden(tiny)) == 0) == only_depth


def test_unpacked_weights_are_what_packed_layers_multiply_by(tiny_folder, tmp_path):
    folder = bl.convert(tiny_folder, tmp_path / "q", "int8")
    dense, packed = (
        bl.load(folder, dtype=d).lm.backbone_model.layers[0].mlp.up_proj for d in ("float32", "checkpoint")
    )
    x = mx.random.normal((5, 64), key=mx.random.key(0))
    np.testing.assert_allclose(np.array(dense(x)), np.array(packed(x)), rtol=1e-5, atol=1e-5)


def test_cpu_makes_bfloat16_float32_and_checkpoint_keeps_it(folder):
    change(folder, lambda tensors: tensors.update({k: v.astype(mx.bfloat16) for k, v in tensors.items()}))
    with mx.stream(mx.cpu):
        assert bl.load(folder, dtype="float32").dtype == mx.float32
        kept = bl.load(folder, dtype="checkpoint")
    assert kept.dtype == mx.bfloat16
    assert {str(v.dtype) for _, v in tree_flatten(kept.lm.parameters())} == {"mlx.core.bfloat16"}
    assert {str(v.dtype) for _, v in tree_flatten(kept.codec.parameters())} == {"mlx.core.float32"}


def test_per_layer_packing_in_the_config_wins(folder):
    path = "depth_decoder.model.layers.0.mlp.up_proj"

    def edit(tensors):
        weight = tensors.pop(f"{path}.weight")
        parts = mx.quantize(weight, group_size=32, bits=4)
        tensors |= {f"{path}.{k}": v for k, v in zip(("weight", "scales", "biases"), parts, strict=True)}

    change(folder, edit)
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": 64, "bits": 8, path: {"group_size": 32, "bits": 4}}
    (folder / "config.json").write_text(json.dumps(config))
    layer = bl.load(folder, dtype="checkpoint").lm.depth_decoder.model.layers[0].mlp.up_proj
    assert (layer.group_size, layer.bits) == (32, 4)
    assert bl.load(folder, dtype="float32").lm.depth_decoder.model.layers[0].mlp.up_proj.weight.shape == (128, 64)


def test_missing_and_unexpected_tensors_are_named(folder):
    def edit(tensors):
        del tensors["lm_head.weight"]
        tensors["backbone_model.layers.0.gadget.weight"] = mx.zeros((2, 2))

    change(folder, edit)
    with pytest.raises(
        bl.BreezeLabError, match=r"missing lm_head\.weight.*unexpected backbone_model\.layers\.0\.gadget"
    ):
        bl.load(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "audio_tokenizer/config.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(bl.BreezeLabError, match=name.rsplit("/")[-1]):
        bl.load(folder)


def test_a_codec_of_another_size_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    config["codec_config"]["codebook_size"] = 100
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(bl.BreezeLabError, match="16 codebooks of 128"):
        bl.load(folder)


@pytest.mark.parametrize(
    ("source", "message"),
    [("no/such/folder/at/all", "neither a folder nor a Hub id"), ("", "config.json"), ("plain", "neither")],
)
def test_what_is_not_a_checkpoint_is_refused(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bl.BreezeLabError, match=message):
        bl.load(source)


def test_an_unknown_dtype_is_refused(tiny_folder):
    with pytest.raises(bl.BreezeLabError, match="float64"):
        bl.load(tiny_folder, dtype="float64")


def test_the_start_token_is_put_where_a_tokenizer_does_not(tiny):
    assert tiny.tokens("[S0]a")[:2] == [2, tiny.tokenizer.token_to_id("[S0]")]
    tiny.tokenizer.no_truncation()
    bare = type(tiny.tokenizer).from_str(tiny.tokenizer.to_str())
    bare.post_processor = None
    from dataclasses import replace

    assert replace(tiny, tokenizer=bare).tokens("[S0]a") == tiny.tokens("[S0]a")


def test_seeds_of_random_checkpoints(tiny_folder, tmp_path):
    same = read_tensors(bl.make_checkpoint(tmp_path / "same", "tiny", seed=0))
    other = read_tensors(bl.make_checkpoint(tmp_path / "other", "tiny", seed=1))
    want = read_tensors(tiny_folder)
    assert all((same[k] == v).all() for k, v in want.items())
    assert any((other[k] != v).any() for k, v in want.items())


def test_a_folder_in_use_is_never_written(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    for make in (lambda: bl.make_checkpoint(tmp_path, "tiny"), lambda: bl.make_checkpoint(tmp_path / "x", "huge")):
        with pytest.raises(bl.BreezeLabError, match="not empty|Unknown shape"):
            make()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["precious.txt"]


def test_convert_refuses_what_is_packed_already(tiny_folder, tmp_path):
    once = bl.convert(tiny_folder, tmp_path / "once", "int8")
    with pytest.raises(bl.BreezeLabError, match="quantized already"):
        bl.convert(once, tmp_path / "twice", "mxfp4")
    assert not (tmp_path / "twice").exists()


def test_the_default_is_waft_or_a_random_checkpoint_that_says_so(monkeypatch, tmp_path):
    from breeze_lab import checkpoint

    monkeypatch.setattr(checkpoint, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(checkpoint, "make_checkpoint", lambda f, shape, seed: bl.make_checkpoint(f, "tiny", seed))
    with pytest.warns(UserWarning, match="not trained.*noise"):
        model = bl.load()
    assert not model.trained
    shutil.copytree(default_folder(), tmp_path / "waft")
    assert default_folder() == tmp_path / "waft"


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_a_seed_that_is_none_is_refused(tmp_path, seed):
    with pytest.raises(bl.BreezeLabError, match="seed"):
        bl.make_checkpoint(tmp_path / "x", "tiny", seed)
    assert not (tmp_path / "x").exists()


def test_convert_refuses_a_target_inside_its_source(folder):
    with pytest.raises(bl.BreezeLabError, match="outside"):
        bl.convert(folder, folder / "inside", "mxfp8")
    assert not (folder / "inside").exists()
