"""Steps that differ in addresses alone are bound by one trace to what their kernels bind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.runtime import binding, executor
from opscope.framework.runtime.other_shapes import alike
from shape_nets import results

WIDTH, LAYERS = 8, 8


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two alike steps are bound together, and all of them are compared with what kernels bind; the
    numbers of steps that were bound so."""
    monkeypatch.setattr(alike, "_LEAST", 2)
    monkeypatch.setattr(executor, "_MANY", 1)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    counts: list[int] = []
    bind = alike._bound

    def counted(*args: Any) -> Any:
        calls = bind(*args)
        counts.append(len(calls))
        return calls

    monkeypatch.setattr(alike, "_bound", counted)
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_random_nets_compute_the_same(
    seed: int, few: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = results(seed, one_net=True)
    monkeypatch.setenv("OPSCOPE_REBIND", "0")
    wanted = results(seed, one_net=True)
    assert found.keys() == wanted.keys()
    assert all(value.tobytes() == wanted[name].tobytes() for name, value in found.items())
    assert not [record for record in caplog.records if "step by step" in record.getMessage()]


def layers(shared: bool, train: bool = False) -> tuple[NetBuilder, list[str]]:
    """Products, chains, means and softmax, over and over; with weights of their own, or shared."""
    b = NetBuilder("deep")
    h = x = b.input("x", [-1, WIDTH])
    weights = [b.parameter(f"w{n}", [WIDTH, WIDTH], "xavier") for n in range(LAYERS)]
    for n in range(LAYERS):
        h = b.add(b.tanh(b.matmul(h, weights[n % 3 if shared else n])), x)
        h = b.mul(h, b.softmax(b.sub(h, b.mean(h, axes=[1], keepdims=True))))
    fetched = [h.name]
    if train:
        cost = b.mean(b.square(h))
        b.backward_from(cost)
        b.add_optimization(0.1, "sgd")
        fetched = [cost.name, "w0"]
    return b, fetched


@pytest.mark.parametrize(("shared", "train"), [(False, True), (True, False)])
def test_layers_over_several_shapes(
    shared: bool, train: bool, few: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    b, fetched = layers(shared, train)
    found: list[list[np.ndarray]] = []
    for rebind in "10":
        monkeypatch.setenv("OPSCOPE_REBIND", rebind)
        scope = Scope()
        b.initialize(scope)
        rng = np.random.default_rng(0)
        found.append([])
        for name in sorted(scope.names()):
            scope.find(name).set(rng.normal(size=scope.numpy(name).shape).astype("f4") / 3)
        for rows in (4, 1, 7, 4, 9):
            feed = {"x": rng.normal(size=(rows, WIDTH)).astype("f4")}
            run = b.run(scope, feed=feed, fetch=fetched, need_backward=train)
            found[-1] += [run[name] for name in fetched]
        if rebind == "1":
            assert sum(few) >= LAYERS
            few.clear()
    assert not few
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))


def test_kernels_bind_few_steps_of_a_deep_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a kind and shape, whatever the number of layers."""
    counts: list[int] = []
    bind = binding.BoundSteps._bind

    def counted(self: Any, step: Any) -> Any:
        if type(self) is executor.Frame:
            counts.append(1)
        return bind(self, step)

    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    monkeypatch.setattr(binding.BoundSteps, "_bind", counted)
    b = NetBuilder("deep")
    h = x = b.input("x", [-1, WIDTH])
    w = b.parameter("w", [WIDTH, WIDTH], "xavier")
    for _ in range(300):
        h = b.add(b.tanh(b.matmul(h, w)), x)
    scope = Scope()
    b.initialize(scope)
    for rows in (3, 5, 8):
        counts.clear()
        run = b.run(scope, feed={"x": np.ones((rows, WIDTH), "f4")}, fetch=[h])
        assert run[h.name].shape == (rows, WIDTH)
        assert len(counts) <= 12


def test_weights_are_looked_at_once_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they lie, and whether they are packed; after a weight got another array, again."""
    asked: list[int] = []
    is_packed = alike._is_packed

    def counted(*args: Any) -> bool:
        asked.append(1)
        return is_packed(*args)

    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    monkeypatch.setattr(alike, "_is_packed", counted)
    b = NetBuilder("dense")
    h = b.input("x", [-1, WIDTH])
    for n in range(200):
        h = b.relu(b.fc(h, WIDTH, name=f"fc{n}"))
    scope = Scope()
    b.initialize(scope)
    for n in range(200):
        scope.find(f"fc{n}.w").set((np.eye(WIDTH)[::-1] + 0.01 * (n % 3)).astype("f4"))
    counts = []
    for rows in (3, 5, 8, 1, 6):
        if rows == 6:
            weight = scope.find("fc7.w")
            weight.bind(np.diag(np.arange(WIDTH, dtype="f4")))
        asked.clear()
        feed = {"x": np.ones((rows, WIDTH), "f4")}
        found = b.run(scope, feed=feed, fetch=[h], need_backward=False)[h.name]
        counts.append(len(asked))
        wanted = feed["x"]
        for n in range(200):
            w, bias = (scope.numpy(f"fc{n}.{one}") for one in ("w", "b"))
            wanted = np.maximum(wanted @ w + bias, 0)
        np.testing.assert_allclose(found, wanted, 1e-4)
    assert counts[0] >= 400 and counts[4] >= 400
    assert max(counts[1:4]) <= 12
