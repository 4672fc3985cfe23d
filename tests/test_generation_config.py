"""A checkpoint's own sampling: read from the standard file, carried along, drawn by, overridden one by one."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

import breeze_lab as bl
from breeze_lab.generation_config import NAME, described, read_sampling, write_sampling
from breeze_lab.samplers import Sampling

TEXT = "The salt breeze came across."
# The kinds of keys that published files of such models hold beside the four.
PUBLISHED = {
    "_from_model_config": True,
    "bos_token_id": 2,
    "depth_decoder_do_sample": True,
    "depth_decoder_max_new_tokens": 15,
    "depth_decoder_temperature": 0.9,
    "do_sample": True,
    "eos_token_id": [1, 106],
    "max_new_tokens": 750,
    "pad_token_id": 0,
    "transformers_version": "5.0.0",
}


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ({}, Sampling(0.9, 50, 1.0, 1.1)),
        ({"temperature": 0.5, "top_k": 7, "top_p": 0.8, "repetition_penalty": 1}, Sampling(0.5, 7, 0.8, 1.0)),
        ({"temperature": 0.5, "top_k": None}, Sampling(temperature=0.5)),
        (PUBLISHED | {"top_p": 0.95}, Sampling(top_p=0.95)),
        ({"do_sample": False, "temperature": 0.7, "top_k": 3}, Sampling(temperature=0, top_k=3)),
    ],
)
def test_the_four_are_read_and_the_rest_is_no_matter(tmp_path, data, want):
    (tmp_path / NAME).write_text(json.dumps(data))
    assert read_sampling(tmp_path) == want


def test_without_the_file_it_is_the_big_models(tmp_path):
    assert asdict(read_sampling(tmp_path)) == dict(temperature=0.9, top_k=50, top_p=1.0, repetition_penalty=1.1)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.0, 0, 0.5, 2.0)])
def test_what_is_written_is_read(tmp_path, sampling):
    write_sampling(tmp_path, sampling)
    assert read_sampling(tmp_path) == sampling
    assert json.loads((tmp_path / NAME).read_text())["do_sample"] == (sampling.temperature > 0)  # as others read it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"temperature": -1}', "temperature -1 is not"),
        ('{"temperature": NaN}', "temperature nan is not"),
        ('{"temperature": "hot"}', "temperature hot is not"),
        ('{"top_k": -1}', "top_k -1 is not"),
        ('{"top_k": 2.5}', "top_k 2.5 is not"),
        ('{"top_p": 0}', "top_p 0 is not"),
        ('{"repetition_penalty": 0}', "repetition_penalty 0 is not"),
        ("[1]", "not a JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_a_wrong_file_stops_loading_and_is_named(tiny_folder, tmp_path, text, message):
    folder = shutil.copytree(tiny_folder, tmp_path / "copy")
    (folder / NAME).write_text(text)
    with pytest.raises(bl.BreezeLabError, match=f"{NAME}.*{message}"):
        bl.load(folder)


def test_load_keeps_it_and_copies_carry_it(tiny_folder, tiny, tmp_path):
    assert (tiny_folder / NAME).is_file() and tiny.sampling == Sampling()  # a random checkpoint says the usual
    folder = shutil.copytree(tiny_folder, tmp_path / "copy")
    own = Sampling(0.5, 9, 0.9, 1.0)
    write_sampling(folder, own)
    assert bl.load(folder).sampling == own
    assert bl.load(bl.convert(folder, tmp_path / "q", "int8")).sampling == own


HOT, COLD = Sampling(1.3, 20, 0.8, 3.0), Sampling(0.0, 20, 0.8, 3.0)


@pytest.mark.parametrize(
    ("own", "given", "drawn_by"),
    [
        (HOT, {}, HOT),
        (COLD, {}, COLD),
        (COLD, {"temperature": 1.3}, HOT),
        (HOT, {"temperature": 0}, COLD),
        (HOT, {"top_k": 0}, replace(HOT, top_k=0)),
        (HOT, {"top_p": 1, "repetition_penalty": 1.1}, Sampling(1.3, 20)),
    ],
)
def test_generate_draws_by_it_and_a_number_overrides_that_one_alone(tiny, own, given, drawn_by):
    def codes(model, options):
        return bl.generate(model, TEXT, seed=3, max_frames=6, **options).codes

    got = codes(replace(tiny, sampling=own), given)
    np.testing.assert_array_equal(got, codes(tiny, asdict(drawn_by)))
    assert not np.array_equal(got, codes(tiny, {}))


def test_a_wrong_number_is_refused_over_the_checkpoints_own(tiny):
    with pytest.raises(bl.BreezeLabError, match="top_p 2 is not"):
        bl.stream_generate(tiny, TEXT, top_p=2)


def test_in_words():
    assert described(Sampling(0.5, 50, 1.0, 1.1)) == "temperature 0.5, top-k 50, top-p 1, repetition penalty 1.1"
