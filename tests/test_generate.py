"""Generation: streams equal the whole, generations do not disturb each other, dtypes are kept, ends are told."""

import copy
import itertools
import threading
import time
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import breeze_lab as bl
from breeze_lab.frames import usable
from breeze_lab.keys import KeySequence
from breeze_lab.loop import FrameLoop
from breeze_lab.measure.host_reads import count_host_reads
from breeze_lab.prompt import PromptBuilder
from breeze_lab.samplers import Sampling, reserved_mask

TEXT = "The salt breeze came across."


@pytest.fixture(scope="module")
def voice(tiny):
    rng = np.random.default_rng(0)
    return bl.Voice(codes=mx.array(rng.integers(0, 128, (9, 16)).astype(np.int32)), transcript="Words of a clip.")


def test_a_seed_repeats_and_seeds_differ(tiny):
    one, same, other = (bl.generate(tiny, TEXT, seed=s, max_frames=6) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.codes, same.codes)
    np.testing.assert_array_equal(one.samples, same.samples)
    assert one.codes.shape != other.codes.shape or (one.codes != other.codes).any()


def test_a_drawn_seed_is_reported_and_repeats(tiny):
    drawn = bl.generate(tiny, TEXT, max_frames=3)
    np.testing.assert_array_equal(bl.generate(tiny, TEXT, seed=drawn.seed, max_frames=3).codes, drawn.codes)


@pytest.mark.parametrize("options", [{}, {"instruct": "low voice", "cfg_scale": 2.0}])
def test_methods_give_the_same_speech(tiny, options):
    results = [bl.generate(tiny, TEXT, seed=4, max_frames=5, method=m, **options) for m in usable(tiny.lm)]
    for result in results[1:]:
        np.testing.assert_array_equal(result.codes, results[0].codes)
    frames = results[0].stats.frames
    reads = [17 * frames, 17 * frames, frames, 0]  # where the device is the host, it waits for nothing
    assert [r.stats.host_reads for r in results] == reads[: len(results)]


def test_the_device_loop_reads_the_host_once_a_frame(tiny):
    with count_host_reads() as reads:
        result = bl.generate(tiny, TEXT, seed=4, max_frames=8, method="device")
    assert result.stats.frames == 8
    assert reads.count <= 8 + 3  # and the samples of three chunks


@pytest.mark.parametrize("chunk_frames", [1, 2, 5, 25])
def test_chunks_joined_are_the_whole(tiny, chunk_frames):
    whole = bl.generate(tiny, TEXT, seed=9, max_frames=30)
    chunks = list(bl.stream_generate(tiny, TEXT, seed=9, max_frames=30, chunk_frames=chunk_frames))
    np.testing.assert_array_equal(np.concatenate([c.codes for c in chunks]), whole.codes)
    np.testing.assert_allclose(np.concatenate([c.samples for c in chunks]), whole.samples, atol=1e-5)
    assert [c.is_final for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [c.finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == whole.finish_reason
    assert len(whole.samples) == len(whole.codes) * 1920
    sizes = [len(c.codes) for c in chunks if not c.is_final]
    assert sizes == ([min(2, chunk_frames)] * (4 // min(2, chunk_frames)) + [chunk_frames] * 30)[: len(sizes)]
    assert sum(c.stats.host_reads for c in chunks) == whole.stats.host_reads


def test_interleaved_streams_equal_solo_ones(tiny, voice):
    requests = [{"seed": 1}, {"seed": 2, "voice": voice}, {"seed": 3, "instruct": "slow", "cfg_scale": 3.0}]
    solo = [bl.generate(tiny, TEXT, max_frames=9, **r) for r in requests]
    streams = [bl.stream_generate(tiny, TEXT, max_frames=9, chunk_frames=2, **r) for r in requests]
    rounds = list(itertools.zip_longest(*streams))
    for number, want in enumerate(solo):
        chunks = [r[number] for r in rounds if r[number] is not None]
        np.testing.assert_array_equal(np.concatenate([c.codes for c in chunks]), want.codes)
        np.testing.assert_allclose(np.concatenate([c.samples for c in chunks]), want.samples, atol=1e-5)


def test_a_worker_thread_gives_the_same_speech_whatever_the_global_seed(tiny):
    want = bl.generate(tiny, TEXT, seed=5, max_frames=4)
    results = []

    def work():
        mx.random.seed(99)
        results.append(bl.generate(tiny, TEXT, seed=5, max_frames=4))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(results[0].samples, want.samples)


def test_weights_are_not_touched(tiny):
    before = {k: np.array(v) for k, v in tree_flatten(tiny.lm.parameters())}
    bl.generate(tiny, TEXT, seed=1, max_frames=3)
    after = dict(tree_flatten(tiny.lm.parameters()))
    assert before.keys() == after.keys()
    assert all((np.array(after[k]) == before[k]).all() for k in before)


def favor(monkeypatch, code, bonus):
    """Raise one class of the backbone head, behind mask and penalty."""

    def favored(vocab_size, codec_vocab_size, width):
        plain = reserved_mask(vocab_size, codec_vocab_size, width)
        return plain + bonus * (mx.arange(width) == code) if width == vocab_size + 1 else plain

    monkeypatch.setattr("breeze_lab.loop.reserved_mask", favored)


def test_id_one_is_a_code_and_never_an_end(tiny, monkeypatch):
    favor(monkeypatch, 1, 1000.0)
    result = bl.generate(tiny, TEXT, max_frames=4, seed=0)
    assert result.finish_reason == "max_frames"
    assert result.codes[:, 0].tolist() == [1, 1, 1, 1]


def test_the_end_class_ends_speech_at_once(tiny, monkeypatch):
    favor(monkeypatch, tiny.config.eos_class, 1000.0)
    chunks = list(bl.stream_generate(tiny, TEXT, seed=0))
    assert len(chunks) == 1
    assert chunks[0].finish_reason == "eos"
    assert chunks[0].samples.shape == (0,)
    assert chunks[0].codes.shape == (0, 16)


def test_an_end_adds_no_frame_whatever_the_method(tiny, monkeypatch):
    favor(monkeypatch, tiny.config.eos_class, 3.0)
    ahead, one_by_one = (bl.generate(tiny, TEXT, seed=2, max_frames=60, method=m) for m in ("device", "cached"))
    assert ahead.finish_reason == one_by_one.finish_reason == "eos"
    assert 0 < len(ahead.codes) < 60
    np.testing.assert_array_equal(ahead.codes, one_by_one.codes)


def test_running_ahead_of_an_end_changes_no_draw_of_the_next_piece(tiny, monkeypatch):
    favor(monkeypatch, tiny.config.eos_class, 3.0)
    model = replace(tiny, config=replace(tiny.config, piece_letters=20))
    text = "First sentence here. Second one. And a third."
    ahead, one_by_one = (bl.generate(model, text, seed=2, max_frames=40, method=m) for m in ("device", "cached"))
    np.testing.assert_array_equal(ahead.codes, one_by_one.codes)


def test_the_penalty_keeps_codebook_zero_from_repeating(tiny):
    plain, penalized = (
        bl.generate(tiny, TEXT, seed=0, temperature=0.0, max_frames=12, repetition_penalty=p).codes for p in (1.0, 1e6)
    )
    assert len(set(penalized[:, 0].tolist())) == 12 > len(set(plain[:, 0].tolist()))


def test_reaching_the_limit_is_told(tiny):
    assert bl.generate(tiny, TEXT, seed=9, max_frames=2).finish_reason == "max_frames"


def test_cancel_stops_within_a_frame_and_keeps_what_was_made(tiny):
    stop, chunks = threading.Event(), []
    for chunk in bl.stream_generate(tiny, TEXT, seed=9, max_frames=100, chunk_frames=1, cancel=stop):
        chunks.append(chunk)
        if len(chunks) == 3:
            stop.set()
    assert chunks[-1].finish_reason == "cancelled"
    assert chunks[-1].is_final
    assert sum(len(c.codes) for c in chunks) in (3, 4)  # the next frame may be made while the codec works


def test_long_text_is_split_and_later_pieces_follow_the_first_voice(tiny, monkeypatch):
    model = replace(tiny, config=replace(tiny.config, piece_letters=20))
    anchors, texts = [], []
    set_voice, build = PromptBuilder.set_voice, PromptBuilder.build
    monkeypatch.setattr(PromptBuilder, "set_voice", lambda self, v: anchors.append(v) or set_voice(self, v))
    monkeypatch.setattr(PromptBuilder, "build", lambda self, t: texts.append(t) or build(self, t))
    chunks = list(bl.stream_generate(model, "First sentence here. Second one. And a third.", seed=1, max_frames=3))
    assert texts == ["First sentence here. ", "Second one. ", "And a third."]
    assert len(anchors) == 1
    assert anchors[0].transcript == "First sentence here."
    first = np.concatenate([c.codes for c in chunks if c.segment == 0])
    np.testing.assert_array_equal(np.array(anchors[0].codes), first)
    assert [c.is_final for c in chunks].count(True) == 1
    assert chunks[-1].is_final


def test_a_first_piece_that_runs_on_is_no_reference_for_the_next(tiny, monkeypatch):
    config = replace(tiny.config, piece_letters=20, max_positions=120)
    anchors = []
    monkeypatch.setattr(PromptBuilder, "set_voice", lambda self, v: anchors.append(v))
    result = bl.generate(replace(tiny, config=config), "First sentence here. Second one.", seed=2, max_frames=70)
    assert not anchors and result.finish_reason == "max_frames" and len(result.codes) > 100


def test_a_given_voice_stays_and_is_embedded_once(tiny, voice, monkeypatch):
    model = replace(tiny, config=replace(tiny.config, piece_letters=20))
    calls = []
    set_voice = PromptBuilder.set_voice
    monkeypatch.setattr(PromptBuilder, "set_voice", lambda self, v: calls.append(v) or set_voice(self, v))
    bl.generate(model, "First sentence here. Second one. And a third.", seed=1, max_frames=2, voice=voice)
    assert calls == [voice]


def test_stats_leave_out_the_time_that_a_consumer_keeps_a_chunk(tiny, monkeypatch):
    kept = 0.0
    clock = type("Clock", (), {"perf_counter": staticmethod(lambda: time.perf_counter() + kept)})
    monkeypatch.setitem(bl.generate.__globals__, "time", clock)
    stream = bl.stream_generate(tiny, TEXT, seed=9, max_frames=4, chunk_frames=2)
    first = next(stream)
    kept = 1e6
    second = next(stream)
    assert first.stats.seconds > 0
    assert second.stats.seconds < 1e5
    assert first.stats.first_audio_s == second.stats.first_audio_s == first.stats.seconds
    assert first.stats.audio_seconds == pytest.approx(0.16)


def test_progress_reports_frames(tiny):
    seen = []
    bl.generate(tiny, TEXT, seed=9, max_frames=4, progress=lambda done, expected: seen.append((done, expected)))
    assert [done for done, _ in seen] == [1, 2, 3, 4]
    assert all(expected >= done for done, expected in seen)


def in_bfloat16(model, stray=False):
    """The model with bfloat16 weights; `stray` leaves one float32 norm among them."""
    lm = type(model.lm)(model.config)
    weights = [(k, v.astype(mx.bfloat16)) for k, v in tree_flatten(model.lm.parameters())]
    lm.load_weights(weights)
    if stray:
        norm = lm.backbone_model.layers[1].input_layernorm
        norm.weight = norm.weight.astype(mx.float32)
    return replace(model, lm=lm, dtype=mx.bfloat16)


def dtypes(model):
    """Where bfloat16 could be lost: prompt, caches, hidden states, logits of both heads."""
    builder = PromptBuilder(model, instruct="softly", guided=True, speaker="S0")
    builder.set_voice(bl.Voice(codes=mx.zeros((4, 16), mx.int32), transcript="four frames"))
    prompt = builder.build(TEXT)
    loop = FrameLoop(model, KeySequence(0), Sampling(), 2.0, "device", 3, None)
    loop.prefill(prompt)
    list(loop.frames())
    depth = model.lm.depth_decoder
    caches = depth.make_cache()
    from breeze_lab.frames import start_frame, step_logits

    start_frame(depth, loop.maker.hidden[0], caches)
    logits = step_logits(depth, mx.array([3]), caches)
    return {
        "prompt": prompt.positive.dtype,
        "negative": prompt.negative.dtype,
        "hidden": loop.maker.hidden[0].dtype,
        "backbone cache": {c.keys.dtype for branch in loop.maker.caches for c in branch},
        "backbone values": {c.values.dtype for branch in loop.maker.caches for c in branch},
        "depth cache": {c.keys.dtype for c in caches},
        "depth logits": logits.dtype,
        "logits": model.lm.lm_head(loop.maker.hidden[0]).dtype,
    }


def test_bfloat16_stays_bfloat16(tiny):
    assert {str(d) for d in dtypes(in_bfloat16(tiny)).values()} == {"mlx.core.bfloat16", "{mlx.core.bfloat16}"}


def test_one_stray_float32_weight_is_seen(tiny):
    assert "mlx.core.float32" in str(dtypes(in_bfloat16(tiny, stray=True)))


def test_broken_weights_raise_a_named_error(tiny):
    for path in ("backbone_model", "depth_decoder"):
        lm = type(tiny.lm)(tiny.config)
        weights = dict(tree_flatten(tiny.lm.parameters()))
        name = next(k for k in weights if k.startswith(path) and "down_proj" in k)
        weights[name] = weights[name] * float("nan")
        lm.load_weights(list(weights.items()))
        with pytest.raises(bl.BreezeLabError, match="not numbers"):
            bl.generate(replace(tiny, lm=lm), TEXT, seed=0, max_frames=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": ""}, "text is empty"),
        ({"method": "warp"}, "recompute, cached, device"),
        ({"max_frames": 0}, "max_frames"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"top_p": 0}, "top_p"),
        ({"cfg_scale": 2.0}, "nothing to guide by"),
        ({"speaker": "S10"}, "S0 to S9"),
    ],
)
def test_bad_input_is_refused_when_called(tiny, options, message):
    arguments = {"text": TEXT} | options
    with pytest.raises(bl.BreezeLabError, match=message):
        bl.stream_generate(tiny, **arguments)


def test_a_prompt_that_fills_the_context_is_refused(tiny):
    voice = bl.Voice(codes=mx.zeros((2048, 16), mx.int32), transcript="far too long")
    with pytest.raises(bl.BreezeLabError, match="2048 positions"):
        bl.generate(tiny, TEXT, voice=voice, max_frames=2)


def test_text_that_the_front_end_cannot_read_is_refused_before_any_work(tiny):
    model = replace(tiny, config=replace(tiny.config, text_frontend="hibari_us", piece_letters=20))
    with pytest.raises(bl.BreezeLabError, match="cannot read"):
        bl.stream_generate(model, "An English sentence here. And another one. 你好")


def test_a_voice_by_name_is_refused_with_the_way_to_open_one(tiny):
    with pytest.raises(bl.BreezeLabError, match="str, not a Voice.*open_voice"):
        bl.generate(tiny, TEXT, voice="emma")


def test_a_copy_of_the_model_speaks_the_same_and_for_itself(tiny):
    copied = replace(tiny, lm=copy.deepcopy(tiny.lm))
    want = bl.generate(tiny, TEXT, seed=5, max_frames=4).codes
    np.testing.assert_array_equal(bl.generate(copied, TEXT, seed=5, max_frames=4).codes, want)
    head = copied.lm.lm_head
    head.weight = -head.weight
    assert (bl.generate(copied, TEXT, seed=5, max_frames=4).codes != want).any()
    np.testing.assert_array_equal(bl.generate(tiny, TEXT, seed=5, max_frames=4).codes, want)
