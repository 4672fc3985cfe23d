"""codebooks: muting against decoding a zeroed quantizer by hand; streams against one shot; distances in plain dB."""

import mlx.core as mx
import mlx.utils
import numpy as np
import pytest

from breeze_lab.codec import load_codec, make_random_codec
from breeze_lab.codec.rvq import SplitRVQ
from breeze_lab.measure import codebooks


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codec") / "audio_tokenizer"
    make_random_codec(folder, "tiny", 0)
    return load_codec(folder)


@pytest.fixture
def codes(codec):
    return np.random.default_rng(0).integers(0, codec.codebook_size, (7, codec.num_codebooks)).astype(np.int32)


def test_first_codebooks_is_the_sum_of_the_first_entries():
    rvq = SplitRVQ(5, 9, 8, 4, semantic=1)
    rng = np.random.default_rng(1)
    rvq.update(mlx.utils.tree_map(lambda x: mx.array(rng.standard_normal(x.shape)), rvq.parameters()))
    ids = rng.integers(0, 9, (3, 5))
    before = np.array(rvq.decode(mx.array(ids)))

    class Holder:
        def modules(self):
            return [rvq]

    for count in (1, 3, 5):
        books = np.array(rvq.acoustic.codebooks)
        chosen = sum((books[level][ids[:, 1 + level]] for level in range(count - 1)), np.zeros((3, 4)))
        expected = (
            np.array(rvq.semantic.decode(mx.array(ids[:, :1]))) + chosen @ np.array(rvq.acoustic.output_proj.weight).T
        )
        with codebooks.first_codebooks(Holder(), count):
            got = np.array(rvq.decode(mx.array(ids)))
        np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_array_equal(np.array(rvq.decode(mx.array(ids))), before)


def test_all_codebooks_change_nothing_and_fewer_do(codec, codes):
    whole = np.array(codec.decode(mx.array(codes)))
    np.testing.assert_array_equal(codebooks.decode_first(codec, codes, codec.num_codebooks), whole)
    assert not np.array_equal(codebooks.decode_first(codec, codes, 1), whole)
    np.testing.assert_array_equal(np.array(codec.decode(mx.array(codes))), whole)


def test_chunks_with_state_are_one_shot_and_without_it_are_not(codec, codes):
    whole = np.array(codec.decode(mx.array(codes)))
    np.testing.assert_allclose(codebooks.decode_in_chunks(codec, codes, 2), whole, atol=1e-5)
    assert np.abs(codebooks.decode_in_chunks(codec, codes, 2, keep_state=False) - whole).max() > 1e-3


def test_spectral_distance_of_half_the_loudness_is_six_db():
    x = np.random.default_rng(0).standard_normal(24_000)
    assert codebooks.spectral_distance(x, x) == 0
    assert codebooks.spectral_distance(x / 2, x) == pytest.approx(6.02, abs=0.1)
