"""Steps of a loop that traces bind many at once compute what their kernels do, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope, set_threads
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import RunError
from opscope.framework.loops.recurrent import loop, traced_steps
from opscope.framework.loops.recurrent.step_calls import StepCalls
from opscope.framework.runtime.other_shapes.tracing import Traced
from random_steps import Maker
from rnn_nets import fill, with_loss


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All loops are traced, and what is computed is compared with what kernels bind; the numbers of
    steps that were computed."""
    monkeypatch.setattr(loop, "MANY", 1)
    monkeypatch.setattr(loop, "FEW", 1)
    monkeypatch.setattr(traced_steps, "MANY", 1)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    counts: list[int] = []
    put = StepCalls.put_many

    def counted(self: StepCalls, steps: Any, *args: Any) -> bool:
        counts.append(len(steps))
        return put(self, steps, *args)

    monkeypatch.setattr(StepCalls, "put_many", counted)
    return counts


def drawn_batches(rng: np.random.Generator) -> list[list[int]]:
    """Lengths of the sequences of each batch, which grow and shrink."""
    drawn = [rng.integers(0, 9, rng.integers(1, 7)).tolist() for _ in range(6)]
    even = [[int(rng.integers(1, 9))] * int(rng.integers(1, 7)) for _ in range(3)]
    return [*drawn, [1], *even, [12, 3], drawn[0], [1, 1, 1], drawn[3], [0], drawn[1]]


def results(made: Maker, batches: list[list[int]], *, train: bool) -> dict[str, np.ndarray]:
    """All results, and gradients, of a net in one scope, for all batches."""
    scope = Scope()
    net = with_loss(made.desc, made.values, made.results)
    names = list(net.add_backward_ops("loss", list(made.values)).values()) if train else []
    context = OpContext(live_out=[*made.results, *names], seed=1, train=train)
    found = {}
    for number, lengths in enumerate(batches):
        made.draw(lengths)
        fill(scope, made.values)
        net.run(scope, context)
        found |= {f"{name}, batch {number}": scope.numpy(name) for name in context.live_out or ()}
    return found


@pytest.mark.parametrize(("dtype", "widths"), [("float64", 4), ("float32", 40)])
@pytest.mark.parametrize("seed", range(8))
def test_random_nets_compute_the_same(
    seed: int, dtype: str, widths: int, traced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = drawn_batches(np.random.default_rng(seed))
    train = seed % 4 > 0
    try:
        set_threads(1 + seed % 2)
        found = results(Maker(seed, dtype, widths), batches, train=train)
        monkeypatch.setenv("OPSCOPE_REBIND", "0")
        wanted = results(Maker(seed, dtype, widths), batches, train=train)
    finally:
        set_threads(None)
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert value.tobytes() == wanted[name].tobytes(), name


def layer(kind: str) -> tuple[NetBuilder, list[str]]:
    """A bidirectional layer with gradients, wide enough for tiles."""
    b = NetBuilder("tagger")
    x = b.input("x", [-1, 20], levels=1)
    out, _ = getattr(b, kind)(x, 32, bidirectional=True)
    b.mean(b.square(out), name="loss")
    b.backward_from("loss")
    return b, [out.name, "loss", *b.gradients.values()]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_over_batches_are_traced(
    kind: str, traced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    b, names = layer(kind)
    parameters = Scope()
    b.initialize(parameters, OpContext(seed=3))
    rng = np.random.default_rng(1)
    batches = [rng.integers(1, 30, rows).tolist() for rows in (20, 3, 24, 24, 1, 40, 24)]

    def every() -> list[bytes]:
        scope, found = Scope(parent=parameters), []
        draws = np.random.default_rng(2)
        for lengths in batches:
            given = [draws.normal(size=(n, 20)).astype(np.float32) for n in lengths]
            made = b.run(scope, feed={"x": given}, fetch=names)
            found += [
                np.asarray(getattr(made[name], "data", made[name])).tobytes() for name in names
            ]
        return found

    found = every()
    assert sum(traced) > 1000
    monkeypatch.setenv("OPSCOPE_REBIND", "0")
    assert found == every()


def test_kernels_bind_few_steps(traced: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    bound: list[int] = []
    frame_of = loop._StepBinder._frame_of

    def counted(self: Any, step: int) -> Any:
        bound.append(step)
        return frame_of(self, step)

    monkeypatch.setattr(loop._StepBinder, "_frame_of", counted)
    b, _ = layer("lstm")
    scope = Scope()
    b.initialize(scope)
    rng = np.random.default_rng(0)
    for _ in range(12):
        given = [np.zeros((n, 20), np.float32) for n in rng.integers(5, 61, 8)]
        b.run(scope, feed={"x": given}, fetch=["loss"])
    assert len(bound) < 80 < sum(traced)


def test_a_trace_that_disagrees_binds_nothing(
    traced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Traced, "agrees", lambda *_: False)
    b, _ = layer("lstm")
    scope = Scope()
    b.initialize(scope)
    feed = {"x": [np.zeros((n, 20), np.float32) for n in (3, 5)]}
    with pytest.raises(RunError, match="to other fields than its trace"):
        b.run(scope, feed=feed, fetch=["loss"])
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    traced.clear()
    b.run(scope, feed=feed, fetch=["loss"])
    assert not traced
