"""BLAS takes all cores only where that pays, and gives them back."""

import numpy as np
import pytest

from breeze_lab import blas
from breeze_lab.cores import Cores


class Library:
    def __init__(self):
        self.threads = 4

    def set_num_threads(self, count):
        self.threads = count


@pytest.fixture
def run(monkeypatch):
    """Runs frames of given seconds on one core and on all; -> how many threads each frame had."""
    cores, library, clock = Cores(), Library(), [0.0]
    cores.libraries, cores.before = [library], [4]
    monkeypatch.setattr("breeze_lab.cores.time.perf_counter", lambda: clock[0])

    def frames(count, one, all_cores, walks=1):
        used = []
        for _ in range(count):
            with cores.over(walks):
                used.append(library.threads)
                clock[0] += one if library.threads == 1 else all_cores
            assert library.threads == 4, "given back"
        return used

    return frames


def test_free_cores_are_used_after_one_frame_alone(run):
    assert run(9, 2.0, 1.0) == [1] + 8 * [4]


def test_busy_cores_are_left_and_asked_again_more_and_more_seldom(run):
    used = run(300, 1.0, 5.0)
    assert [n for n, threads in enumerate(used) if threads == 4] == [1, 52, 253]


def test_cores_that_become_busy_are_left(run):
    run(9, 2.0, 1.0)
    assert run(3, 2.0, 9.0) == [4, 1, 1]


def test_two_sequences_may_take_twice_as_long(run):
    run(2, 2.0, 1.0)
    assert run(3, 4.0, 3.0, walks=2) == [4, 4, 4]


def test_numpys_own_blas_is_found_and_mlx_s_is_left_alone():
    cores = Cores()
    assert not any(blas.is_loaded(library.filepath) for library in cores.libraries)
    with cores:
        assert [library.get_num_threads() for library in cores.libraries] == [1] * len(cores.libraries)
        np.ones((4, 4)) @ np.ones(4)
    assert [library.get_num_threads() for library in cores.libraries] == cores.before
