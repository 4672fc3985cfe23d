"""stalls: lanes from hand-made events, the gain formula at its corners, and reads of the real rungs."""

from contextlib import contextmanager

import pytest

from breeze_lab.beside import beside
from breeze_lab.measure import stalls
from breeze_lab.measure.host_reads import Event, HostReads


def events(kind, *spans):
    return [Event(kind, a, b) for a, b in spans]


def test_lanes_of_a_frame_that_reads_each_code():
    seen = HostReads(reads=events("item", (0.001, 0.003), (0.004, 0.007)), seconds=0.008)
    got = stalls.lanes(seen)
    assert got.waiting == [(1, 3), (4, 7)]
    assert got.building == [(0, 1), (3, 4), (7, 8)]
    assert got.working == [(1, 3), (4, 7)], "without a submit the device starts when asked"
    assert got.idle == pytest.approx(3 / 8)
    assert stalls.step_costs(seen) == stalls.StepCosts(1.0, 3.0)


def test_lanes_of_a_frame_that_submits():
    seen = HostReads(
        reads=events("tolist", (0.006, 0.008)),
        submits=events("async_eval", (0.001, 0.0011), (0.003, 0.0031)),
        seconds=0.008,
    )
    got = stalls.lanes(seen)
    assert got.building == [(0, 1), (pytest.approx(1.1), 3), (pytest.approx(3.1), 6)]
    assert got.submitting == [(1, pytest.approx(1.1)), (3, pytest.approx(3.1))] and got.working == [(1, 8)]
    assert got.idle == pytest.approx(1 / 8)
    assert set(got.for_plot()) == {"host", "device"}


def test_lanes_of_a_loop_one_frame_ahead_never_run_dry():
    seen = HostReads(
        reads=events("tolist", (0.003, 0.004), (0.006, 0.007)),
        submits=events("async_eval", (0.001, 0.001), (0.002, 0.002), (0.005, 0.005)),
        seconds=0.008,
    )
    assert stalls.lanes(seen, submits_a_read=1).working == [(1, 8)], "one stays queued behind each read"
    assert stalls.lanes(seen).working == [(1, 4), (5, 7)]


def test_gain_is_two_at_most_and_one_at_the_ends():
    assert stalls.gain(1, 1) == 2 and stalls.gain(1e-9, 1) == pytest.approx(1) == stalls.gain(1, 1e-9)
    costs = stalls.StepCosts(build=1, run=3)
    assert (costs.with_reads, costs.without_reads, costs.gain) == (4, 3, pytest.approx(4 / 3))


def test_watch_sees_the_last_run_only():
    import mlx.core as mx

    runs = []
    seen = stalls.watch(lambda: runs.append(mx.array(1).item()), warmup=3)
    assert len(runs) == 4 and seen.count == 1


def test_a_chain_reads_each_or_the_last():
    each, last = stalls.read_cost(chain=5, repeat=2)
    assert len(each.samples) == len(last.samples) == 2


def test_a_read_beside_another_thread_leaves_no_work_behind(monkeypatch):
    started = []

    @contextmanager
    def watched():
        with beside() as start:
            yield lambda work: started.append(start(work)) or started[-1]

    monkeypatch.setattr(stalls, "beside", watched)
    assert stalls.read_beside(0, reads=2) > 0 and started == []
    assert stalls.read_beside(10, reads=2) > 0
    assert [future.done() for future in started] == [True]
