"""The backbone's walk in NumPy is MLX's, past the end of its first buffers too."""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab import blas
from breeze_lab.host import HostBackbone


def test_numpy_works_on_one_thread_and_gets_its_threads_back():
    libraries = blas._numpys()
    before = [library.get_num_threads() for library in libraries]
    with pytest.raises(ZeroDivisionError), blas.one_thread():
        assert [library.get_num_threads() for library in libraries] == [1] * len(libraries)
        raise ZeroDivisionError
    assert [library.get_num_threads() for library in libraries] == before
    assert "numpy" in "".join(library.filepath for library in libraries) or not libraries


def test_a_long_walk_equals_one_pass_over_all_positions(tiny):
    lm, rng = tiny.lm, np.random.default_rng(0)
    prompt = mx.array(rng.normal(size=(1, 7, tiny.config.backbone.hidden_size)).astype(np.float32))
    codes = mx.array(rng.integers(0, tiny.config.codec_vocab_size, (300, 16)))
    caches = lm.backbone_model.make_cache()
    mx.eval(lm.backbone_model(prompt, caches))
    walk = HostBackbone(lm.backbone_model, lm.depth_decoder, [caches, caches])
    steps = [walk(frame) for frame in codes]
    want = np.array(lm.backbone_model(mx.concatenate([prompt, lm.embed_frames(codes[None])], axis=1)))[0, 7:]
    for branch in range(2):
        got = np.concatenate([np.array(hidden[branch]) for hidden in steps])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    assert caches[0].offset == 7, "MLX's caches are left alone"
