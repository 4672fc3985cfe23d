"""host_reads: known counts."""

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.measure.host_reads import ARRAY_METHODS, count_host_reads

READS = {
    "item": lambda x, s: s.item(),
    "tolist": lambda x, s: x.tolist(),
    "bool": lambda x, s: 1 if s > 1 else 0,
    "float": lambda x, s: float(s),
    "int": lambda x, s: int(s),
    "index": lambda x, s: [1, 2, 3, 4][s],
    "np.array": lambda x, s: np.array(x),
    "np.asarray": lambda x, s: np.asarray(x, dtype=np.float64),
    "format": lambda x, s: f"{s}",
    "repr": lambda x, s: repr(x),
}


@pytest.mark.parametrize("kind", READS)
def test_each_kind_of_read_is_counted_once(kind):
    x, s = mx.array([1.0, 2.0]), mx.array(3)
    with count_host_reads() as seen:
        READS[kind](x, s)
    assert seen.kinds == {kind: 1}


def test_lazy_work_is_no_read():
    x = mx.array([1.0, 2.0])
    with count_host_reads() as seen:
        y = x @ x + x.shape[0] * len(x)
        mx.async_eval(y)
        np.array([1, 2, 3])
        np.asarray("text")
    assert seen.count == 0 and len(seen.submits) == 1
    assert y.item() == 9.0


def test_a_list_of_arrays_is_one_read_and_eval_is_a_wait():
    with count_host_reads() as seen:
        np.array([mx.array(1), mx.array(2)])
        mx.eval(mx.array(1) + 1)
    assert seen.kinds == {"np.array": 1} and [event.kind for event in seen.waits] == ["eval"]
    assert 0 < seen.seconds_waiting <= seen.seconds
    assert "1 host reads" in str(seen)


def test_everything_is_put_back_even_after_an_error():
    before = [getattr(mx.array, name) for name in ARRAY_METHODS] + [np.array, mx.eval, mx.async_eval]
    with pytest.raises(RuntimeError), count_host_reads():
        raise RuntimeError
    assert before == [getattr(mx.array, name) for name in ARRAY_METHODS] + [np.array, mx.eval, mx.async_eval]


def test_fifteen_items_against_one_list():
    codes = [mx.array(i) for i in range(15)]
    with count_host_reads() as per_code:
        values = [code.item() for code in codes]
    with count_host_reads() as per_frame:
        same = mx.stack(codes).tolist()
    assert (per_code.count, per_frame.count) == (15, 1) and values == same
