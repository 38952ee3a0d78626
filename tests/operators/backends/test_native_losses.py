"""Cross entropy of class numbers, means and small fills in C: equal to the plain kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, RunError, Scope
from opscope.cntk import operators as _operators  # noqa: F401  registers those of CNTK
from opscope.framework.base.cpu import threads
from opscope.framework.fusion import team
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.backends import row_kernels, rows

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")

PLAIN = "packed,mkl,blas,xp"
SIZES = [(1, 1), (5, 3), (200, 10), (7, 511), (9, 512), (6, 513), (4, 1300)]


def losses(size: tuple[int, int], dtype: Any, train: bool, **attrs: Any) -> dict[str, np.ndarray]:
    """Losses of random scores, some of them of no account; where it trains, all gradients."""
    rng = np.random.default_rng(size[1])
    net, scope = PlainNet(), Scope()
    outputs = {"out": "loss", "softmax": "softmax"} if train else {"out": "loss"}
    net.add_op("softmax_cross_entropy", {"x": "x", "label": "label"}, outputs, attrs)
    net.add_op("mean", ["loss"], ["cost"])
    wanted = ["loss", "cost"]
    if train:
        wanted += net.add_backward_ops(wrt=["x"]).values()
    label = rng.integers(0, size[1], size[0])
    if size[0] > 3:
        label[2] = attrs.get("ignore_index", -100)
    scope.feed({"x": (20 * rng.normal(size=size)).astype(dtype), "label": label})
    net.run(scope, OpContext(train=train, live_out=wanted))
    return {name: scope.numpy(name) for name in wanted}


@pytest.mark.parametrize("attrs", [{}, {"ignore_index": 0}])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_equal_to_the_plain_kernels(
    size: tuple[int, int], dtype: Any, train: bool, attrs: Any, monkeypatch: Any
) -> None:
    found = losses(size, dtype, train, **attrs)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", PLAIN)
    plain = losses(size, dtype, train, **attrs)
    near = 1e-5 if dtype == np.float32 else 1e-12
    for name, value in plain.items():
        np.testing.assert_allclose(found[name], value, rtol=near, atol=near)


def weighted(size: tuple[int, int], dtype: Any, attrs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Losses and gradients where samples have weights of the classes."""
    rng = np.random.default_rng(size[1])
    net, scope = PlainNet(), Scope()
    slots = {"x": "x", "label": "label"}
    if attrs.pop("by_class", False):
        slots["weight"] = "weight"
        scope.feed({"weight": rng.uniform(0.5, 2, size[1]).astype(dtype)})
    net.add_op("softmax_cross_entropy", slots, {"out": "loss", "softmax": "softmax"}, attrs)
    net.add_op("mean", ["loss"], ["cost"])
    wanted = ["loss", "cost", *net.add_backward_ops(wrt=["x"]).values()]
    label = rng.integers(0, size[1], size[0])
    if size[0] > 3:
        label[2] = -100
    given = rng.uniform(0, 0.7, size).astype(dtype) if attrs.get("soft_label") else label
    scope.feed({"x": (20 * rng.normal(size=size)).astype(dtype), "label": given})
    net.run(scope, OpContext(train=True, live_out=wanted))
    return {name: scope.numpy(name) for name in wanted}


_WEIGHTED: list[dict[str, Any]] = [
    {"soft_label": True},
    {"label_smoothing": 0.1},
    {"by_class": True},
    {"soft_label": True, "label_smoothing": 0.2, "by_class": True},
]


@pytest.mark.parametrize("attrs", _WEIGHTED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_weights_of_classes(
    size: tuple[int, int], dtype: Any, attrs: dict[str, Any], monkeypatch: Any
) -> None:
    found = weighted(size, dtype, dict(attrs))
    monkeypatch.setenv("OPSCOPE_LIBRARIES", PLAIN)
    plain = weighted(size, dtype, dict(attrs))
    near = 1e-5 if dtype == np.float32 else 1e-12
    for name, value in plain.items():
        np.testing.assert_allclose(found[name], value, rtol=near, atol=20 * near)


def criteria(size: tuple[int, int], dtype: Any, top: int) -> dict[str, np.ndarray]:
    """CNTK's cross entropy with its gradient, and classification error, of scores with ties."""
    rng = np.random.default_rng(size[1])
    net, scope = PlainNet(), Scope()
    slots = {"label": "label", "x": "x"}
    outputs = {"out": "loss", "log_softmax": "logs"}
    net.add_op("cntk.cross_entropy_with_softmax", slots, outputs)
    wanted = ["loss", *net.add_backward_ops("loss", wrt=["x"]).values()]
    net.add_op("cntk.classification_error", slots, {"out": "wrong"}, {"top": top})
    x = np.round(2 * rng.normal(size=size)).astype(dtype)
    label = rng.dirichlet(np.ones(size[1]), size[0]).astype(dtype)
    label[::2] = np.eye(size[1], dtype=dtype)[rng.integers(0, size[1], len(label[::2]))]
    scope.feed({"x": x, "label": label})
    wanted.append("wrong")
    net.run(scope, OpContext(train=True, live_out=wanted))
    return {name: scope.numpy(name) for name in wanted}


@pytest.mark.parametrize("top", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(0, 4), *SIZES])
def test_criteria_of_cntk(size: tuple[int, int], dtype: Any, top: int, monkeypatch: Any) -> None:
    found = criteria(size, dtype, top)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", PLAIN)
    plain = criteria(size, dtype, top)
    assert found["wrong"] == plain["wrong"]
    near = 1e-5 if dtype == np.float32 else 1e-12
    for name, value in plain.items():
        np.testing.assert_allclose(found[name], value, rtol=near, atol=near)


@pytest.mark.parametrize(("place", "wrong"), [(0, 3), (2, 3), (5, 4)])
def test_not_a_number_is_the_largest(place: int, wrong: int, monkeypatch: Any) -> None:
    """As NumPy's argmax has it, the first of several."""
    label = np.eye(6, dtype=np.float32)[[0, 2, 5, 5]]
    x = np.zeros((4, 6), np.float32)
    x[:, place] = x[:, 4] = np.nan
    x[3] = -np.inf
    counts = []
    for libraries in ("native,xp", PLAIN):
        monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
        net, scope = PlainNet(), Scope()
        net.add_op("cntk.classification_error", {"label": "label", "x": "x"}, {"out": "wrong"})
        scope.feed({"label": label, "x": x})
        net.run(scope, OpContext(live_out=["wrong"]))
        counts.append(float(scope.numpy("wrong")[0]))
    assert counts == [wrong, wrong]


@pytest.mark.parametrize("size", SIZES)
def test_equal_for_every_number_of_threads(size: tuple[int, int], monkeypatch: Any) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(rows, "EXP", 1_000_000)
    monkeypatch.setattr(rows, "TOP", 1_000_000)
    monkeypatch.setattr(row_kernels, "_PULL", 1_000_000)
    with threads.threads_set(3):
        made = []
        for number in (1, 2, 3, 3):
            threads.POOL[0] = number
            parts = losses(size, np.float32, True), weighted(size, np.float32, {"soft_label": True})
            made.append(dict(enumerate([*parts[0].values(), *parts[1].values()])))
            made[-1] |= criteria(size, np.float32, 1)
    for other in made[1:]:
        for name, value in made[0].items():
            np.testing.assert_array_equal(other[name], value)


def trained() -> tuple[NetBuilder, Scope, dict[str, np.ndarray]]:
    """A net whose step is one list but for the places where labels are checked."""
    b = NetBuilder("small")
    hidden = b.fc(b.input("x", [-1, 6]), size=8, activation="relu")
    b.mean(b.softmax_cross_entropy(b.fc(hidden, 3), b.input("label", [-1], "int64")), name="cost")
    b.backward_from("cost")
    b.add_optimization(0.1, "sgd")
    scope, rng = Scope(), np.random.default_rng(0)
    b.initialize(scope, OpContext(seed=1))
    feed = {"x": rng.normal(size=(8, 6)).astype("f4"), "label": rng.integers(0, 3, 8)}
    return b, scope, feed


def test_a_wrong_label_stops_the_step(monkeypatch: Any) -> None:
    """Nothing behind the loss runs, as with the plain kernels, and the next step is as ever."""
    told, ends = [], []
    for libraries in ("packed,direct,native,mkl,blas", PLAIN):
        monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
        b, scope, feed = trained()
        names = [var.name for var in b.op_list.vars if var.kind == "parameter"]
        b.run(scope, feed=feed, fetch=["cost"])
        before = {name: scope.numpy(name) for name in names}
        for wrong in (3, -1):
            bad = feed["label"].copy()
            bad[5] = wrong
            with pytest.raises(RunError) as error:
                b.run(scope, feed={**feed, "label": bad}, fetch=["cost"])
            told.append(str(error.value))
        for name, value in before.items():
            np.testing.assert_array_equal(scope.numpy(name), value)
        ends.append(b.run(scope, feed=feed, fetch=["cost"])["cost"])
    assert told[:2] == told[2:] and "holds -1 at sample 5" in told[1]
    np.testing.assert_allclose(*ends, rtol=1e-5)


def test_a_gradient_alone_checks_its_labels() -> None:
    net, scope = PlainNet(), Scope()
    outputs = {"out": "loss", "softmax": "softmax"}
    net.add_op("softmax_cross_entropy", {"x": "x", "label": "label"}, outputs)
    net.add_backward_ops(wrt=["x"])
    scope.feed({"x": np.zeros((4, 3), "f4"), "label": np.array([0, 1, 2, 1])})
    context = OpContext(train=True, live_out=[var.name for var in net.op_list.vars])
    net.run(scope, context)
    wanted = scope.numpy("x@GRAD")
    scope.feed({"label": np.array([0, 1, 1 << 40, 1])})
    with pytest.raises(RunError, match="at sample 2, want 0 .. 2"):
        net.run(scope, context, begin=1)
    scope.feed({"label": np.array([0, 1, 2, 1])})
    net.run(scope, context, begin=1)
    np.testing.assert_array_equal(scope.numpy("x@GRAD"), wanted)


def test_a_step_is_a_few_calls() -> None:
    b, scope, feed = trained()
    b.run(scope, feed=feed, fetch=["cost"])
    (frame,) = scope.frames()
    calls, _ = frame._in_few_calls()
    plain = [call for call in frame.calls if team.task_of(call) is None]
    assert len(calls) <= 3 + 2 * len(plain)
