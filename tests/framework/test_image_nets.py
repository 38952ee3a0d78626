"""Random nets over images: memory layouts, tails and libraries change no number."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import opscope
from opscope.framework.base.cpu import threads
from opscope.framework.fusion import chains
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.direct import convolution_sums
from opscope.operators.direct.tail import ACTIVATIONS

SWITCHES: dict[str, tuple[Any, Any]] = {
    "libraries": ("packed,direct,mkl,blas,xp", "packed,mkl,blas,xp"),
    **dict.fromkeys(("channels_last", "tails", "fuse", "reuse", "inplace"), (True, False)),
}
SEEDS = range(6)


def layer(b: Any, rng: np.random.Generator, x: Any) -> Any:
    """One more layer over images, or x where it does not fit."""
    n, channels, high, wide = x.shape
    kind = rng.choice(
        ["conv", "conv", "conv relu", "conv relu pool", "conv pool", "conv norm", "norm", "norm",
         "relu", "add", "tanh", "max", "avg", "depthwise", "join", "scale", "up", "swap",
         "swish", "gate", "pair", "shuffle", "range"]
    )  # fmt: skip
    if kind.startswith("conv"):
        made = b.conv2d(
            x,
            filters=int(rng.choice([2, 8, 16, 24])),
            kernel=int(rng.choice([1, 3])),
            stride=int(rng.choice([1, 1, 2])),
            padding="same",
            bias=bool(rng.integers(2)),
            activation="relu" if "relu" in kind else "",
        )
        if "norm" in kind:
            made = b.relu(b.batch_norm(made))
        if "pool" in kind and min(made.shape[2:]) > 2:
            made = b.max_pool2d(made, kernel=[2, 2], stride=[int(rng.integers(1, 3))])
        return made
    if kind == "norm":
        return b.batch_norm(x)
    if kind in ("relu", "tanh"):
        return getattr(b, kind)(x)
    if kind == "add":
        return x + b.conv2d(x, filters=channels, kernel=3, padding="same")
    if kind in ("max", "avg"):
        if min(high, wide) < 3:
            return x
        return getattr(b, f"{kind}_pool2d")(x, kernel=[3, 3], stride=[2], padding=[1])
    if kind == "depthwise":
        return b.conv2d(x, filters=channels, kernel=3, padding=[1], groups=channels)
    if kind == "join":
        return b.concat([x, b.tanh(x)], axis=1) if channels < 40 else x
    if kind == "swish":
        return x * 0.5 + b.hard_swish(b.conv2d(x, filters=channels, kernel=1))
    if kind == "gate":
        whole = rng.integers(2)
        means = b.reduce_mean(x, axes=[2, 3], keepdims=True) if whole else b.global_avg_pool(x)
        return x * b.hard_sigmoid(b.conv2d(means, filters=channels, kernel=1))
    if kind == "pair":
        sides = [b.conv2d(x, filters=n, kernel=3, padding="same") for n in (8, 5)]
        sides[1] = b.conv2d(sides[1], filters=5, kernel=3, padding="same", groups=5)
        return b.concat(sides, axis=1)
    if kind == "shuffle" and channels % 2 == 0:
        groups = b.reshape(x, shape=[n, 2, channels // 2, high, wide])
        turned = b.transpose(groups, perm=[0, 2, 1, 3, 4])
        return b.reshape(turned, shape=[n, channels, high, wide])
    if kind in ("shuffle", "range"):
        middle = max(channels // 2, 1)
        first = b.slice(x, axes=[1], starts=[0], ends=[middle])
        rest = b.slice(x, axes=[1], starts=[-middle])
        return b.concat([first, b.conv2d(rest, filters=8, kernel=3, padding="same")], axis=1)
    if kind == "scale":
        return x * b.parameter(b.unique_name("factor"), [channels, 1, 1], "uniform")
    if kind == "up":
        return b.conv_transpose2d(x, filters=5, kernel=2)
    return b.transpose(x, perm=[0, 1, 3, 2])


def results(seed: int, train: bool) -> dict[str, np.ndarray]:
    """Cost, some values on the way and the parameters after two steps."""
    rng = np.random.default_rng(seed)
    b = opscope.NetBuilder(f"images{seed}", dtype="float64")
    first = b.input("x", [3, int(rng.choice([1, 3, 16])), 9, 8], "float64")
    x, shown = first, []
    for _ in range(int(rng.integers(3, 9))):
        x = layer(b, rng, x)
        if rng.random() < 0.15:
            shown.append(x.name)
    cost = b.mean(x * x)
    if train:
        b.backward_from(cost)
        b.add_optimization(learning_rate=0.01, type="sgd")
    scope = opscope.Scope()
    b.initialize(scope)
    fill = np.random.default_rng(seed)
    names = [name for name in sorted(scope.names()) if scope.var(name).array is not None]
    for name in names:
        array = scope.var(name).array
        if array is not None and array.dtype == np.float64:
            array[...] = fill.uniform(0.2, 0.5, array.shape) * fill.choice([-1, 1], array.shape)
            if "variance" in name:
                array[...] = np.abs(array)
    scope.var("x").set(fill.standard_normal(first.shape))
    fetched = [cost.name, *dict.fromkeys(shown)]
    net = b.bound_net(frozenset(fetched), train)
    context = opscope.OpContext(train=train, live_out=fetched)
    for _ in range(2):
        net.run(scope, context)
    return {name: np.array(scope.var(name).array) for name in (*fetched, *names)}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_switch_changes_a_number(seed: int, train: bool) -> None:
    ways = [{name: off for name, (_, off) in SWITCHES.items()}]
    ways.append({name: on for name, (on, _) in SWITCHES.items()})
    for name, (on, off) in itertools.islice(SWITCHES.items(), 4):
        ways.append(ways[1] | {name: off})
        ways.append(ways[0] | {name: on})
    want = None
    for way in ways:
        with opscope.options(**way):
            found = results(seed, train)
        want = found if want is None else want
        for name, array in found.items():
            scale = max(np.abs(want[name]).max(initial=0), 1e-3)
            assert np.abs(array - want[name]).max(initial=0) <= 1e-8 * scale, (name, way)


def plan_of(build: Any, train: bool) -> Any:
    """The plan of a net over images of 16 channels."""
    b = opscope.NetBuilder("plan")
    cost = b.mean(build(b, b.input("x", [2, 16, 8, 8])))
    if train:
        b.backward_from(cost)
    scope = opscope.Scope()
    b.initialize(scope)
    scope.var("x").set(np.ones((2, 16, 8, 8), np.float32))
    net = b.bound_net(frozenset([cost.name]), train)
    net.run(scope, opscope.OpContext(train=train, live_out=[cost.name]))
    return scope.frames()[-1].plan


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_what_lies_with_its_channels_last() -> None:
    def block(b: Any, x: Any) -> Any:
        y = b.relu(b.batch_norm(b.conv2d(x, filters=16, kernel=3, padding="same", name="first")))
        return b.softmax(b.conv2d(b.tanh(y), filters=8, kernel=3, name="second"), axis=1)

    plan = plan_of(block, False)
    assert plan.channels_last == {"tanh_0"}  # what comes before it is in no memory
    assert "second" not in plan.channels_last  # softmax takes the usual order
    for changed in {"channels_last": False}, {"libraries": "mkl,blas,xp"}:
        with opscope.options(**changed):
            assert not plan_of(block, False).channels_last


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_a_convolution_and_its_tail_are_one_step() -> None:
    def block(b: Any, x: Any) -> Any:
        return b.max_pool2d(b.conv2d(x, filters=8, kernel=3, activation="relu"), kernel=[2, 2])

    def types(train: bool) -> list[list[str]]:
        plan = plan_of(block, train)
        return [[op.type for op in step.operators] for step in plan.steps]

    assert ["conv2d", "relu", "max_pool2d"] in types(False)
    assert ["conv2d", "relu"] in types(True)  # the gradient reads what the pooling reads
    with opscope.options(tails=False):
        assert ["conv2d"] in types(False)


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_activations_are_computed_with_a_convolution(kind: str) -> None:
    """To the bit: alone, and before a loop; of whole vectors, a part of one, and depthwise."""
    b = opscope.NetBuilder("activations")
    limits = {"minimum": -0.25, "maximum": 0.5} if kind in ("clip", "hard_tanh") else {}
    y = b.input("x", [2, 3, 17, 21])
    shown = []
    for filters, kernel, groups in ((40, 3, 1), (40, 3, 40), (5, 1, 1), (33, 5, 1), (70, 1, 1)):
        x = b.conv2d(y, filters, kernel, groups=groups, padding="same", bias=groups == 1)
        y = getattr(b, kind)(x, **limits)
        shown.append(y.name)
    both = b.hard_swish(b.relu(b.conv2d(y, 8, 1)))
    shown.append(b.square(getattr(b, kind)(b.conv2d(both, 8, 3), **limits)).name)
    found = []
    for fuse in (True, False):
        scope = opscope.Scope()
        b.initialize(scope, opscope.OpContext(seed=1))
        scope.var("x").set(np.random.default_rng(0).standard_normal((2, 3, 17, 21), np.float32) * 4)
        with opscope.options(fuse=fuse):
            net = b.bound_net(frozenset(shown), False)
            net.run(scope, opscope.OpContext(train=False, live_out=shown))
        found.append([np.array(scope.var(name).array) for name in shown])
        types = [[op.type for op in step.operators] for step in scope.frames()[-1].plan.steps]
        assert (types.count(["conv2d", kind]) == 5) is fuse
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_loops_are_epilogues_and_joined_images_lie_in_the_result() -> None:
    def block(b: Any, x: Any) -> Any:
        x = b.conv2d(x, filters=16, kernel=1)
        sides = [b.conv2d(x, filters=n, kernel=1, name=f"s{n}") for n in (8, 16)]
        joined = b.concat([*sides, x], axis=1, name="joined")
        y = b.conv2d(joined, filters=16, kernel=3, padding="same")
        y = x + b.hard_swish(y)
        return b.conv2d(y * b.hard_sigmoid(b.global_avg_pool(y)), filters=8, kernel=1)

    plan = plan_of(block, False)
    steps = [[op.type for op in step.operators] for step in plan.steps]
    assert ["conv2d", "hard_swish", "add"] in steps
    assert plan.parts == {"s8": ("joined", 0), "s16": ("joined", 8)}
    assert {"joined", "mul_0"} <= plan.channels_last  # channels have one factor each in any order


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_batch_norm_is_a_tail_outside_of_training() -> None:
    def block(b: Any, x: Any) -> Any:
        x = b.relu(b.batch_norm(b.conv2d(x, filters=8, kernel=3)))
        x = b.max_pool2d(b.batch_norm(b.conv2d(x, filters=8, kernel=3)), kernel=[2, 2])
        return b.batch_norm(x)

    def types(train: bool) -> list[list[str]]:
        plan = plan_of(block, train)
        return [[op.type for op in step.operators] for step in plan.steps][:5]

    folded = [["conv2d", "batch_norm", "relu"], ["conv2d", "batch_norm", "max_pool2d"]]
    assert types(False)[:3] == [*folded, ["batch_norm"]]
    apart = [["conv2d"], ["batch_norm"], ["relu"], ["conv2d"], ["batch_norm"]]
    assert types(True) == apart
    with opscope.options(tails=False):
        assert types(False) == apart


@pytest.mark.parametrize("groups", [1, 2, 12])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_with_batch_norm_as_a_tail(
    dtype: str, bias: bool, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics that change between two runs are seen; none is changed by a run."""

    def net(tails: str) -> tuple[Any, Any, Any]:
        monkeypatch.setenv("OPSCOPE_TAILS", tails)
        b = opscope.NetBuilder("folded", dtype=dtype)
        x = b.input("x", [2, 12, 9, 7], dtype)
        conv = {"filters": 36, "kernel": 3, "padding": "same", "groups": groups, "bias": bias}
        x = b.max_pool2d(b.relu(b.batch_norm(b.conv2d(x, **conv))), kernel=[2, 2])
        out = b.batch_norm(b.conv2d(x, filters=5, kernel=1, bias=bias), epsilon=0.1)
        scope = opscope.Scope()
        b.initialize(scope)
        rng = np.random.default_rng(3)
        for name in sorted(scope.names()):
            scope.var(name).array[...] = rng.uniform(0.3, 1.2, scope.var(name).array.shape)
        return b, scope, out

    given = np.random.default_rng(4).standard_normal((2, 12, 9, 7)).astype(dtype)
    found = {}
    for tails in ("0", "1"):
        b, scope, out = net(tails)
        before = {name: scope.var(name).array.copy() for name in scope.names()}
        runs = []
        for shift in (0.0, 0.5):
            scope.var("batch_norm_0.mean").array[...] += shift
            runs.append(b.predict({"x": given}, scope=scope, fetch=[out.name])[out.name])
        found[tails] = np.stack(runs)
        scope.var("batch_norm_0.mean").array[...] -= 0.5
        for name, array in before.items():
            np.testing.assert_allclose(scope.var(name).array, array, rtol=1e-6)
    assert np.abs(found["0"][0] - found["0"][1]).max() > 0.1
    bound = 1e-5 if dtype == "float32" else 1e-12
    assert np.abs(found["1"] - found["0"]).max() <= bound * np.abs(found["0"]).max()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(
    ("kernel", "stride", "before"), [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 3, 0)]
)
def test_threads_share_an_image_with_a_pooling(
    kernel: int, stride: int, before: int, padding: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of windows to each, whose pixels may be those of two."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(convolution_sums, "_PART", 1 << 8)
    rng, found = np.random.default_rng(kernel), {}
    given = rng.standard_normal((batch, 3, 31, 26)).astype("float32")
    for count, tails in ((1, "0"), (3, "1"), (2, "1")):
        monkeypatch.setenv("OPSCOPE_TAILS", tails)
        with threads.threads_set(count):
            b = opscope.NetBuilder("pooled")
            x = b.conv2d(b.input("x", [-1, 3, 31, 26]), 16, 7, padding=padding, activation="relu")
            x = b.max_pool2d(x, kernel=[kernel] * 2, stride=[stride] * 2, padding=[before] * 2)
            x = b.max_pool2d(b.conv2d(x, 19, 3, padding="same"), kernel=[2, 2])
            scope = opscope.Scope()
            b.initialize(scope, opscope.OpContext(seed=2))
            for used in range(1, count + 1):
                threads.POOL[0] = used
                run = b.run(scope, feed={"x": given}, fetch=[x], need_backward=False)
                assert found.setdefault(tails, run[x.name]).shape == run[x.name].shape
                np.testing.assert_array_equal(run[x.name], found[tails])
    np.testing.assert_allclose(found["1"], found["0"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 9])
@pytest.mark.parametrize("batch", [1, 2])
def test_threads_share_few_pixels_by_their_outputs(
    size: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an activation, a loop, groups, part of a vector; 81 pixels are shared as pixels."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(convolution_sums, "_PART", 1 << 8)
    given = np.random.default_rng(size).standard_normal((batch, 40, size, size), np.float32)
    b = opscope.NetBuilder("few")
    x = b.conv2d(b.input("x", [-1, 40, size, size]), 83, 3, padding="same", activation="relu")
    x = b.conv2d(b.conv2d(x, 83, 3, padding="same", groups=83), 160, 1) * 0.5
    x = b.tanh(b.conv2d(b.hard_swish(b.conv2d(x, 96, 1, groups=2)), 70, 1))
    found = []
    for count in (1, 3, 2):
        with threads.threads_set(count):
            scope = opscope.Scope()
            b.initialize(scope, opscope.OpContext(seed=2))
            for used in range(1, count + 1):
                threads.POOL[0] = used
                run = b.run(scope, feed={"x": given}, fetch=[x], need_backward=False)
                found.append(run[x.name])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    with opscope.options(libraries="mkl,blas,xp"):
        scope = opscope.Scope()
        b.initialize(scope, opscope.OpContext(seed=2))
        want = b.run(scope, feed={"x": given}, fetch=[x], need_backward=False)[x.name]
    np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_operators_of_many_outputs_have_no_tail() -> None:
    def block(b: Any, x: Any) -> Any:
        left, right = b.split(b.conv2d(x, filters=8, kernel=3), axis=1, sections=[4, 4])
        return b.max_pool2d(left, kernel=[2, 2]) + b.max_pool2d(b.relu(right), kernel=[2, 2])

    steps = plan_of(block, False).steps
    assert ["split"] in [[op.type for op in step.operators] for step in steps]


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
def test_other_results_of_a_step_are_there_before_they_are_read() -> None:
    """A convolution with batch normalization waits for no activation that follows a reader."""
    net, scope = PlainNet(), opscope.Scope()
    net.add_op("conv2d", {"x": "x", "w": "w"}, {"out": "c"})
    reads = {"x": "c", "scale": "s", "bias": "b", "mean": "m", "variance": "v"}
    writes = {"out": "h", "mean_out": "m2", "variance_out": "v2"}
    writes |= {"saved_mean": "mean", "saved_inv_std": "inv"}
    net.add_op("batch_norm", reads, writes)
    net.add_op("cumsum", {"x": "mean"}, {"out": "sums"}, {"axis": 0})
    net.add_op("relu", {"x": "h"}, {"out": "y"})
    rng = np.random.default_rng(0)
    shapes: dict[str, Any] = {"x": (2, 3, 8, 8), "w": (16, 3, 3, 3)}
    shapes |= dict.fromkeys(("s", "b", "m", "v"), 16)
    given = {n: rng.uniform(0.5, 1, shape).astype(np.float32) for n, shape in shapes.items()}
    scope.feed(given)
    net.run(scope, opscope.OpContext(train=False, live_out=["y", "sums"]))
    np.testing.assert_allclose(scope.numpy("sums"), given["m"].cumsum(), rtol=1e-6)
