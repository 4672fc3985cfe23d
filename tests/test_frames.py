"""The ladder: the cached walk is the recompute walk, and keeping codes on the device changes no draw."""

import os
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map

from breeze_lab.checkpoint import load
from breeze_lab.errors import BreezeLabError
from breeze_lab.frames import METHODS, fastest, next_logits, start_frame, step_logits, usable
from breeze_lab.host import host
from breeze_lab.host.frames import HostDepth
from breeze_lab.host.stack import kept
from breeze_lab.kernels import _kernels, loops
from breeze_lab.keys import KeySequence
from breeze_lab.measure.host_reads import count_host_reads
from breeze_lab.measure.walks import as_dtype
from breeze_lab.reads import HostReads
from breeze_lab.samplers import CodeDraw, Sampling, reserved_mask


@pytest.fixture
def depth(tiny):
    return tiny.lm.depth_decoder


def hidden_states(seed, count=1):
    rng = np.random.default_rng(seed)
    return [mx.array(rng.normal(size=(1, 64)).astype(np.float32)) for _ in range(count)]


def frame(model, method, seed, branches, scale=2.0, **sampling):
    """Codes of one frame, and the host reads counted by the frame itself and by a counter outside."""
    config, reads = model.config, HostReads()
    mask = reserved_mask(config.vocab_size, config.codec_vocab_size, config.vocab_size)
    draw = CodeDraw(KeySequence(seed), Sampling(**sampling), mask)
    first = mx.array([seed % config.codec_vocab_size])
    mx.eval(first, branches)
    with count_host_reads() as outside:
        codes = METHODS[method](model.lm.depth_decoder, first, branches, draw, scale, reads)
    return np.array(codes), reads.count, outside.count


def test_every_head_of_the_cached_walk_equals_the_recomputed_one(depth):
    (hidden,) = hidden_states(0)
    codes = mx.array(np.random.default_rng(1).integers(0, 128, (1, 15)))
    caches = depth.make_cache()
    start_frame(depth, hidden, caches)
    for n in range(1, 16):
        assert {cache.offset for cache in caches} == {n}  # one position a step
        step = np.array(step_logits(depth, codes[:, n - 1], caches))
        whole = np.array(next_logits(depth, codes[:, :n], hidden))
        np.testing.assert_allclose(step, whole, rtol=1e-5, atol=1e-5 * np.abs(whole).max())
    assert {cache.offset for cache in caches} == {16}


def test_logits_depend_on_every_code_before_them(depth):
    (hidden,) = hidden_states(0)
    codes = np.random.default_rng(2).integers(0, 128, (1, 15))
    base = np.array(next_logits(depth, mx.array(codes), hidden))
    for position in range(15):
        changed = codes.copy()
        changed[0, position] = (changed[0, position] + 1) % 128
        assert np.abs(np.array(next_logits(depth, mx.array(changed), hidden)) - base).max() > 1e-3


@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_all_rungs_draw_the_same_codes(tiny, branches, seed):
    hidden = hidden_states(seed, branches)
    want, _, _ = frame(tiny, "recompute", seed, hidden)
    for method in usable(tiny.lm):
        codes, _, _ = frame(tiny, method, seed, hidden)
        np.testing.assert_array_equal(codes, want, err_msg=method)


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"top_k": 0}, {"top_p": 0.6}, {"temperature": 2.0, "top_k": 3}]
)
def test_draws_in_numpy_are_those_of_mlx_with_every_filter(tiny, sampling):
    for seed in range(6):
        hidden = hidden_states(seed)
        np.testing.assert_array_equal(
            frame(tiny, "host", seed, hidden, **sampling)[0], frame(tiny, "device", seed, hidden, **sampling)[0]
        )


@pytest.mark.usefixtures("cpu_only")
def test_the_host_walks_by_the_weights_of_now(tiny):
    (hidden,) = hidden_states(1)
    before = frame(tiny, "host", 1, [hidden])[0]
    norm = tiny.lm.depth_decoder.model.norm
    whole, norm.weight = norm.weight, norm.weight * mx.array(np.linspace(-1, 1, norm.weight.size, dtype=np.float32))
    try:
        after = frame(tiny, "host", 1, [hidden])[0]
        np.testing.assert_array_equal(after, frame(tiny, "device", 1, [hidden])[0])
        assert (after != before).any()
    finally:
        norm.weight = whole


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize("written", ["in place", "another view of the same memory"])
def test_the_host_notices_a_weight_that_stays_where_it_was(tiny_folder, written):
    model, (hidden,) = load(tiny_folder), hidden_states(1)
    before = frame(model, "host", 1, [hidden])[0]
    heads = model.lm.depth_decoder.codebooks_head
    if written == "in place":
        heads.weight[3] = heads.weight[4]
    else:
        heads.weight = heads.weight[::-1]
    after = frame(model, "host", 1, [hidden])[0]
    np.testing.assert_array_equal(after, frame(model, "device", 1, [hidden])[0])
    assert (after != before).any()


@pytest.mark.usefixtures("cpu_only")
def test_weights_of_sixteen_bits_are_read_as_such_and_others_whole(tiny, tiny_folder):
    assert kept(tiny.lm.depth_decoder, HostDepth).stack.gate_up.dtype == np.uint16
    odd = load(tiny_folder)
    odd.lm.update(tree_map(lambda array: array * 1.001, odd.lm.parameters()))
    walk = kept(odd.lm.depth_decoder, HostDepth)
    assert {m.dtype for m in (walk.stack.qkv, walk.stack.down, walk.heads, walk.projector)} == {np.dtype(np.float32)}
    for seed in range(3):
        hidden = hidden_states(seed, 2)
        np.testing.assert_array_equal(frame(odd, "host", seed, hidden)[0], frame(odd, "device", seed, hidden)[0])


@pytest.mark.parametrize("fault", ["missing", "broken", "switched off"])
def test_without_numba_that_works_the_host_is_no_rung(tiny, tiny_folder, monkeypatch, fault):
    if fault == "switched off":
        monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    else:
        names = {"missing": "numba", "broken": "breeze_lab.kernels.cpu"}
        monkeypatch.setitem(sys.modules, names[fault], None)
    _kernels.cache_clear()
    try:
        assert fastest(tiny.lm) == fastest(load(tiny_folder).lm) == "device"
        with pytest.raises(BreezeLabError, match="needs Numba: "):
            loops()
    finally:
        _kernels.cache_clear()


@pytest.mark.usefixtures("cpu_only")
def test_weights_that_are_transposed_views_are_walked_too(tiny, tiny_folder):
    odd = load(tiny_folder)
    for layer in (
        odd.lm.depth_decoder.model.layers[0].self_attn.o_proj,
        odd.lm.depth_decoder.model.layers[1].mlp.down_proj,
    ):
        layer.weight = mx.array(np.array(layer.weight).T.copy()).T
    hidden = hidden_states(4)
    np.testing.assert_array_equal(frame(odd, "host", 4, hidden)[0], frame(tiny, "device", 4, hidden)[0])


def test_a_damaged_cache_of_compiled_loops_does_no_harm(tmp_path):
    code = "import numba; from breeze_lab.kernels import why_not; print(why_not() or 'works')"
    words = {
        "env": os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        "capture_output": True,
        "text": True,
        "timeout": 240,
    }
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], check=False, **words)
        assert (done.stdout, done.stderr) == ("works\n", "")
        kept_files = list(tmp_path.rglob("*.nbi"))
        assert kept_files
        for path in kept_files:
            path.write_bytes(b"")


@pytest.mark.usefixtures("cpu_only")
def test_only_float32_on_a_cpu_is_walked_on_the_host(tiny):
    assert usable(tiny.lm) == list(METHODS) and fastest(tiny.lm) == "host"
    depth = as_dtype(tiny.lm.depth_decoder, mx.bfloat16)
    assert usable(depth) == ["recompute", "cached", "device"] and fastest(depth) == "device"
    with pytest.raises(BreezeLabError, match="float32"):
        host(depth, mx.array([1]), [], None, 1.0, HostReads())


@pytest.mark.parametrize(("method", "reads"), [("recompute", 16), ("cached", 16), ("device", 0), ("host", 2)])
def test_host_reads_of_a_frame_by_an_independent_counter(tiny, method, reads):
    if method not in usable(tiny.lm):
        pytest.skip("MLX computes on a GPU here")
    _, own, outside = frame(tiny, method, 3, hidden_states(3))
    assert own == outside == reads


def test_guidance_scale_one_is_the_conditional_branch_and_zero_the_other(tiny):
    cond, uncond = hidden_states(5, 2)
    alone, other = frame(tiny, "device", 5, [cond])[0], frame(tiny, "device", 5, [uncond])[0]
    np.testing.assert_array_equal(frame(tiny, "device", 5, [cond, uncond], scale=1.0)[0], alone)
    np.testing.assert_array_equal(frame(tiny, "device", 5, [cond, uncond], scale=0.0)[0], other)
    assert (alone != other).any()


def test_frames_share_nothing(tiny):
    hidden = hidden_states(7)
    before, _, _ = frame(tiny, "device", 7, hidden)
    frame(tiny, "device", 8, hidden_states(8))
    after, _, _ = frame(tiny, "device", 7, hidden)
    np.testing.assert_array_equal(before, after)
