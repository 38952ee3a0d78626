"""Weights that stay packed from run to run: equal numbers, and no change of them goes unseen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from native_calls import calls_noted
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.fusion import team
from opscope.framework.ir.desc import PARAMETER, make_var
from opscope.framework.runtime.executor import Frame
from opscope.framework.runtime.hooks import Hook
from opscope.framework.runtime.plain_net import PlainNet
from opscope.framework.runtime.plans import kept_factors
from opscope.operators.backends.products import packed_gemm

pytestmark = pytest.mark.skipif(
    team.library() is None or packed_gemm.library() is None, reason="there is no native library"
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 160)).astype("f4")


class Net:
    """A product with a large matrix and one more, with a gradient step beside them."""

    def __init__(self, dtype: str = "float32", turned: bool = False) -> None:
        self.b = b = NetBuilder("net")
        x = b.input("x", [-1, 160], dtype)
        start = RNG.normal(size=(128, 160) if turned else (160, 128)).astype(dtype)
        w = b.parameter("w", list(start.shape), init=start, dtype=dtype)
        y = b.matmul(x, w, transpose_y=turned)
        u = b.parameter(
            "u", [128, 136], init=RNG.normal(size=(128, 136)).astype(dtype), dtype=dtype
        )
        c = b.parameter("c", [136], init=RNG.normal(size=136).astype(dtype), dtype=dtype)
        self.y = b.relu(b.matmul(y, u) + c)
        self.turned, self.scope = turned, Scope()
        b.initialize(self.scope)
        self.dtype = dtype

    def run(self, rows: int = 40, scope: Scope | None = None, hooks: Any = ()) -> np.ndarray:
        scope = scope or self.scope
        scope.feed({"x": X[:rows].astype(self.dtype)})
        context = OpContext(train=False, live_out=[self.y.name], hooks=list(hooks))
        self.b.net.run(scope, context)
        return scope.numpy(self.y.name)

    def wanted(self, rows: int = 40) -> np.ndarray:
        w, u, c = (self.scope.numpy(name).astype("f8") for name in ("w", "u", "c"))
        return np.maximum(X[:rows] @ (w.T if self.turned else w) @ u + c, 0)

    def frames(self) -> list[Frame]:
        return self.scope.frames()

    def kept(self) -> set[str]:
        """Names of the weights that are packed."""
        return {name for frame in self.frames() if frame.kept for name in frame.kept._used}


def check(net: Net, rows: int = 40) -> None:
    near = 1e-5 if net.dtype == "float32" else 1e-12
    wanted = net.wanted(rows)
    np.testing.assert_allclose(net.run(rows), wanted, rtol=near, atol=near * abs(wanted).max())


@pytest.mark.parametrize("columns", [3, 10, 17])
@pytest.mark.parametrize("intel", [False, True])
def test_few_columns(columns: int, intel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of some classes: MKL makes code for them on Intel's processors alone."""
    monkeypatch.setattr(packed_gemm, "is_intel", lambda: intel)
    b = NetBuilder("scores")
    w = b.parameter("w", [800, columns], init=RNG.normal(size=(800, columns)).astype("f4"))
    y = b.matmul(b.input("x", [-1, 800]), w)
    scope = Scope()
    b.initialize(scope)
    x = RNG.normal(size=(40, 800)).astype("f4")
    for factor in (1, 2):  # packed again when they have changed
        scope.var("w").set(scope.numpy("w") * factor)
        scope.feed({"x": x})
        b.net.run(scope, OpContext(train=False, live_out=[y.name]))
        wanted = x.astype("f8") @ scope.numpy("w")
        np.testing.assert_allclose(scope.numpy(y.name), wanted, rtol=1e-4, atol=1e-3)
    used = {name for frame in scope.frames() if frame.kept for name in frame.kept._used}
    assert used == (set() if intel else {"w"})


@pytest.mark.parametrize("rows", [1, 2, 11, 12, 33, 40])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("amx", ["0", "1"])
def test_numbers(
    rows: int, turned: bool, dtype: str, amx: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSCOPE_AMX", amx)
    net = Net(dtype, turned)
    check(net, rows)
    check(net, rows)
    assert rows == 1 or net.kept() == {"w", "u"}
    found = net.run(rows)
    with opscope.options(keep_packed=False):
        anew = net.run(rows)
    np.testing.assert_allclose(anew, found, rtol=1e-5, atol=1e-5 * abs(found).max())


def test_the_switch() -> None:
    net = Net()
    with opscope.options(keep_packed=False):
        check(net)
    assert not net.kept()
    check(net)
    assert net.kept()


def _in_place(net: Net) -> None:
    net.scope.get("w").array[3] += 1


def _by_set(net: Net) -> None:
    net.scope.get("w").set(net.scope.numpy("w") * 2)


def _by_feed(net: Net) -> None:
    net.scope.feed({"w": -net.scope.numpy("w")})


def _by_share(net: Net) -> None:
    net.scope.get("w").share(net.scope.numpy("w") + 1)


def _by_bind(net: Net) -> None:
    net.scope.get("w").bind(net.scope.numpy("w") + 1)


def _by_copy(net: Net) -> None:
    other = Net()
    opscope.copy(other.scope, net.scope, ["w", "u"])


def _by_optimizer(net: Net) -> None:
    """A net that trains the same parameters in the same scope."""
    b = NetBuilder("trains")
    x = b.input("x", [-1, 160])
    w = b.parameter("w", [160, 128])
    b.backward_from(b.mean(b.square(b.matmul(x, w))))
    b.add_optimization(learning_rate=1.0, type="sgd")
    before = net.scope.numpy("w")
    b.initialize(net.scope, share=True)
    b.net.run(net.scope, OpContext(train=True))
    assert abs(net.scope.numpy("w") - before).max() > 1e-3


def _by_operator(net: Net) -> None:
    """An operator that writes over the parameter."""
    other = opscope.PlainNet()
    other.add_op("scale", ["w"], ["w"], {"scale": 1.5})
    other.run(net.scope)


CHANGES = [
    _in_place,
    _by_set,
    _by_feed,
    _by_share,
    _by_bind,
    _by_copy,
    _by_optimizer,
    _by_operator,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(change: Callable[[Net], None]) -> None:
    net = Net()
    check(net)
    check(net, 20)
    before = net.run()
    change(net)
    check(net)
    check(net, 20)
    assert abs(net.run() - before).max() > 1e-3
    change(net)
    check(net)


class Loop(Net):
    """States multiplied by a large matrix, step by step."""

    def __init__(self) -> None:
        self.b = b = NetBuilder("loop")
        x = b.input("x", [-1, 160], levels=1)
        w = b.parameter("w", [160, 160], init=RNG.normal(size=(160, 160)).astype("f4") / 100)
        with b.recurrent("r") as step:
            row, before = step.input(x), step.memory(160)
            after = b.tanh(row + b.matmul(before, w))
            step.update(before, after)
            self.y = step.output(after)
        self.scope, self.dtype = Scope(), "float32"
        b.initialize(self.scope)

    def run(self, rows: int = 40, scope: Scope | None = None, hooks: Any = ()) -> np.ndarray:
        self.scope.feed({"x": opscope.Sequences.from_list([X[:rows]])})
        self.b.net.run(self.scope, OpContext(train=False, live_out=[self.y.name]))
        return self.scope.numpy(self.y.name)

    def wanted(self, rows: int = 40) -> np.ndarray:
        w, states = self.scope.numpy("w").astype("f8"), [np.zeros(160)]
        for row in X[:rows]:
            states.append(np.tanh(row + states[-1] @ w))
        return np.array(states[1:])


@pytest.mark.parametrize("change", [_in_place, _by_set, _by_share, _by_operator])
def test_changes_are_seen_in_loops(change: Callable[[Net], None]) -> None:
    net = Loop()
    check(net)
    assert net.kept() == {"w"}
    for rows in (20, 40, 40):
        change(net)
        check(net, rows)


def test_initialized_again() -> None:
    net = Net()
    first = net.run()
    _by_set(net)
    assert abs(net.run() - first).max() > 1e-3
    net.b.initialize(net.scope, overwrite=True)
    np.testing.assert_array_equal(net.run(), first)
    assert net.kept() == {"w", "u"}


@pytest.mark.parametrize("change", [_by_set, _by_feed, _by_optimizer, _by_operator, _by_copy])
def test_what_is_counted_stays_packed(change: Callable[[Net], None]) -> None:
    net = Net()
    check(net)
    change(net)
    check(net)
    assert net.kept() == {"w", "u"}


def test_an_array_that_was_handed_out_may_change_at_any_time() -> None:
    net = Net()
    held = net.scope.get("w").array
    for _ in range(3):
        held *= 1.5
        check(net)
    assert net.kept() == {"u"}


def test_an_array_that_is_handed_out_between_runs() -> None:
    net = Net()
    check(net)
    held = net.scope.get("w").array
    for _ in range(3):
        check(net)
        held *= 1.5
        check(net)
    assert net.kept() == {"u"}
    net.scope.get("w").clear()
    net.scope.get("w").set(np.ones((160, 128), "f4"))  # an array of its own again
    check(net)
    assert net.kept() == {"w", "u"}


def test_a_shared_array_is_never_packed() -> None:
    net, mine = Net(), RNG.normal(size=(160, 128)).astype("f4")
    net.scope.get("w").share(mine)
    for _ in range(3):
        mine *= 1.5
        check(net)
    assert net.kept() == {"u"}


def test_a_hook_that_is_given_the_array() -> None:
    net = Net()
    check(net)
    held = []

    class Holds(Hook):
        def after_run(self, frame: Frame) -> None:
            held.append(frame.array("w"))

    net.run(hooks=[Holds()])
    check(net)
    held[0] *= 2
    check(net)
    assert net.kept() == {"u"}


def test_frames_of_a_scope_share_what_was_packed() -> None:
    net = Net()
    check(net, 40)
    check(net, 30)
    one, two = net.frames()
    assert one is not two and one.kept and two.kept
    assert one.kept._used["w"] is two.kept._used["w"]
    assert len(one.kept._used["w"]._entries) == 1
    _by_set(net)
    check(net, 30)
    check(net, 40)


class Folded:
    """A convolution and a batch norm by statistics that no run moves."""

    names = "w", "b", "scale", "bias", "mean", "variance"

    def __init__(self, groups: int = 1) -> None:
        self.net, self.scope, self.groups = PlainNet(), Scope(), groups
        for name in self.names:
            shape = (20, 5, 3, 3) if name == "w" else (20,)
            self.net.add_var(make_var(name, shape, np.dtype("f4"), PARAMETER))
            self.scope.feed({name: RNG.uniform(0.5, 1.5, shape).astype("f4")})
        self.x = RNG.normal(size=(2, 5 * groups, 7, 8)).astype("f4")
        attrs = {"padding": 1, "groups": groups}
        self.net.add_op("conv2d", {"x": "x", "w": "w", "b": "b"}, {"out": "sums"}, attrs)
        inputs = {"x": "sums", **{name: name for name in self.names[2:]}}
        outputs = {"out": "out", "saved_mean": "saved_mean", "saved_inv_std": "saved_inv_std"}
        self.net.add_op("batch_norm", inputs, outputs, {"epsilon": 0.1})

    def run(self, scope: Scope | None = None) -> np.ndarray:
        scope = scope or self.scope
        scope.feed({"x": self.x})
        self.net.run(scope, OpContext(train=False, live_out=["out"]))
        return scope.numpy("out")

    def check(self) -> None:
        w, b, scale, bias, mean, variance = (
            self.scope.numpy(name).astype("f8") for name in self.names
        )
        padded = np.pad(self.x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        parts = zip(np.split(windows, self.groups, 1), np.split(w, self.groups), strict=True)
        sums = np.concatenate([np.einsum("nchwij,ocij->nohw", *one) for one in parts], 1)
        sums += b[:, None, None]
        factor = scale / np.sqrt(variance + 0.1)
        wanted = (sums - mean[:, None, None]) * factor[:, None, None] + bias[:, None, None]
        np.testing.assert_allclose(self.run(), wanted, rtol=1e-4, atol=1e-4)

    def kept(self) -> set[str]:
        return {name for frame in self.scope.frames() if frame.kept for name in frame.kept._used}


def test_a_fold_of_a_batch_norm_stays_until_one_of_its_arrays_changes() -> None:
    one = Folded()
    one.check()
    if "scale" not in one.kept():
        pytest.skip("convolutions are computed by another library")
    assert one.kept() == set(one.names)
    for name in one.names:
        one.scope.feed({name: one.scope.numpy(name) * 1.5})
        one.check()
    for name in one.names:
        one.scope.get(name).set(one.scope.numpy(name) / 2)
    one.check()
    assert one.kept() == set(one.names)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_fold_of_groups_settles_their_channels_once(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = calls_noted(monkeypatch)
    one = Folded(groups)
    one.check()
    if "scale" not in one.kept():
        pytest.skip("convolutions are computed by another library")
    assert added.count("settle") == 1 and added.count("fold") == groups
    for name in one.names:
        one.scope.feed({name: one.scope.numpy(name) * 1.5})
        one.check()
    assert one.kept() == set(one.names)


@pytest.mark.parametrize("name", ["b", "scale", "mean"])
def test_a_fold_of_arrays_of_which_one_is_held_elsewhere(name: str) -> None:
    one = Folded()
    one.check()
    held = one.scope.get(name).array
    for _ in range(2):
        one.check()
        held *= 1.5
        one.check()
    assert name not in one.kept()
    one.scope.get("variance").set(one.scope.numpy("variance") * 2)
    one.check()


def test_a_fold_of_another_array() -> None:
    one = Folded()
    one.check()
    one.scope.get("mean").clear()
    one.scope.get("mean").set(np.full(20, 3, "f4"))
    one.check()
    one.scope.get("scale").set(one.scope.numpy("scale") * 2)
    one.check()


def test_kids_of_a_scope_see_changes_of_its_parameters() -> None:
    net = Net()
    kid = net.scope.new_scope()
    kid.var("x")
    for change in (_by_set, _in_place, _by_feed):
        np.testing.assert_allclose(net.run(scope=kid), net.wanted(), rtol=1e-4, atol=1e-3)
        change(net)
    np.testing.assert_allclose(net.run(scope=kid), net.wanted(), rtol=1e-4, atol=1e-3)


def test_predict_sees_training(tmp_path: Path) -> None:
    net = Net()
    opscope.save(net.b, net.scope, tmp_path / "net.pb")
    loaded = opscope.load(tmp_path / "net.pb")
    first = loaded.predict({"x": X}, fetch=[net.y.name])[net.y.name]
    np.testing.assert_allclose(first, net.wanted(), rtol=1e-4, atol=1e-3)
    assert not loaded.scope.get("w").exposed
    loaded.scope.feed({"w": loaded.scope.numpy("w") * 2})
    again = loaded.predict({"x": X}, fetch=[net.y.name])[net.y.name]
    _by_set(net)
    np.testing.assert_allclose(again, net.wanted(), rtol=1e-4, atol=1e-3)


def test_what_only_reads_hands_nothing_out(tmp_path: Path) -> None:
    net = Net()
    check(net)
    net.scope.numpy("w")
    opscope.save(net.b, net.scope, tmp_path / "net.pb")
    opscope.copy(net.scope, Scope(), ["w"])
    assert not net.scope.get("w").exposed
    assert net.kept() == {"w", "u"}


@pytest.mark.skipif(sys.platform == "emscripten", reason="it has no threads")
def test_several_threads_predict(tmp_path: Path) -> None:
    net = Net()
    opscope.save(net.b, net.scope, tmp_path / "net.pb")
    loaded = opscope.load(tmp_path / "net.pb")
    name = net.y.name
    for _ in range(3):
        _by_set(net)
        loaded.scope.feed({"w": net.scope.numpy("w")})
        wanted = net.wanted()
        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(loaded.predict, {"x": X}, fetch=[name]) for _ in range(9)]
        for job in jobs:
            near = 1e-5 * abs(wanted).max()
            np.testing.assert_allclose(job.result()[name], wanted, rtol=1e-5, atol=near)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    check(net)
    assert net.kept() == {"w", "u"}
    # How much packed weights take depends on the processor: AMX keeps three parts of each number.
    taken = sum(frame.kept._bytes for frame in net.frames() if frame.kept)
    monkeypatch.setattr(kept_factors, "_MOST", taken - 1)
    net = Net()
    check(net)
    assert len(net.kept()) == 1


def test_nets_that_train_keep_nothing() -> None:
    net = Net()
    net.b.backward_from(net.b.mean(net.b.square(net.y)))
    net.scope.feed({"x": X})
    net.b.net.run(net.scope, OpContext(train=True))
    assert not net.kept()


def test_infinity_and_nan() -> None:
    net = Net()
    weights = net.scope.numpy("w")
    weights[3, 4], weights[7, 60] = np.inf, np.nan
    check(net)
    net.scope.feed({"w": weights})
    found = net.run()
    assert not np.isfinite(found).all(1).any()


@pytest.mark.parametrize("keep", ["0", "1"])
@pytest.mark.parametrize("rank", [1, 2])
def test_filters(rank: int, keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_KEEP_PACKED", keep)
    b, scope = NetBuilder("images"), Scope()
    x = b.input("x", [-1, 3, *(12,) * rank])
    conv = (b.conv1d, b.conv2d)[rank - 1]
    y = conv(x, filters=20, kernel=(5,) * rank if rank > 1 else 5, bias=False, name="y")
    b.initialize(scope)
    filters = next(name for name in scope.names() if name.startswith("y.w"))
    given = RNG.normal(size=(4, 3, *(12,) * rank)).astype("f4")
    held = None
    for change in ("nothing", "set", "feed", "nothing", "array", "held", "held"):
        w = scope.numpy(filters)
        if change == "set":
            scope.get(filters).set(w * 2)
        elif change == "feed":
            scope.feed({filters: w[::-1]})
        elif change == "array":
            held = scope.get(filters).array
        elif change == "held":
            held += 1
        scope.feed({"x": given})
        b.net.run(scope, OpContext(train=False, live_out=[y.name]))
        windows = np.lib.stride_tricks.sliding_window_view(given, (5,) * rank, range(2, 2 + rank))
        wanted = np.tensordot(
            windows, scope.numpy(filters), ([1, *range(2 + rank, 2 + 2 * rank)], range(1, 2 + rank))
        )
        wanted = np.moveaxis(wanted, -1, 1)
        near = 1e-5 * abs(wanted).max()
        np.testing.assert_allclose(scope.numpy(y.name), wanted, rtol=1e-5, atol=near)
    frames = scope.frames()
    assert not any(frame.kept and frame.kept._used for frame in frames)


def test_imported_models(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    net = Net()
    path = str(tmp_path / "net.onnx")
    opscope.to_onnx(net.b, path, scope=net.scope, outputs=[net.y.name])
    assert not net.scope.get("w").exposed
    model = opscope.from_onnx(path)
    for change in (lambda: None, lambda: _by_set(net), lambda: _in_place(net)):
        change()
        for name in ("w", "u", "c"):
            model.scope.feed({name: net.scope.numpy(name)})
        found = model.run({"x": X})
        found = found[net.y.name] if isinstance(found, dict) else found[0]
        near = 1e-5 * abs(net.wanted()).max()
        np.testing.assert_allclose(found, net.wanted(), rtol=1e-5, atol=near)
    assert not model.scope.get("w").exposed
