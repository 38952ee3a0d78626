"""Contexts: random state, phase, threads' defaults; scratch memory and switches."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.context import Hook, OpContext, default_context
from opscope.framework.base.errors import OpscopeError, RunError
from opscope.framework.base.options.settings import SWITCHES, read_options, switch
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plans.memory import ScratchPool


def noise_of(context, runs=1):
    net = Net.create()
    net.add_op("toy_noise", {"x": "x"}, {"out": "y"})
    scope = Scope()
    scope.feed({"x": np.zeros(4)})
    for _ in range(runs):
        net.run(scope, context)
    return scope.numpy("y")


def test_a_seed_makes_runs_repeatable():
    assert np.array_equal(noise_of(OpContext(seed=3)), noise_of(OpContext(seed=3)))
    assert not np.array_equal(noise_of(OpContext(seed=3)), noise_of(OpContext(seed=4)))
    assert not np.array_equal(noise_of(OpContext()), noise_of(OpContext()))


def test_the_random_state_goes_on():
    one = OpContext(seed=3)
    assert not np.array_equal(noise_of(one), noise_of(one))


def test_a_saved_random_state_continues_bit_for_bit():
    one = OpContext(seed=3)
    noise_of(one)
    saved = one.random_state()
    expected = noise_of(one)
    other = OpContext()
    other.set_random_state(saved)
    assert np.array_equal(noise_of(other), expected)


@pytest.mark.parametrize("state", [{}, {"bit_generator": "MT19937"}, None, 7, {"state": "x"}])
def test_bad_random_states(state):
    with pytest.raises(OpscopeError, match="no random state"):
        OpContext().set_random_state(state)


def test_every_thread_has_its_own_default():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(default_context()))
    thread.start()
    thread.join()
    assert seen[0] is not default_context()
    assert default_context().generator(CPUPlace()) is default_context().generator(CPUPlace())


def test_scratch_memory_is_aligned_shared_and_grows():
    pool = ScratchPool(np)
    first = pool.take((3,), np.dtype("float32"))
    second = pool.take((5, 2), np.dtype("float64"))
    assert not np.shares_memory(first, second) and second.shape == (5, 2)
    pool.restart()
    again = pool.take((3,), np.dtype("float32"))
    assert np.shares_memory(first, again), "the next operator uses it again"
    large = pool.take((10_000,), np.dtype("float64"))
    large[...] = 1
    assert large.size == 10_000 and not np.shares_memory(large, again)
    assert pool.take((0, 3), np.dtype("int8")).shape == (0, 3)
    assert pool.take((), np.dtype("int8")).shape == ()


def test_switches_are_documented():
    for entry in SWITCHES.values():
        assert entry.name.startswith("OPSCOPE_") and entry.doc
        assert not entry.choices or entry.default in entry.choices


def test_switch_values(monkeypatch):
    monkeypatch.delenv("OPSCOPE_REUSE", raising=False)
    assert read_options().reuse and switch("OPSCOPE_REUSE") == "1"
    monkeypatch.setenv("OPSCOPE_REUSE", "0")
    assert not read_options().reuse
    monkeypatch.setenv("OPSCOPE_REUSE", "no")
    with pytest.raises(OpscopeError, match="OPSCOPE_REUSE=no: want one of 0, 1"):
        read_options()


def test_two_threads_in_one_scope_are_told():
    """One scope holds one set of values: a second run in it at the same time is refused."""
    b, scope = NetBuilder("n"), Scope()
    b.relu(b.input("x", [2]), name="y")
    started, ended = threading.Event(), threading.Event()

    class Waiting(Hook):
        def before_op(self, frame, index):
            started.set()
            ended.wait(10)

    scope.feed({"x": np.ones(2, np.float32)})
    net = Net.create(b.op_list)
    net.run(scope)
    first = threading.Thread(target=net.run, args=(scope, OpContext(hooks=[Waiting()])))
    first.start()
    started.wait(10)
    try:
        with pytest.raises(RunError, match="running already in this scope.*predict"):
            net.run(scope)
    finally:
        ended.set()
        first.join()
