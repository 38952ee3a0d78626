"""Blocks of rows: what may be joined, and that the result is the same."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope.framework.fusion import chains, team
from opscope.framework.fusion.rows import row_blocks
from opscope.framework.fusion.rows.row_blocks import ByRows, Span
from opscope.framework.ir.desc import PARAMETER
from opscope.framework.runtime.executor import Frame

needs_library = pytest.mark.skipif(not chains.available(), reason="no native library")


def _work(reads=(), writes=(), given=(), rows=100):
    return ByRows(rows, ((1, 2),), tuple(reads), tuple(writes), None, (), tuple(given))


class TestJoin:
    def test_rows_of_a_result(self):
        first = _work(writes=[Span(10_000, 64, 64)])
        second = _work(reads=[Span(10_000, 64, 64)], writes=[Span(50_000, 32, 32)])
        joined = row_blocks.join([first, second])
        assert joined is not None and len(joined.items) == 2
        assert joined.writes == (*first.writes, *second.writes)

    def test_columns_side_by_side(self):
        first = _work(writes=[Span(10_000, 64, 32)])
        assert row_blocks.join([first, _work(reads=[Span(10_032, 64, 32)])]) is not None

    @pytest.mark.parametrize(
        "later",
        [
            _work(reads=[Span(10_064, 64, 64)]),  # the next row
            _work(reads=[Span(10_000, 32, 32)]),  # rows of another width
            _work(reads=[Span(10_000, 0, 64)]),  # the first row, for all
            _work(writes=[Span(9_990, 64, 20)]),  # the end of the row before
            _work(given=[Span(12_000, 0, 4)]),  # read before the first block
            _work(rows=50),
        ],
    )
    def test_refuses(self, later):
        first = _work(writes=[Span(10_000, 64, 64)])
        assert row_blocks.join([first, later]) is None

    def test_does_not_write_over_what_is_still_read(self):
        first = _work(reads=[Span(10_000, 64, 64)])
        assert row_blocks.join([first, _work(writes=[Span(10_000, 32, 32)])]) is None
        assert row_blocks.join([first, _work(writes=[Span(10_000, 64, 64)])]) is not None

    def test_few_rows_are_not_joined(self):
        assert row_blocks.join([_work(rows=2), _work(rows=2)]) is None

    def test_spans_of_arrays(self):
        array = np.zeros((6, 8), np.float32)
        start = array.ctypes.data
        assert row_blocks.span(array[1:, 2:4]) == Span(start + 40, 32, 8)
        assert row_blocks.span(array.T) is None and row_blocks.span(array[::-1]) is None
        assert row_blocks.whole(array[::-1]) == Span(start, 0, array.nbytes)


def _trained(seed, rows, sizes):
    """The cost of the second step, and the parameters after it."""
    b = opscope.NetBuilder("n")
    x, y = b.input("x", [-1, sizes[0]]), b.input("y", [-1], "int64")
    hidden = x
    for number, size in enumerate(sizes[1:]):
        hidden = b.fc(hidden, size=size, activation=("relu", "tanh", "")[number % 3])
    cost = b.mean(b.softmax_cross_entropy(hidden, y))
    b.backward_from(cost)
    b.add_optimization(type="sgd", learning_rate=0.1)
    scope = opscope.Scope()
    b.initialize(scope)
    rng = np.random.default_rng(seed)
    parameters = [var.name for var in b.net.vars.values() if var.kind == PARAMETER]
    for name in parameters:
        array = scope.get(name).array
        array[...] = rng.standard_normal(array.shape) / 20
    given = {
        "x": rng.standard_normal((rows, sizes[0])).astype(np.float32),
        "y": rng.integers(0, sizes[-1], rows),
    }
    for _ in range(2):
        value = b.run(scope, feed=given, fetch=[cost])[cost.name]
    return float(value), {name: np.array(scope.get(name).array) for name in parameters}


@pytest.mark.parametrize("libraries", ["packed,mkl,blas,xp", "blas,xp"])
@pytest.mark.parametrize("seed", range(6))
def test_random_nets(seed, libraries, monkeypatch):
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([1, 7, 64, 130, 1100]))
    sizes = [int(rng.choice([48, 96, 130, 512])) for _ in range(4)]
    monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
    value, on = _trained(seed, rows, sizes)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", "xp")
    monkeypatch.setenv("OPSCOPE_FUSE", "0")  # the whole arrays, one operator after the other
    cost, off = _trained(seed, rows, sizes)
    assert value == pytest.approx(cost, rel=1e-5, abs=1e-5) and len(off) == 6
    for name, array in off.items():
        np.testing.assert_allclose(on[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@needs_library
def test_forward_is_joined():
    b = opscope.NetBuilder("n")
    hidden = b.fc(b.input("x", [-1, 96]), size=384, activation="relu")
    out = b.fc(hidden, size=384, activation="tanh")
    scope = opscope.Scope()
    b.initialize(scope)
    x = np.random.default_rng(0).standard_normal((1000, 96)).astype(np.float32)
    found = np.array(b.run(scope, feed={"x": x}, fetch=[out])[out.name])
    calls = [team.task_of(call) for call in _frame_of(scope, out.name)._joined[0]]
    assert max(len(task.by_rows.items) for task in calls if task and task.by_rows) == 4
    names = [var.name for var in b.net.vars.values() if var.kind == PARAMETER]
    w, v = (scope.get(n).array.astype(float) for n in names if scope.get(n).array.ndim == 2)
    np.testing.assert_allclose(found, np.tanh(np.maximum(x @ w, 0) @ v), atol=1e-5)


def _frame_of(scope, result):
    import gc

    frames = [f for f in gc.get_objects() if isinstance(f, Frame) and f.scope.root is scope.root]
    (found,) = [frame for frame in frames if frame._joined and result in frame.plan.live_out]
    return found
