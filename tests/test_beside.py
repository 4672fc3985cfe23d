"""Calls in a thread of its own: in order, with their results and errors, until closed or forgotten."""

import gc
import subprocess
import sys
import threading

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.beside import Beside, beside


def test_calls_run_in_one_other_thread_in_order():
    worker, seen = Beside(), []
    futures = [worker(lambda n=n: seen.append((n, threading.get_ident())) or n) for n in range(20)]
    assert [future.result() for future in futures] == list(range(20)) == [n for n, _ in seen]
    assert len({thread for _, thread in seen} - {threading.get_ident()}) == 1


def test_what_a_call_raises_its_result_raises_and_the_next_call_runs():
    worker = Beside()
    failed, after = worker(lambda: 1 / 0), worker(lambda: 2)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert after.result() == 2


def test_the_thread_ends_with_its_object():
    before = set(threading.enumerate())
    worker = Beside()
    (thread,) = set(threading.enumerate()) - before
    del worker
    gc.collect()
    assert not thread.is_alive()


def test_a_thread_is_used_again_and_two_at_once_are_two():
    def names(*workers):
        return {worker(threading.get_ident).result() for worker in workers}

    with beside() as first:
        once = names(first)
    with beside() as again, beside() as other:
        assert names(again) == once and len(names(again, other)) == 2


def test_a_call_goes_on_from_arrays_that_the_one_before_left_uncomputed():
    worker = Beside()
    lazy = worker(lambda: mx.arange(4) + 1).result()
    np.testing.assert_array_equal(worker(lambda: np.array(lazy * 2)).result(), [2, 4, 6, 8])


def test_an_interpreter_ends_well_with_a_thread_at_work():
    code = """
import breeze_lab, mlx.core as mx, numpy as np
from breeze_lab.beside import Beside
beside = Beside()
beside(lambda: [np.array(mx.random.normal((400, 400)) @ mx.ones((400, 400))) for _ in range(20)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_that_goes_on_calling_while_the_interpreter_ends_is_told():
    code = """
import breeze_lab, atexit, threading
from breeze_lab.beside import Beside

def speak():
    while True:
        worker(pow, 2, 3).result()

speaker = threading.Thread(target=speak, daemon=True)
threading.excepthook = lambda told: print(told.exc_value)
atexit.register(lambda: speaker.join(20))
worker = Beside()
speaker.start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "interpreter is ending" in done.stdout
