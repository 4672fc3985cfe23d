"""Arguments of the wrong kind: refused with cause and cure, never a TypeError or AttributeError from inside."""

import shutil
import warnings

import mlx.core as mx
import numpy as np
import pytest

import breeze_lab as bl
from breeze_lab import audio, voices
from breeze_lab.files import as_path

NONSENSE = (
    None,
    3,
    2.5,
    b"x",
    [1],
    {},
    object(),
    lambda: 0,
    "no such thing",
    True,
    "a\0b",
    "~nobody-here/x",
    "n" * 9000,
)


@pytest.fixture(scope="module")
def clip():
    t = np.arange(24000) / 24000
    return (0.3 * np.sin(2 * np.pi * 120 * t) * (1 + np.sin(2 * np.pi * 3 * t))).astype(np.float32)


@pytest.fixture
def speak(tiny):
    """`stream_generate` with good arguments except those given; nothing is generated, it checks when called."""
    return lambda **given: bl.stream_generate(**{"model": tiny, "text": "Hello there.", "seed": 1} | given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bl.load(3), "the checkpoint is of type int, not a path"),
        (lambda: bl.load(b"x"), "the checkpoint is of type bytes, not a path"),
        (lambda: bl.load("~nobody-here/x"), "names a user without a home folder"),
        (lambda: bl.load("n" * 9000), "cannot be looked at .File name too long"),
        (lambda: bl.load("a\0b"), "zero byte"),
        (lambda: bl.generate("waft", "text"), r"model is of type str.*breeze_lab\.load"),
        (lambda: bl.Voice.load(None), "the voice file is of type NoneType, not a path"),
        (lambda: bl.Voice("codes", "words"), "codes .an mx.array. and words"),
        (lambda: bl.Voice(mx.zeros((2, 16), mx.int32), 3), "codes .an mx.array. and words"),
        (lambda: bl.Voice.from_audio("waft", "me.wav", "Words."), r"model is of type str.*breeze_lab\.load"),
        (lambda: bl.make_checkpoint(3), "the new folder is of type int, not a path"),
    ],
)
def test_cause_and_cure(call, message):
    with pytest.raises(bl.BreezeLabError, match=message):
        call()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": 3}, "text is of type int, not words"),
        ({"text": None}, "text is of type NoneType, not words"),
        ({"instruct": 3}, "instruct is of type int, not words"),
        ({"voice": 3}, "voice is of type int, not a Voice"),
        ({"method": 3}, "Unknown method 3. Choose one of recompute"),
        ({"method": ["device"]}, "Unknown method"),
        ({"cancel": True}, r"cancel is of type bool.*threading\.Event"),
        ({"progress": 3}, "progress is of type int.*function"),
        ({"speaker": 3}, "speaker 3"),
    ],
)
def test_cause_and_cure_of_a_request(speak, given, message):
    with pytest.raises(bl.BreezeLabError, match=message):
        speak(**given)


PARAMETERS = (
    "model text voice instruct cfg_scale seed temperature top_k top_p repetition_penalty max_frames method speaker "
    "cancel progress chunk_frames".split()
)


@pytest.mark.parametrize("name", PARAMETERS)
def test_no_nonsense_reaches_the_inside(speak, name):
    for value in NONSENSE:
        try:
            speak(**{name: value})
        except bl.BreezeLabError as error:
            assert len(str(error)) < 20_000 and str(error).endswith(".")


def test_nor_of_files_voices_and_sound(tiny, tiny_folder, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    voice = bl.Voice.from_audio(tiny, clip, "Some ten letters", sample_rate=24000)
    calls = {
        "load": bl.load,
        "load dtype": lambda x: bl.load(tiny_folder, dtype=x),
        "convert from": lambda x: bl.convert(x, tmp_path / "new", "int8"),
        "convert to": lambda x: bl.convert(tiny_folder, x, "int8"),
        "convert by": lambda x: bl.convert(tiny_folder, tmp_path / "new", x),
        "make": lambda x: bl.make_checkpoint(x, "tiny"),
        "make shape": lambda x: bl.make_checkpoint(tmp_path / "new", x),
        "make seed": lambda x: bl.make_checkpoint(tmp_path / "new", "nothing", x),
        "clone": lambda x: bl.Voice.from_audio(tiny, x, "Words."),
        "clone at 24 kHz": lambda x: bl.Voice.from_audio(tiny, x, "Words.", sample_rate=24000),
        "clone at a rate": lambda x: bl.Voice.from_audio(tiny, clip, "Words of a clip.", sample_rate=x),
        "clone said": lambda x: bl.Voice.from_audio(tiny, clip, x, sample_rate=24000),
        "save": voice.save,
        "voice": bl.Voice.load,
        "open": lambda x: voices.open_voice(tiny, x),
        "read": audio.read,
        "write to": lambda x: audio.write(x, clip),
        "write": lambda x: audio.write("x.wav", x),
        "write at": lambda x: audio.write("x.wav", clip, x),
        "player": audio.player,
    }
    for call in calls.values():
        for value in NONSENSE:
            if (call, value) == (bl.load, None):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    call(value)
                except bl.BreezeLabError as error:
                    assert str(error).endswith(".")
    assert {path.name for path in tmp_path.iterdir()} == {"x.wav", "no such thing"}


def test_a_reference_that_is_no_sound_is_not_asked_for_its_rate(tiny):
    with pytest.raises(bl.BreezeLabError, match="reference audio is of type NoneType"):
        bl.Voice.from_audio(tiny, None, "Words.")


def test_home_is_the_users(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").symlink_to(tiny_folder)
    assert bl.load("~/mine").name == "mine"
    assert as_path("~/x", "it") == as_path(tmp_path / "x", "it") == tmp_path / "x"


@pytest.mark.parametrize(
    "given",
    [
        {"seed": np.int64(1), "max_frames": np.int32(2)},
        {
            "temperature": np.float32(0.9),
            "top_k": np.int64(50),
            "top_p": np.float32(1),
            "repetition_penalty": np.int8(1),
        },
        {"instruct": "low", "cfg_scale": np.float32(2)},
    ],
)
def test_numpy_scalars_are_numbers(tiny, given):
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    both = [bl.generate(tiny, "Hello.", **({"seed": 1, "max_frames": 2} | options)) for options in (given, plain)]
    assert both[0].seed == 1 and type(both[0].seed) is int
    np.testing.assert_array_equal(both[0].codes, both[1].codes)


@pytest.mark.parametrize("rate", ["", "abc", "nan", "-1", "0"])
def test_a_voice_file_whose_frame_rate_is_none(tiny, clip, tmp_path, rate):
    path = bl.Voice.from_audio(tiny, clip, "Some ten letters", sample_rate=24000).save(tmp_path / "v.safetensors")
    tensors, about = mx.load(str(path), return_metadata=True)
    mx.save_safetensors(str(path), dict(tensors), about | {"frame_rate": rate})
    with pytest.raises(bl.BreezeLabError, match="frames a second"):
        bl.Voice.load(path)


def test_files_that_are_folders_and_an_index_of_numbers(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "copy")
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"lm_head.weight": 3}}')
    with pytest.raises(bl.BreezeLabError, match="no weight_map"):
        bl.load(folder)
    index.unlink()
    victim = sorted(folder.glob("*.safetensors"))[0]
    victim.unlink()
    victim.mkdir()
    with pytest.raises(bl.BreezeLabError, match="cannot be read .Is a directory"):
        bl.load(folder)


def test_whole_numbers_are_no_sound_to_write(tmp_path):
    with pytest.raises(bl.BreezeLabError, match="int16. Use audio.to_mono_float"):
        audio.write(tmp_path / "x.wav", np.full(2400, 900, np.int16))
    audio.write(tmp_path / "x.wav", audio.to_mono_float(np.full(2400, 900, np.int16)))


def test_a_rung_that_the_weights_cannot_take_is_refused(tiny_folder):
    model = bl.load(tiny_folder, dtype="bfloat16")
    with pytest.raises(bl.BreezeLabError, match="'host' needs a CPU, float32"):
        bl.stream_generate(model, "Hello there.", method="host")
