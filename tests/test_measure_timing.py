"""timing: order of calls, medians and ratios on a fake clock; no real time is asserted."""

import json

import mlx.core as mx
import pytest

from breeze_lab.measure import timing


@pytest.fixture
def clock(monkeypatch):
    """perf_counter that moves only when told; mx.synchronize free."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def test_functions_take_turns_and_warm_up_is_apart(clock):
    calls = []

    def work(name, seconds):
        def fn():
            calls.append(name)
            clock[0] += seconds.pop(0)

        return fn

    got = timing.alternate({"a": work("a", [9, 8, 1, 3, 2]), "b": work("b", [9, 9, 2, 2, 2])}, repeat=3, warmup=2)
    assert "".join(calls) == "ab" * 5
    assert got["a"].samples == (1, 3, 2) and got["a"].warmup == 9
    assert (got["a"].median, got["a"].ms, got["a"].best) == (2, 2000, 1)
    assert timing.ratio(got["b"], got["a"]) == 1.0  # of 2, 2/3, 1
    assert str(got["a"]) == "2e+03 ms (of 3: 1e+03 to 3e+03)"


def test_returned_arrays_are_evaluated_inside_the_span(monkeypatch):
    seen = []
    monkeypatch.setattr(timing.mx, "eval", lambda *a: seen.append(a))
    timing.measure(lambda: {"x": mx.array(1) + 1}, repeat=1, warmup=1)
    timing.measure(lambda: None, repeat=1, warmup=1)
    assert len(seen) == 2


def test_machine_and_versions_are_plain_json_without_host_or_path():
    text = json.dumps([timing.machine(), timing.versions()])
    assert "/" not in text.replace("\\/", "/").replace("Intel(R)", "")
    assert {"device", "backend", "cpu", "cores", "system"} == set(timing.machine())
    assert (
        timing.versions()["mlx"]
        and "python" in timing.versions()
        and timing.versions("no-such-dist").keys() == {"python"}
    )
    assert timing.backend() in ("cpu", "metal", "cuda") and timing.cores() >= 1
