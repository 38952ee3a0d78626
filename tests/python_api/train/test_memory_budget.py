"""`train(memory=...)` and `predict(memory=...)`: the same bits, within the budget."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.backend import on_device
from opscope.framework.base.context import Hook
from opscope.framework.base.errors import OpscopeError, RanksError, RunError
from opscope.framework.ir.desc import PARAMETER, STATE
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.runtime.budget import peak_bytes
from opscope.python_api.train.half import to_half
from opscope.testing import device_double

Values = dict[str, np.ndarray]
RNG = np.random.default_rng(0)
ROWS = 64
LENGTHS = RNG.integers(3, 12, 60).tolist()


def _ready(b: NetBuilder, values: Any) -> NetBuilder:
    b.mean(b.square(values), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.01, "adam")
    return b


def mlp(depth: int = 6) -> tuple[NetBuilder, Any]:
    b = NetBuilder("mlp")
    h = b.input("x", [-1, 24])
    for _ in range(depth):
        h = b.dropout(b.fc(h, size=32, activation="gelu"), p=0.2)
    return _ready(b, b.fc(b.layer_norm(h), size=2)), RNG.normal(size=(2 * ROWS + 7, 24)).astype(
        np.float32
    )


def conv() -> tuple[NetBuilder, Any]:
    b = NetBuilder("conv")
    h = b.input("x", [-1, 3, 8, 8])
    for _ in range(4):
        h = b.relu(b.batch_norm(b.conv2d(h, 6, 3, padding=1)))
    return _ready(b, b.fc(b.reshape(h, shape=[-1, 384]), size=2)), RNG.normal(
        size=(2 * ROWS, 3, 8, 8)
    ).astype(np.float32)


def transformer() -> tuple[NetBuilder, Any]:
    b = NetBuilder("transformer")
    h = b.input("x", [-1, 6, 16])
    for _ in range(3):
        h = b.transformer_encoder_layer(h, heads=2, feedforward=32, dropout=0.1)
    return _ready(b, h), RNG.normal(size=(2 * ROWS, 6, 16)).astype(np.float32)


def lstm() -> tuple[NetBuilder, Any]:
    b = NetBuilder("lstm")
    h = b.input("x", [-1, 8], levels=1)
    for _ in range(2):
        h = b.gelu(b.fc(b.lstm(h, 16)[0], size=32, activation="tanh"))
    return _ready(b, h), [RNG.normal(size=(n, 8)).astype(np.float32) for n in LENGTHS]


MAKERS = {make.__name__: make for make in (mlp, conv, transformer, lstm)}


class Planned(Hook):
    """The bytes of each run, as its plan has them, and what a place holds at most."""

    def __init__(self, held: Callable[[], int] = lambda: 0) -> None:
        self.peaks: list[int] = []
        self.held: list[int] = []
        self._held = held

    def before_run(self, frame: Any) -> None:
        self.peaks.append(peak_bytes(frame.plan))
        self.held.append(0)

    def after_op(self, frame: Any, index: int) -> None:
        self.held[-1] = max(self.held[-1], self._held())


def fit(
    made: tuple[NetBuilder, Any], memory: Any = None, rows: int = ROWS, epochs: int = 2, **more: Any
) -> tuple[Values, list[float]]:
    b, x = made
    scope = Scope()
    data = opscope.Minibatches({"x": x}, rows, seed=1)
    history = opscope.train(
        b, data, epochs=epochs, scope=scope, progress=False, seed=4, memory=memory, **more
    )
    kept = [name for name, var in b.net.vars.items() if var.kind in (PARAMETER, STATE)]
    return {n: scope.numpy(n).copy() for n in kept}, [row["loss"] for row in history.rows]


def least(made: tuple[NetBuilder, Any], **more: Any) -> int:
    """The smallest budget that suffices, as the error says."""
    with pytest.raises(RunError, match="the smallest that suffices is") as caught:
        fit(made, 1000, **more)
    found = re.search(r"suffices is (\d+) bytes", str(caught.value))
    assert found is not None
    return int(found[1])


def assert_same(one: tuple[Values, list[float]], other: tuple[Values, list[float]]) -> None:
    assert one[0].keys() == other[0].keys()
    for name, value in one[0].items():
        np.testing.assert_array_equal(other[0][name], value, err_msg=name)
    assert one[1] == other[1]


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_bits_within_the_budget(name: str) -> None:
    made = MAKERS[name]()
    plain, watched = Planned(), Planned()
    want = fit(made, hooks=[plain])
    budget = least(made)
    assert_same(want, fit(made, budget, hooks=[watched]))
    assert 0 < max(watched.peaks) <= budget
    assert max(watched.peaks) < max(plain.peaks) * (0.95 if name == "lstm" else 0.8)
    with pytest.raises(RunError, match=f"suffices is {budget} bytes"):
        fit(made, budget - 1)
    between = (budget + max(plain.peaks)) // 2
    assert_same(want, fit(made, max(between, budget)))


@pytest.mark.parametrize("name", MAKERS)
def test_a_device_holds_no_more(name: str) -> None:
    made = MAKERS[name]()
    with device_double.by_default() as xp, on_device(device_double.DOUBLE):
        want = fit(made)
        budget = least(made)
        pool = xp.get_default_memory_pool()
        gc.collect()
        watched = Planned(pool.used_bytes)
        assert_same(want, fit(made, budget, hooks=[watched]))
    assert max(watched.held) <= budget
    # What is planned is nearly all of it, beside what kernels work in.
    assert max(watched.peaks) <= max(watched.held)


def test_a_device_moves_to_the_host_what_cannot_be_repeated() -> None:
    made = mlp(10)
    names: list[set[str]] = []

    class Types(Hook):
        def before_run(self, frame: Any) -> None:
            names.append({op.type for op in frame.plan.operators})

    with device_double.by_default():
        budget = least(made)
        fit(made, budget, hooks=[Types()])
    on_host = least(made)
    assert {"to_host_start", "from_host_wait"} <= names[0]
    assert budget != on_host


def test_a_step_takes_one_array_and_then_nothing() -> None:
    """A plan asks the pool of a device once for its temporaries; steady steps ask for nothing."""
    arrays: list[int] = []

    class Arrays(Hook):
        def before_run(self, frame: Any) -> None:
            arena = {id(array) for array in frame._memory._taken.values()}
            assert len(arena) <= 1 and len(frame.plan.blocks) > 3
            self.before = pool.used_bytes()

        def after_run(self, frame: Any) -> None:
            arrays.append(pool.used_bytes() - self.before)

    b, x = mlp()
    with device_double.by_default() as xp, on_device(device_double.DOUBLE):
        pool = xp.get_default_memory_pool()
        fit((b, x[: 2 * ROWS]), epochs=3, hooks=[Arrays()])
    assert arrays[2:] == [0] * (len(arrays) - 2) and len(arrays) == 6


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_ranks(zero: int) -> None:
    b, x = mlp(4)
    made = b, x[:ROWS]

    def budgeted(memory: Any) -> list[tuple[Values, list[float]]]:
        return DryWorld(2).run(
            lambda ranks: fit(made, memory, epochs=2, communicator=ranks, zero=zero)
        )

    want = budgeted(None)
    with pytest.raises(RunError, match="suffices is") as caught:
        budgeted(1000)
    found = re.search(r"suffices is (\d+) bytes", str(caught.value))
    assert found is not None and not isinstance(caught.value, RanksError)
    for one, other in zip(want, budgeted(int(found[1])), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("rows", [2, ROWS])
def test_accumulated_gradients(rows: int) -> None:
    """The states of the optimizer count, which updates alone read."""
    b, x = mlp()
    made = b, x[: 4 * rows]
    want = fit(made, rows=rows, accumulate=2)
    budget = least(made, rows=rows, accumulate=2)
    assert_same(want, fit(made, budget, rows=rows, accumulate=2))
    data = opscope.Minibatches({"x": made[1]}, rows)
    history = opscope.train(
        b, data, scope=Scope(), progress=False, memory=budget, accumulate=2, epochs=1
    )
    assert history.memory[0].total <= budget


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str) -> None:
    b, x = mlp()
    made = to_half(b, dtype), x.astype(to_half(b, dtype).dtype)
    plain, watched = Planned(), Planned()
    want = fit(made, hooks=[plain])
    assert_same(want, fit(made, least(made), hooks=[watched]))
    assert max(watched.peaks) < 0.95 * max(plain.peaks)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("device", [False, True])
def test_a_net_that_repeats_operators_already(dtype: str, device: bool) -> None:
    b = NetBuilder("repeats")
    h = b.input("x", [-1, 24])
    for _ in range(5):
        h = b.gelu(b.fc(b.layer_norm(h), size=32))
    b.mean(b.square(b.fc(h, size=2)), name="loss")
    b.backward_from("loss", recompute=True)
    b.add_optimization(0.01, "adam")
    b = b if dtype == "float32" else to_half(b, dtype)
    made = b, RNG.normal(size=(ROWS, 24)).astype(b.dtype)
    with device_double.by_default() if device else nullcontext():
        plain, watched = Planned(), Planned()
        want = fit(made, hooks=[plain])
        budget = least(made)
        assert_same(want, fit(made, budget, hooks=[watched]))
    assert max(watched.peaks) <= budget and max(watched.peaks) < max(plain.peaks)


def test_larger_minibatches_are_fitted_anew() -> None:
    b, x = mlp()
    batches = [{"x": x[:rows]} for rows in (20, 64, 20, 100, 64)]

    def run(memory: Any, hooks: Any = ()) -> tuple[Values, list[float]]:
        scope = Scope()
        history = opscope.train(
            b, batches, epochs=2, scope=scope, progress=False, seed=4, memory=memory, hooks=hooks
        )
        return {"w": scope.numpy("fc_0.w").copy()}, [row["loss"] for row in history.rows]

    want = run(None)
    with pytest.raises(RunError, match=r"epoch 1, minibatch 1: memory=1000: "):
        run(1000)
    budget = least((b, x[:100]), rows=100)
    watched = Planned()
    assert_same(want, run(budget, [watched]))
    assert max(watched.peaks) <= budget


def test_a_checkpoint_resumes_in_other_memory(tmp_path: Any) -> None:
    made = mlp()
    budget = least(made)
    want = fit(made, epochs=3)
    fit(made, budget, epochs=1, checkpoint=tmp_path / "run")
    assert_same(want, fit(made, None, epochs=3, checkpoint=tmp_path / "run", resume=True))


def test_evaluation_is_held_to_it() -> None:
    b, x = mlp()
    budget = least((b, x))
    small = opscope.Minibatches({"x": x}, 32, shuffle=False)
    assert_same(fit((b, x), evaluate=small), fit((b, x), budget, evaluate=small))
    large = [{"x": np.tile(x, (40, 1))}]
    with pytest.raises(RunError, match=r"evaluation: memory=\d+: the run takes \d+ bytes; smaller"):
        fit((b, x), budget, evaluate=large)


def test_predictions() -> None:
    b, scope = NetBuilder("skips"), Scope()
    h = b.input("x", [-1, 24])
    skips = []
    for _ in range(4):
        h = b.fc(h, size=64, activation="gelu")
        skips.append(b.gelu(h))
    for skip in reversed(skips):
        h = b.fc(b.concat([h, skip], axis=1), size=64, activation="tanh")
    b.fc(h, size=2, name="y")
    b.initialize(scope, opscope.OpContext(seed=1))
    x = RNG.normal(size=(100, 24)).astype(np.float32)
    want = b.predict({"x": x}, scope=scope)["y"]
    with pytest.raises(RunError, match="a smaller batch_size helps") as caught:
        b.predict({"x": x}, scope=scope, memory=1000)
    found = re.search(r"suffices is (\d+) bytes", str(caught.value))
    assert found is not None
    for memory in (int(found[1]), "80%", "4GiB"):
        got = b.predict({"x": x}, scope=scope, memory=memory)["y"]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("given", ["8XB", 0, True, "", "120%", 1.5])
def test_malformed(given: Any) -> None:
    made = mlp(1)
    with pytest.raises(OpscopeError, match="train: memory=.*: want a number of bytes, or a text"):
        fit(made, given)
    b, x = made
    with pytest.raises(OpscopeError, match="predict: memory=.*: want a number of bytes"):
        scope = Scope()
        b.initialize(scope)
        b.predict({"x": x}, scope=scope, memory=given)


def test_the_error_says_what_holds_it() -> None:
    with pytest.raises(RunError) as caught:
        fit(mlp(), "10kB")
    text = str(caught.value)
    for part in ("epoch 1, minibatch 1", "memory=10000", "parameters", "temporaries", "float32[64"):
        assert part in text
    assert "accumulate=" in text and "zero=" in text
