"""The backbone's walk in NumPy is MLX's, past the end of its first buffers too."""

import threading

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab import blas
from breeze_lab.host.frames import HostBackbone


@pytest.fixture
def threads():
    """Tells NumPy's BLAS threads; two of them before, and as they were afterwards."""
    before = [told() for told, _ in blas.numpys()]
    for _, set_threads in blas.numpys():
        set_threads(2)
    yield lambda: {told() for told, _ in blas.numpys()}
    for (_, set_threads), count in zip(blas.numpys(), before, strict=True):
        set_threads(count)


@pytest.mark.skipif(not blas.numpys(), reason="NumPy without an OpenBLAS of its own")
def test_numpy_works_on_one_thread_until_the_last_has_left(threads):
    assert threads() == {2}
    with blas.one_thread():
        assert threads() == {1}
    assert threads() == {2}
    first, second = blas.one_thread(), blas.one_thread()
    first.__enter__()
    with pytest.raises(ZeroDivisionError), second:
        first.__exit__(None, None, None)
        assert threads() == {1}, "one is still inside"
        raise ZeroDivisionError
    assert threads() == {2}


@pytest.mark.skipif(not blas.numpys(), reason="NumPy without an OpenBLAS of its own")
def test_a_worker_sets_it_too_after_the_main_thread_has(threads):
    with blas.one_thread():
        pass
    seen = []

    def work():
        with blas.one_thread():
            seen.append(threads())

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert seen == [{1}] and threads() == {2}


@pytest.mark.usefixtures("cpu_only")
def test_a_prompt_and_a_long_walk_equal_one_pass_over_all_positions(tiny):
    lm, rng = tiny.lm, np.random.default_rng(0)
    width = tiny.config.backbone.hidden_size
    prompts = [mx.array(rng.normal(size=(1, n, width)).astype(np.float32)) for n in (7, 11)]
    codes = mx.array(rng.integers(0, tiny.config.codec_vocab_size, (300, 16)))
    walk = HostBackbone(lm, prompts)
    steps = [walk.hidden, *(walk(frame) for frame in codes.tolist())]
    for branch, prompt in enumerate(prompts):
        whole = mx.concatenate([prompt, lm.embed_frames(codes[None])], axis=1)
        want = np.array(lm.backbone_model(whole))[0, prompt.shape[1] - 1 :]
        got = np.stack([hidden[branch] for hidden in steps])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
