"""serving: cases whose answer is plain."""

import pytest

from breeze_lab.measure.serving import most_voices, simulate


def test_a_frame_of_40_ms_whatever_the_batch_serves_all_that_fit_the_batch():
    times = {1: [0.04], 8: [0.04]}
    assert simulate(times, 8).late == 0
    assert most_voices(times, 64) >= 8


def test_sequential_work_of_20_ms_a_voice_serves_four():
    """80 ms a frame, 20 ms each: four voices fill the time exactly, five cannot be served."""
    times = {1: [0.02]}
    assert simulate(times, 3).late == 0
    assert most_voices(times, 20) in (3, 4)
    assert simulate(times, 6).late > 0.1


def test_too_slow_for_one_voice():
    assert most_voices({1: [0.1]}, 8) == 0
    assert simulate({1: [0.1]}, 1).late > 0.9


def test_first_audio_waits_for_the_buffer():
    assert simulate({1: [0.03]}, 1, buffer=2).first_audio_s == pytest.approx(0.06, abs=1e-3)
    assert simulate({1: [0.03]}, 1, buffer=4).first_audio_s == pytest.approx(0.12, abs=1e-3)


def test_buffers_hide_a_rare_slow_frame():
    times = {4: [0.03] * 49 + [0.15]}
    assert simulate(times, 4, buffer=1).late > simulate(times, 4, buffer=4).late


def test_same_seed_same_answer():
    times = {2: [0.03, 0.05, 0.09]}
    assert simulate(times, 3, seed=5) == simulate(times, 3, seed=5)


def test_a_larger_batch_that_happened_to_be_fast_saves_no_smaller_number():
    times = {1: [0.05], 2: [0.082], 4: [0.085], 8: [0.054], 16: [0.084]}
    assert simulate(times, 8).late == 0 and simulate(times, 3).late > 0.5
    assert most_voices(times, 16) == 1
