"""Calls in a thread of its own: in order, with their results and errors, until closed or forgotten."""

import gc
import subprocess
import sys
import threading

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.beside import Beside


def test_calls_run_in_one_other_thread_in_order():
    beside, seen = Beside(), []
    futures = [beside(lambda n=n: seen.append((n, threading.get_ident())) or n) for n in range(20)]
    assert [future.result() for future in futures] == list(range(20)) == [n for n, _ in seen]
    assert len({thread for _, thread in seen} - {threading.get_ident()}) == 1
    beside.close()


def test_what_a_call_raises_its_result_raises_and_the_next_call_runs():
    beside = Beside()
    failed, after = beside(lambda: 1 / 0), beside(lambda: 2)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert after.result() == 2
    beside.close()


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_the_thread_ends(how):
    before = threading.active_count()
    beside = Beside()
    assert threading.active_count() == before + 1
    if how == "closed":
        beside.close()
    del beside
    gc.collect()
    assert threading.active_count() == before


def test_a_call_goes_on_from_arrays_that_the_one_before_left_uncomputed():
    beside = Beside()
    lazy = beside(lambda: mx.arange(4) + 1).result()
    np.testing.assert_array_equal(beside(lambda: np.array(lazy * 2)).result(), [2, 4, 6, 8])
    beside.close()


def test_an_interpreter_ends_well_with_a_thread_at_work():
    code = """
import breeze_lab, mlx.core as mx, numpy as np
from breeze_lab.beside import Beside
beside = Beside()
beside(lambda: [np.array(mx.random.normal((400, 400)) @ mx.ones((400, 400))) for _ in range(20)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
