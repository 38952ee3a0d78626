"""Calls of traced steps: native functions, functions of NumPy, and nothing."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import RunError
from opscope.framework.base.sequence import Sequences
from opscope.framework.base.sizes.dims import Dims
from opscope.framework.fusion.compiled.arguments import NotTracedError
from opscope.framework.fusion.laid import Laid
from opscope.framework.fusion.team import ParallelTask, in_order, nothing, parts_of, task_of
from opscope.framework.runtime import executor
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.other_shapes.traced_calls import (
    NativeCall,
    NumpyCall,
    binder_of,
    same_calls,
    traced_calls,
)
from opscope.framework.runtime.plain_net import PlainNet


def laid(array: Any) -> Any:
    return Laid(array.dtype, array.shape, array.strides, array.ctypes.data)


def bound(call: Any, fixed: Any = ()) -> Any:
    parts = traced_calls(call, Dims().unchecked(0, 64), {}, fixed)
    numbers = iter([number for part in parts for number in part.numbers])
    return binder_of(parts)(0, numbers, {}, None)


def test_functions_of_numpy_get_arrays_where_those_lie() -> None:
    rng = np.random.default_rng(0)
    x, factor = rng.normal(size=(4, 6)).astype("f4"), rng.normal(size=6).astype("f4")
    out, turned, joined, total = (np.zeros(n, "f4") for n in ((4, 6), (6, 4), (4, 9), (4,)))
    calls = [
        partial(np.multiply, laid(x), factor, out=laid(out)),
        partial(np.copyto, laid(turned.T), laid(out)),
        partial(np.concatenate, [laid(x), laid(out[:, 1:4])], 1, laid(joined)),
        nothing,
        partial(np.add.reduce, laid(joined), axis=(1,), out=laid(total)),
    ]
    call = bound(in_order(*calls), [factor])
    call()
    assert np.array_equal(turned, (x * factor).T)
    assert np.array_equal(joined, np.concatenate([x, out[:, 1:4]], 1))
    assert np.array_equal(total, joined.sum(1))
    own = [
        partial(np.multiply, x, factor, out=out),
        partial(np.copyto, turned.T, out),
        partial(np.concatenate, [x, out[:, 1:4]], 1, joined),
        partial(np.add.reduce, joined, axis=(1,), out=total),
    ]
    assert all(map(same_calls, parts_of(call), own))
    assert not same_calls(own[0], partial(np.multiply, x, factor, out=x))
    assert not same_calls(own[0], own[1]) and not same_calls(own[0], nothing)


def test_equal_calls_compute_the_same() -> None:
    x, out = np.zeros((2, 3), "f4")
    nan = np.float32(np.nan)

    def product(factor: Any) -> Any:
        return partial(np.multiply, x, factor, out=out)

    for factor in (nan, np.nan, np.float32(0), -0.0, 2, (1, nan), complex(np.nan, -0.0)):
        assert same_calls(product(factor), product(deepcopy(factor)))
    assert same_calls(product(nan), product(np.divide(nan, nan)))
    for first, second in ((0.0, -0.0), (nan, np.float32(1)), (0j, complex(0, -0.0)), (1, 2)):
        assert not same_calls(product(first), product(second))
    assert not same_calls(product(1.0), product(x))


def test_arrays_without_elements_are_equal_wherever_they_lie() -> None:
    memory = np.zeros((8, 6), "f4")

    def copy(source: Any) -> Any:
        return partial(np.copyto, memory, source)

    turned = np.zeros((0, 8), "f4").T
    assert memory[:, :0].strides != turned.strides
    assert same_calls(copy(memory[:, :0]), copy(turned))
    assert not same_calls(copy(memory[:, :0]), copy(memory[:7, :0]))
    assert not same_calls(copy(memory[:, :0]), copy(np.zeros((8, 0))))


def test_no_trace_of_arrays_without_elements_disagrees(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor, "_SLOW", 0.0)
    b = NetBuilder("flat")
    x = b.input("x", [-1, -1])
    flat = b.reshape(b.mul(b.tanh(x), x), shape=[-1])
    deep = NetBuilder("deep")
    h = deep.input("x", [-1, 8])
    for _ in range(140):  # enough steps for one trace to bind those that are alike
        h = deep.sub(deep.tanh(h), deep.mean(h, axes=[1], keepdims=True))
    for net, out, shapes in ((b, flat, ((4, 3), (90, 0), (80, 0))), (deep, h, ((4, 8), (0, 8)))):
        scope = Scope()
        for shape in shapes:
            scope.feed({"x": np.ones(shape, np.float32)})
            net.net.run(scope, OpContext(train=False, live_out=[out.name]))
            assert scope.numpy(out.name).size == math.prod(shape)
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: None,
        partial(print, 1),
        partial(np.ones(3).sum, 0),
        partial(np.add, np.ones(3), 1.0),  # memory of the kernel's own
        partial(np.add, {}, 1.0),
    ],
)
def test_other_calls_are_not_traced(call: Any) -> None:
    with pytest.raises(NotTracedError):
        NumpyCall(call, [])


def test_short_items_are_known() -> None:
    own = Dims().unchecked(0, 64)
    call = NativeCall(ParallelTask(((1, own + 8),), 5, None, short=1), own, {})
    task = task_of(call.bound(128, iter([7]), {}, None))
    assert task is not None and (task.items, task.work, task.short) == (((1, 136),), 7, 1)


def net() -> tuple[NetBuilder, str]:
    """A net whose steps are views, copies, products of stacks, softmax and sums of NumPy."""
    b = NetBuilder("heads")
    x = b.input("x", [1, -1, 12])
    rows = b.fc(b.reshape(x, shape=[-1, 12]), size=24)
    parts = b.transpose(b.reshape(rows, shape=[1, -1, 2, 3, 4]), perm=[2, 0, 3, 1, 4])
    q, k = (b.squeeze(b.slice(parts, axes=[0], starts=[n], ends=[n + 1]), axes=[0]) for n in (0, 1))
    seen = b.softmax(b.matmul(q, b.transpose(k, perm=[0, 1, 3, 2])))
    h = b.transpose(b.matmul(seen, q), perm=[0, 2, 1, 3])
    h = b.reshape(h, shape=[1, -1, 12])
    h = b.sub(b.add(h, x), b.mean(h, axes=[2], keepdims=True))
    return b, b.concat([h, x], axis=2).name


def test_all_steps_of_a_net_are_bound_by_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_SLOW", 0.0)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    b, out = net()
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    values = {var.name: scope.numpy(var.name) for var in b.op_list.vars if var.name in scope}
    by_kernel: list[str] = []
    bind = executor.Frame._by_kernel

    def noted(self: Any, step: Any) -> Any:
        by_kernel.append(step.operators[0].type)
        return bind(self, step)

    monkeypatch.setattr(executor.Frame, "_by_kernel", noted)
    rng = np.random.default_rng(0)
    shared = Net.create(b.net.op_list)
    for number, length in enumerate((40, 50, 60, 57, 70, 43)):
        x = rng.normal(size=(1, length, 12)).astype(np.float32)
        results = []
        for one, where in ((shared, scope), (Net.create(b.net.op_list), Scope())):
            where.feed({"x": x} if where is scope else {**values, "x": x})
            by_kernel.clear()
            one.run(where, OpContext(train=False, live_out=[out]))
            results.append((where.numpy(out).tobytes(), list(by_kernel)))
        assert results[0][0] == results[1][0]
        assert len(results[1][1]) > 9
        if number > 2:  # a product may choose another way for a size
            assert set(results[0][1]) <= {"affine"}


def test_errors_of_traced_steps_name_their_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_SLOW", 0.0)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    b = NetBuilder("tagger")
    words, labels = (b.input(name, [-1], "int64") for name in ("words", "labels"))
    scores = b.fc(b.embedding(words, [9, 6]), 7)
    b.mean(b.softmax_cross_entropy(scores, labels), name="loss")
    b.backward_from("loss")
    scope, rng = Scope(), np.random.default_rng(0)
    b.initialize(scope)

    def loss(count: int, **changed: tuple[int, int]) -> Any:
        feed = {"words": rng.integers(0, 9, count), "labels": rng.integers(0, 7, count)}
        for name, (at, value) in changed.items():
            feed[name][at] = value
        return b.run(scope, feed=feed, fetch=["loss"])

    for count in (5, 8, 11, 4):
        loss(count)
    with pytest.raises(RunError, match=r"embedding\).*ids 'words' holds 9, want 0 <= ids < 9"):
        loss(6, words=(3, 9))
    with pytest.raises(RunError, match=r"label 'labels' holds -2 at sample 4, want 0 .. 6"):
        loss(7, labels=(4, -2))
    with pytest.raises(RunError, match=r"label 'labels' holds 7 at sample 0, want 0 .. 6"):
        loss(6, labels=(0, 7))
    for count in (6, 7, 12):
        assert np.isfinite(loss(count)["loss"])
    frames = scope.frames()
    types = {"embedding", "embedding_grad", "softmax_cross_entropy", "mean", "mean_grad"}
    kept = frames[0].traces
    for step in frames[0].plan.steps:
        found = {op.type for op in step.operators} & types
        assert not found or kept[id(step)].traced, found
        types -= found
    assert not types


def test_traces_are_for_arrays_with_sequences_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_SLOW", 0.0)
    net = PlainNet()
    net.add_op("positions", ["x"], ["out"], {"axis": 0})
    scope = Scope()
    rng = np.random.default_rng(0)
    for number in range(12):
        lengths = rng.integers(0, 7, 4).tolist()
        rows = [np.zeros((length, 3), np.float32) for length in lengths]
        whole = np.concatenate(rows)
        wanted = np.arange(len(whole))
        packed = number % 3 > 0
        if packed:
            wanted = np.concatenate([np.arange(length) for length in lengths])
        scope.feed({"x": Sequences.from_list(rows) if packed else whole})
        net.run(scope, OpContext(live_out=["out"]))
        assert np.array_equal(scope.numpy("out"), wanted)
