"""What a first run costs for each operator of a deep net, counted in calls and in objects."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.fusion import chains
from opscope.framework.ir.operation import Operator
from opscope.framework.runtime import initialize
from opscope.framework.runtime.executor import Frame
from opscope.framework.runtime.feeding import Inputs
from opscope.framework.runtime.fused import fuse

WIDTH = 4


def calls_of(function: Callable[[], Any]) -> int:
    """How many functions a function calls, those in C among them."""
    count = 0

    def note(frame: Any, event: str, value: Any) -> None:
        nonlocal count
        del frame, value
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def elementwise(layers: int) -> tuple[NetBuilder, str]:
    """A chain of elementwise operators, three a layer."""
    b = NetBuilder("deep")
    h = x = b.input("x", [-1, WIDTH])
    for _ in range(layers):
        h = b.mul(b.tanh(b.add(h, x)), x)
    return b, h.name


def dense(layers: int) -> tuple[NetBuilder, str]:
    """Dense layers with weights of their own."""
    b = NetBuilder("dense")
    h = b.input("x", [-1, WIDTH])
    for _ in range(layers):
        h = b.relu(b.fc(h, WIDTH))
    return b, h.name


MOST = {elementwise: (160, 8), dense: (290, 42)}
"""Functions that a first run calls for one more operator, those in C among them; and a run of a
new shape."""


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_a_loop_is_not_walked_for_each_operator_that_joins_it() -> None:
    net = elementwise(200)[0].net
    spec = (2, WIDTH), np.dtype(np.float32)
    specs = dict.fromkeys(net.vars, spec)
    live = {net.operators[-1].output_vars()[0]}

    def group() -> None:
        groups = fuse.group_chains(net.operators, specs, live, {})
        assert max(map(len, groups)) > 20

    group()
    assert calls_of(group) < 60 * len(net.operators)


def test_what_is_fed_is_looked_for_until_it_is_read() -> None:
    fed = {"x": np.ones((2, WIDTH), "f4")}
    nets = [elementwise(layers)[0].op_list for layers in (3, 300)]
    counts = [calls_of(partial(Inputs(net, between=True).read, fed)) for net in nets]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("make", [elementwise, dense])
def test_one_more_operator_calls_few_functions(
    make: Callable[[int], tuple[NetBuilder, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a first run, and in the run of a new shape; also no more for each of many."""
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")

    def counts(layers: int) -> tuple[list[int], int]:
        b, fetched = make(layers)
        scope = Scope()
        b.initialize(scope)
        operators = len(b.net.operators)
        calls = []
        for rows in (2, 3, 4, 5, 7):
            feed = {"x": np.ones((rows, WIDTH), "f4")}
            run = partial(b.run, scope, None, False, feed=feed, fetch=[fetched])
            calls.append(calls_of(run))
        return calls, operators

    counts(150)  # what a first net loads and remembers
    (few, small), (many, large) = counts(150), counts(600)
    first, *_, last = [(b - a) / (large - small) for a, b in zip(few, many, strict=True)]
    most_first, most_last = MOST[make]
    assert first < most_first
    assert last < most_last


def test_runs_take_the_operators_that_the_builder_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")  # which looks at operators of its own
    b, fetched = elementwise(20)
    made: list[str] = []
    init = Operator.__init__

    def counted(self: Operator, *args: Any) -> None:
        init(self, *args)
        made.append(self.type)

    monkeypatch.setattr(Operator, "__init__", counted)
    scope = Scope()
    feed = {"x": np.ones((2, WIDTH), "f4")}
    run = b.run(scope, None, False, feed=feed, fetch=[fetched])
    assert not made
    # What is appended later is no part of what ran.
    more = b.relu(b.neg(fetched))
    assert len(made) == 2
    again = b.run(scope, None, False, feed=feed, fetch=[fetched, more])
    assert again[fetched].tobytes() == run[fetched].tobytes()
    assert np.array_equal(again[more.name], np.maximum(-run[fetched], 0))


def frames() -> list[Frame]:
    """All that there are, for any net."""
    return [one for one in gc.get_objects() if type(one) is Frame]


def test_initializers_run_in_pieces_that_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    b, fetched = dense(7)
    values = []
    for together in (1 << 10, 3):
        monkeypatch.setattr(initialize, "_TOGETHER", together)
        counts: list[int] = []
        run = Frame.run

        def counted(self: Frame, *args: Any, run: Any = run, counts: Any = counts) -> None:
            counts.append(len(self.plan.operators))
            run(self, *args)

        gc.collect()
        gc.disable()
        others = frames()
        try:
            scope = Scope()
            with monkeypatch.context() as patch:
                patch.setattr(Frame, "run", counted)
                b.initialize(scope, OpContext(seed=3))
            left = [one for one in frames() if all(one is not other for other in others)]
        finally:
            gc.enable()
        assert not left
        assert sum(counts) == 14 and max(counts) <= together
        values.append({name: scope.numpy(name) for name in scope.names()})
    first, second = values
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    weights = [value for value in first.values() if value.ndim == 2]
    assert len({value.tobytes() for value in weights}) == len(weights) == 7
