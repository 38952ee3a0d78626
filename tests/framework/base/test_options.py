"""Options of nets: by the environment and by blocks, for each thread alone, in keys of plans."""

from __future__ import annotations

import contextvars
import dataclasses
import doctest
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OpContext, OpscopeError, Scope
from opscope.framework.base.options import settings
from opscope.framework.base.options.settings import SWITCHES, Options, current, read_options
from opscope.framework.loops.recurrent import net as recurrent_net
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.runtime.executor import Frame
from opscope.scale.jobs.pool import carried_environment

FIELDS = [one.name for one in dataclasses.fields(Options)]
VALUES: dict[str, list[tuple[str, Any]]] = {
    "recurrent": [("fast", "fast"), ("steps", "steps")],
    "libraries": [("mkl, blas", ["mkl", "blas"]), ("xp", "xp"), ("", ())],
}
"""As the environment has them and as `options` takes them; of the others 0 and 1."""
FLAGS = [("0", False), ("1", True)]
WRONG = {"recurrent": ["slow", True], "libraries": [3, ["mkl", 1]]}
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in SWITCHES.values():
        if switch.option:
            monkeypatch.delenv(switch.name, raising=False)


def chain() -> NetBuilder:
    """y = tanh(x w) * 2, of which the last two are a chain."""
    b = NetBuilder("chain")
    x = b.input("x", [-1, 4])
    b.scale(b.tanh(b.fc(x, size=3, name="h")), scale=2.0, name="y")
    return b


def started(b: NetBuilder) -> Scope:
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    scope.feed({"x": X})
    return scope


def frame_of(b: NetBuilder, scope: Scope) -> Frame:
    """The frame that the last run of all operators used, and a run would use."""
    return b.net.frame(scope, OpContext(train=False, live_out=["y"]))


def run(b: NetBuilder, scope: Scope) -> np.ndarray:
    b.net.run(scope, OpContext(train=False, live_out=["y"]))
    return scope.numpy("y").copy()


# -- by the environment and by blocks


@pytest.mark.parametrize("name", FIELDS)
def test_environment_and_option_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"OPSCOPE_{name.upper()}"
    assert SWITCHES[variable].option == name
    for text, value in VALUES.get(name, FLAGS):
        monkeypatch.setenv(variable, text)
        told = read_options()
        assert current() is told
        monkeypatch.delenv(variable)
        with opscope.options(**{name: value}) as chosen:
            assert chosen is current() is read_options() is told
        run(chain(), started(chain()))


def test_defaults_are_those_of_the_table() -> None:
    assert read_options() == Options()
    texts = {s.option: s.default for s in SWITCHES.values() if s.option}
    assert texts == {name: settings.option_text(getattr(Options(), name)) for name in FIELDS}


@pytest.mark.parametrize("name", FIELDS)
def test_wrong_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in WRONG.get(name, ["0", 1, None]):
        with pytest.raises(OpscopeError, match=f"^options: {name} is .*, not "):
            with opscope.options(**{name: value}):
                pytest.fail("the block is not entered")
    variable = f"OPSCOPE_{name.upper()}"
    monkeypatch.setenv(variable, "yes")
    wanted = "no kernel library 'yes'" if name == "libraries" else "want one of "
    with pytest.raises(OpscopeError, match=f"^{variable}=yes: {wanted}"):
        run(chain(), started(chain()))


def test_unknown_names() -> None:
    known = "there are fuse, reuse, .*, keep_packed$"
    with pytest.raises(OpscopeError, match=rf"'fuze' \(did you mean fuse\?\); {known}"):
        with opscope.options(fuze=True):
            pytest.fail("the block is not entered")
    with pytest.raises(OpscopeError, match="no kernel library 'packd' .did you mean packed"):
        with opscope.options(libraries="packd"):
            run(chain(), started(chain()))


def test_blocks_nest_and_end() -> None:
    with opscope.options(fuse=False):
        with pytest.raises(KeyError), opscope.options(reuse=False, fuse=True) as inner:
            assert inner == Options(reuse=False) and current() is inner
            raise KeyError
        assert current() == Options(fuse=False)
        with opscope.options() as same:
            assert same is current()
    assert current() == Options()


def test_a_block_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_REUSE", "0")
    with opscope.options(fuse=False):
        monkeypatch.setenv("OPSCOPE_INPLACE", "0")  # after the block began
        assert read_options() == Options(fuse=False, reuse=False)
        assert "OPSCOPE_FUSE" not in os.environ
    assert read_options() == Options(reuse=False, inplace=False)


def test_the_example() -> None:
    (found,) = doctest.DocTestFinder().find(settings.options, "options", globs={})
    assert doctest.DocTestRunner().run(found).attempted


# -- plans


def test_a_net_is_planned_once_for_equal_options() -> None:
    b = chain()
    scope = started(b)
    usual = frame_of(b, scope)
    with opscope.options(fuse=False):
        plain = frame_of(b, scope)
        assert frame_of(b, scope) is plain is not usual
        assert run(b, scope).shape == (6, 3)
    assert usual.plan.options.fuse and not plain.plan.options.fuse
    assert frame_of(b, scope) is usual
    with opscope.options(fuse=False):
        assert frame_of(b, scope) is plain
    with opscope.options(fuse=True):
        assert frame_of(b, scope) is usual


def test_a_new_plan_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    b = chain()
    assert frame_of(b, started(b)).plan.options.fuse
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    assert not frame_of(b, started(b)).plan.options.fuse


def test_inner_nets_have_the_options_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are bound while a net runs first, in a context of the frame's own."""
    found: list[Options] = []

    class Recorded(recurrent_net.StepScopeProgram):
        def __call__(self) -> None:
            found.append(read_options())
            super().__call__()

    monkeypatch.setattr(recurrent_net, "StepScopeProgram", Recorded)
    b, scope = NetBuilder("n"), Scope()
    states, _ = b.lstm(b.input("x", [-1, 4], levels=1), 3, name="y")
    b.initialize(scope, OpContext(seed=0))
    feed = {"x": opscope.Sequences(X, [[0, 2, 6]])}
    wanted = b.predict(feed, scope=scope)[states.name].data
    assert not found
    with opscope.options(recurrent="steps") as chosen:
        steps = b.predict(feed, scope=scope)[states.name].data
    assert found == [chosen]
    np.testing.assert_allclose(steps, wanted, rtol=1e-5)
    b.predict(feed, scope=scope)
    assert found == [chosen]


# -- threads


def together(*calls: Callable[[], None]) -> None:
    """Make calls in threads that begin at the same time.

    Raises:
        BaseException: of the first that failed.
    """
    begin, errors = threading.Barrier(len(calls)), []

    def one(call: Callable[[], None]) -> None:
        begin.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    crew = [threading.Thread(target=one, args=(call,)) for call in calls]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    for error in errors:
        raise error


def test_threads_have_options_of_their_own_beside_a_comparison() -> None:
    b = chain()
    wanted = run(b, started(b))
    before = dict(os.environ)
    ended = threading.Event()
    scopes: list[Scope] = []

    def first_runs(changed: dict[str, Any]) -> None:
        with opscope.options(**changed) as chosen:
            while not ended.is_set() or not scopes:
                scope = started(b)
                np.testing.assert_allclose(run(b, scope), wanted, rtol=1e-5)
                frame = frame_of(b, scope)
                assert frame.options is chosen
                assert frame.plan.options.fuse is chosen.fuse
                assert dict(os.environ) == before
                scopes.append(scope)

    def comparisons() -> None:
        scope = started(b)
        try:
            for _ in range(5):
                assert opscope.compare((b, scope), runtimes=("opscope", "plain")).same
        finally:
            ended.set()

    together(comparisons, lambda: first_runs({}), lambda: first_runs({"fuse": False}))
    assert dict(os.environ) == before and current() == Options()


def test_a_thread_begins_with_the_options_of_the_environment() -> None:
    found = []
    with opscope.options(fuse=False):
        together(lambda: found.append(read_options().fuse))
        handed = contextvars.copy_context()
        together(lambda: found.append(handed.run(read_options).fuse))
    assert found == [True, False]


def test_ranks_in_threads_have_the_options_of_their_caller() -> None:
    with opscope.options(fuse=False) as chosen:
        assert DryWorld(2).run(lambda _: read_options()) == [chosen, chosen]


def test_processes_get_the_options_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.as_environment() == {}
    with opscope.options(fuse=False, recurrent="steps", libraries=["mkl", "blas"]) as chosen:
        variables = settings.as_environment()
        carried = carried_environment()
    assert carried.items() >= variables.items()
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert read_options() is chosen


def test_switches_are_read_once_in_a_block_and_anew_after_it(monkeypatch) -> None:
    monkeypatch.setenv("OPSCOPE_CPU", "none")
    with settings.read_once():
        assert settings.switch("OPSCOPE_CPU") == "none"
        monkeypatch.setenv("OPSCOPE_CPU", "best")
        with settings.read_once():
            assert settings.switch("OPSCOPE_CPU") == "none"
        assert settings.switch("OPSCOPE_CPU") == "none"
    assert settings.switch("OPSCOPE_CPU") == "best"


def test_a_long_recurrence_reads_the_environment_as_often_as_a_short_one(monkeypatch) -> None:
    reads = []
    value = settings.Switch.value
    monkeypatch.setattr(settings.Switch, "value", lambda own: reads.append(own) or value(own))
    counts = []
    for steps in (30, 300):
        b = opscope.NetBuilder("net")
        y = b.lstm(b.input("x", [-1, 4], levels=1), 4)[0]
        reads.clear()
        b.run(Scope(), feed={"x": [np.zeros((steps, 4), np.float32)]}, fetch=[y.name])
        counts.append(len(reads))
    assert counts[1] <= counts[0] + 10
