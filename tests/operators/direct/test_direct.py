"""Kernels of the library "direct" against the plain ones: random shapes, layouts, threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import opscope
from native_calls import calls_noted
from opscope import NetBuilder
from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.context import OpContext
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.fusion import team
from opscope.framework.ir.infer import infer_one
from opscope.framework.ir.op_list import OpNode
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.registry import lookup
from opscope.testing.op_runner import Bench, poisoned

with_compiler = pytest.mark.skipif(team.library() is None, reason="there is no C compiler")
LAYOUTS = ("channels first", "channels last", "steps")


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same values in other memory."""
    if array.ndim < 3 or layout in ("", "channels first"):
        return array
    if layout == "channels last":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
    wide = poisoned(np, (*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    view = wide[..., :-1:2]
    view[...] = array
    return view


def run(
    node: OpNode, given: Mapping[str, np.ndarray], library: str, layout: str, train: bool = True
) -> dict[str, np.ndarray] | None:
    """What a kernel of a library writes; None where it declines."""
    op = Operator(node)
    specs = {name: (array.shape, array.dtype) for name, array in given.items()}
    specs.update(infer_one(op, specs, {}, {}))
    arrays = {name: laid_out(array.copy(), layout) for name, array in given.items()}
    for name in op.output_vars():
        if name not in arrays:
            arrays[name] = laid_out(poisoned(np, *specs[name]), layout)
    from opscope.framework.ir.kernel_args import KernelArgs

    bench = Bench(CPUPlace(), train, {})
    args = KernelArgs(op, arrays, specs, bench)
    kernels = lookup(node.type).kernels_for("cpu", next(iter(given.values())).dtype, (library,))
    call = kernels[0].bind(args)
    if call is None:
        return None
    bench.state.context = OpContext(CPUPlace(), train=train)
    with np.errstate(all="ignore"):
        call()
        call()
    return {name: arrays[name] for name in op.output_vars()}


def check(node: OpNode, given: Mapping[str, np.ndarray], layout: str, train: bool = True) -> bool:
    """Compare with the plain kernel in float64; whether the library took it."""
    found = run(node, given, "direct", layout, train)
    if found is None:
        return False
    wide = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in given.items()
    }
    want = run(node, wide, "xp", "channels first", train)
    assert want is not None
    for name, array in found.items():
        scale = np.abs(want[name]).max(initial=0) + 1e-30
        worst = np.abs(array.astype(np.float64) - want[name]).max(initial=0)
        bound = 1e-5 if array.dtype == np.float32 else 1e-12
        assert worst <= bound * scale, (node.type, node.attrs, name, layout, worst / scale)
    return True


def conv_case(rng: np.random.Generator, rank: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Random shapes of a convolution: x, w, attributes."""
    groups = int(rng.choice([1, 1, 1, 2]))
    channels, filters = (groups * int(rng.choice([1, 3, 4, 8, 16, 17, 33, 64])) for _ in range(2))
    if rng.random() < 0.3:  # a filter for each channel
        groups = channels = filters = int(rng.choice([5, 16, 23, 64]))
    kernel = [int(rng.integers(1, 5)) for _ in range(rank)]
    attrs: dict[str, Any] = {
        "stride": [int(rng.integers(1, 4)) for _ in range(rank)],
        "dilation": [int(rng.integers(1, 3)) for _ in range(rank)],
        "groups": groups,
    }
    if rng.random() < 0.3:
        attrs["padding_algorithm"] = "same"
    else:
        attrs["padding"] = [int(rng.integers(0, 4)) for _ in range(2 * rank)]
    sizes = [
        (k - 1) * d + int(rng.integers(1, 12))
        for k, d in zip(kernel, attrs["dilation"], strict=True)
    ]
    x = rng.standard_normal((int(rng.integers(1, 7)), channels, *sizes)).astype(dtype)
    w = rng.standard_normal((filters, channels // groups, *kernel)).astype(dtype)
    return x, w, attrs


def transposed_case(rng: np.random.Generator, rank: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Random shapes of a transposed convolution, whose result has places; x, w, attributes."""
    while True:
        x, w, attrs = conv_case(rng, rank, dtype)
        attrs.pop("padding_algorithm", None)
        attrs["output_padding"] = [int(rng.integers(0, step)) for step in attrs["stride"]]
        padding = attrs.get("padding", [0] * 2 * rank)
        sizes = [int(rng.integers(1, 9)) for _ in range(rank)]
        places = [
            (size - 1) * step + (taps - 1) * dilation + 1 + more - before - after
            for size, step, taps, dilation, more, before, after in zip(
                *(sizes, attrs["stride"], w.shape[2:], attrs["dilation"]),
                *(attrs["output_padding"], padding[:rank], padding[rank:]),
                strict=True,
            )
        ]
        if min(places) > 0:
            shape = len(x), len(w), *sizes
            return rng.standard_normal(shape).astype(dtype), w, attrs


@with_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("kind", ["conv", "conv_transpose"])
@pytest.mark.parametrize("seed", range(12))
def test_conv(seed: int, kind: str, rank: int, dtype: Any) -> None:
    rng = np.random.default_rng([seed, rank])
    taken = 0
    for layout in LAYOUTS:
        x, w, attrs = (conv_case if kind == "conv" else transposed_case)(rng, rank, dtype)
        outs = len(w) if kind == "conv" else w.shape[1] * attrs["groups"]
        b = rng.standard_normal(outs).astype(dtype)
        inputs = {"x": ("x",), "w": ("w",)} | ({"b": ("b",)} if rng.random() < 0.7 else {})
        given = {"x": x, "w": w, "b": b}
        given = {name: given[name] for name in inputs}
        node = OpNode(f"{kind}{rank}d", inputs, {"out": ("out",)}, attrs)
        out = run(node, given, "xp", "")["out"]  # pyright: ignore
        grad = rng.standard_normal(out.shape).astype(dtype)
        wanted = [name for name in given if rng.random() < 0.7] or ["w"]
        backward = OpNode(
            f"{kind}{rank}d_grad",
            inputs | {"out_grad": ("grad",)},
            {f"{name}_grad": (f"{name}_grad",) for name in wanted},
            attrs,
        )
        for threads in (1, 2):
            with threads_set(threads):
                taken += check(node, given, layout, train=seed % 2 == 0)
                taken += check(backward, given | {"grad": grad}, layout)
    assert taken


@with_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_interpolation(mode: str, dtype: Any) -> None:
    rng = np.random.default_rng(len(mode))
    taken = 0
    for _ in range(30):
        rank = int(rng.integers(1, 3))
        shape = int(rng.integers(1, 3)), int(rng.choice([1, 3, 16, 37])), *rng.integers(1, 9, rank)
        attrs: dict[str, Any] = {"mode": mode}
        if mode != "nearest":
            attrs["align_corners"] = bool(rng.integers(2))
        if rng.random() < 0.6:
            attrs["size"] = rng.integers(1, 40, rank).tolist()
        else:
            attrs["scale"] = rng.choice([1.0, 1.5, 2.0, 3.3], rank).tolist()
        node = OpNode("interpolate", {"x": ("x",)}, {"out": ("out",)}, attrs)
        x = rng.standard_normal(shape).astype(dtype)
        for layout in LAYOUTS:
            for threads in (1, 2):
                with threads_set(threads):
                    taken += check(node, {"x": x}, layout)
    assert taken > 100


@with_compiler
@pytest.mark.parametrize("padding", [0, 1])
def test_images_of_few_pixels_are_read_as_they_lie(
    padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients by weights: a whole batch is one image, copied for its padding alone."""
    added = calls_noted(monkeypatch)
    rng = np.random.default_rng(padding)
    for kernel, step in ((1, 1), (1, 2), (2, 1)):
        attrs = {"padding": [padding], "stride": [step]}
        x = rng.standard_normal((6, 20, 4, 5)).astype(np.float32)
        w = rng.standard_normal((32, 20, kernel, kernel)).astype(np.float32)
        inputs = {"x": ("x",), "w": ("w",)}
        node = OpNode("conv2d", inputs, {"out": ("out",)}, attrs)
        out = run(node, {"x": x, "w": w}, "xp", "")["out"]  # pyright: ignore
        grad = rng.standard_normal(out.shape).astype(np.float32)
        given = {"x": x, "w": w, "grad": grad}
        backward = OpNode(
            "conv2d_grad", inputs | {"out_grad": ("grad",)}, {"w_grad": ("w_grad",)}, attrs
        )
        added.clear()
        assert check(backward, given, "channels last")
        assert ("pad" in added) is bool(padding)


@with_compiler
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 16])
@pytest.mark.parametrize("layer", ["conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"])
def test_norms_behind_convolutions_are_factors(layer: str, groups: int, biased: bool) -> None:
    b = NetBuilder("norm")
    x = b.input("x", [-1, 16, *[6] * int(layer[-2])])
    filters = 16 if groups == 16 else 24
    made = b.relu(b.batch_norm(getattr(b, layer)(x, filters, 3, groups=groups, bias=biased)))
    rng = np.random.default_rng(groups)
    image = rng.standard_normal((3, 16, *[6] * int(layer[-2])), np.float32)
    check_net(b, made, image, [layer, "batch_norm", "relu"], 1e-4)


def check_net(b: NetBuilder, made: Any, image: np.ndarray, fused: list[str], bound: float) -> None:
    """Compare with the plain kernels what a net makes of `x`; operators of one step have a list."""
    found = []
    for libraries in ("direct,xp", "xp"):
        scope = opscope.Scope()
        b.initialize(scope, opscope.OpContext(seed=1))
        for number, name in enumerate(sorted(scope.names())):
            array = scope.var(name).numpy()
            if array.ndim == 1:  # no norm that changes nothing
                values = np.random.default_rng(number).uniform(0.5, 2, array.shape)
                scope.var(name).set(values.astype(np.float32))
        scope.var("x").set(image)
        with opscope.options(libraries=libraries):
            net = b.bound_net(frozenset([made.name]), False)
            net.run(scope, opscope.OpContext(train=False, live_out=[made.name]))
        found.append(scope.var(made.name).numpy())
        types = [[op.type for op in step.operators] for step in scope.frames()[-1].plan.steps]
        assert (fused in types) is (libraries != "xp")
    assert np.any(found[1])
    np.testing.assert_allclose(*found, rtol=bound, atol=bound)


# Weights of several taps, and of a part of a tap, that stay in a cache together, on all processors.
LARGE = [(100, 7, 7), (192, 5, 24), (1100, 2, 4), (1100, 2, 3)]


@with_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("channels", "kernel", "size"), LARGE)
def test_weights_that_no_cache_has_room_for(
    channels: int, kernel: int, size: int, dtype: Any
) -> None:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((1, channels, size, size)).astype(dtype)
    w = rng.standard_normal((72, channels, kernel, kernel)).astype(dtype)
    given = {"x": x, "w": w, "b": rng.standard_normal(72).astype(dtype)}
    inputs = {name: (name,) for name in given}
    attrs = {"padding": [kernel // 2]}
    node = OpNode("conv2d", inputs, {"out": ("out",)}, attrs)
    for layout in LAYOUTS:
        for threads in (1, 2):
            with threads_set(threads):
                assert check(node, given, layout, train=False)


@with_compiler
@pytest.mark.parametrize(("channels", "kernel", "size"), LARGE)
def test_what_follows_sums_waits_for_all_weights(channels: int, kernel: int, size: int) -> None:
    b = NetBuilder("norm")
    x = b.input("x", [-1, channels, size, size])
    made = b.relu(b.batch_norm(b.conv2d(x, 72, kernel, padding=kernel // 2)))
    image = np.random.default_rng(kernel).standard_normal((1, channels, size, size), np.float32)
    check_net(b, made, image, ["conv2d", "batch_norm", "relu"], 1e-4)


@with_compiler
@pytest.mark.parametrize("amx", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "size"),
    [(16, 32, 1, 9), (64, 64, 3, 14), (48, 80, 3, 7), (130, 256, 3, 7), (16, 20, 3, 8)],
)
def test_another_image_is_added_to_the_bit(
    channels: int, filters: int, kernel: int, size: int, relu: bool, threads: int, amx: bool
) -> None:
    """In registers, or by a loop over memory: the same as by operators of their own."""
    b = NetBuilder("residual")
    x = b.input("x", [-1, channels, size, size])
    first = b.relu(b.conv2d(x, filters, 1))
    made = b.conv2d(b.relu(b.conv2d(x, channels, 1)), filters, kernel, padding=kernel // 2) + first
    made = b.max_pool2d(b.relu(made) if relu else made, kernel=[2, 2])
    image = np.random.default_rng(kernel).standard_normal((2, channels, size, size), np.float32)
    found = []
    for tails in (True, False):
        scope = opscope.Scope()
        b.initialize(scope, opscope.OpContext(seed=1))
        scope.var("x").set(image)
        with opscope.options(tails=tails, amx=amx), threads_set(threads):
            net = b.bound_net(frozenset([made.name]), False)
            net.run(scope, opscope.OpContext(train=False, live_out=[made.name]))
        found.append(scope.var(made.name).numpy())
    assert np.any(found[0])
    np.testing.assert_array_equal(*found)


@with_compiler
@pytest.mark.parametrize("layout", ["channels first", "channels last"])
def test_means_of_large_images_are_exact(layout: str) -> None:
    given = {"x": np.full((1, 16, 500, 700), 0.1, np.float32)}
    node = OpNode("global_avg_pool", {"x": ("x",)}, {"out": ("out",)}, {})
    found = run(node, given, "direct", layout)
    assert found is not None
    np.testing.assert_allclose(found["out"], 0.1, rtol=3e-6)


def pool_case(rng: np.random.Generator, rank: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Shape of x and attributes of a pooling."""
    kernel = [int(rng.integers(1, 5)) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel": kernel, "ceil_mode": bool(rng.integers(2))}
    if rng.random() < 0.6:
        attrs["stride"] = [int(rng.integers(1, 4)) for _ in range(rank)]
    if rng.random() < 0.3:
        attrs["padding_algorithm"] = "same"
    else:
        attrs["padding"] = [int(rng.integers(0, k)) for k in kernel * 2]
    sizes = [k + int(rng.integers(0, 9)) for k in kernel]
    return (int(rng.integers(1, 5)), int(rng.choice([1, 3, 16, 21, 40])), *sizes), attrs


def pool_nodes(kind: str, attrs: dict[str, Any]) -> tuple[OpNode, OpNode]:
    """The pooling and its gradient."""
    outputs, reads = {"out": ("out",)}, {"x": ("x",), "out_grad": ("grad",)}
    if kind.startswith("max"):
        outputs["index"] = reads["index"] = ("index",)
    return OpNode(kind, {"x": ("x",)}, outputs, attrs), OpNode(
        f"{kind}_grad", reads, {"x_grad": ("x_grad",)}, attrs
    )


@with_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"])
@pytest.mark.parametrize("seed", range(12))
def test_pool(seed: int, kind: str, dtype: Any) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    shape, attrs = pool_case(rng, int(kind[-2]))
    if kind.startswith("avg"):
        attrs["count_include_pad"] = bool(rng.integers(2))
    x = rng.integers(-4, 5, shape).astype(dtype)  # with equal values: the first one wins
    holes = np.where(rng.random(shape) < 0.02, np.nan, x).astype(dtype)
    forward, backward = pool_nodes(kind, attrs)
    for layout in LAYOUTS:
        mine, plain = run(forward, {"x": x}, "direct", layout), run(forward, {"x": x}, "xp", "")
        with_nan = [run(forward, {"x": holes}, *how) for how in (("direct", layout), ("xp", ""))]
        assert plain is not None
        if all(size == 1 for size in attrs["kernel"]) and set(attrs.get("stride", [1])) == {1}:
            assert mine is None  # a copy is no matter of this library
            return
        assert mine is not None
        np.testing.assert_allclose(mine["out"], plain["out"], 1e-6)
        np.testing.assert_allclose(*(each["out"] for each in with_nan if each), 1e-6)
        grad = rng.standard_normal(plain["out"].shape).astype(dtype)
        found = run(backward, {"x": x, "grad": grad} | mine, "direct", layout)
        want = run(backward, {"x": x, "grad": grad} | plain, "xp", "")
        assert found is not None and want is not None
        np.testing.assert_allclose(found["x_grad"], want["x_grad"], 1e-5, 1e-6)


@with_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 3), (64, 40), (4, 3, 7, 5), (3, 16, 33, 40), (2, 37, 50)])
@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_batch_norm(shape: tuple[int, ...], running: bool, train: bool, dtype: Any) -> None:
    rng = np.random.default_rng(len(shape))
    channels = shape[1]
    given = {"x": rng.standard_normal(shape) * 3 + 20, "scale": rng.uniform(0.5, 2, channels)}
    given |= {"bias": rng.standard_normal(channels), "mean": rng.standard_normal(channels) + 20}
    given |= {"variance": rng.uniform(0.5, 2, channels)}
    given = {name: array.astype(dtype) for name, array in given.items()}
    slots = {name: (name,) for name in given}
    made = ("out", "mean_out", "variance_out", "saved_mean", "saved_inv_std")
    attrs = {"use_global_stats": running}
    node = OpNode("batch_norm", slots, {name: (name,) for name in made}, attrs)
    for layout in LAYOUTS[:2]:
        for threads in (1, 2):
            with threads_set(threads):
                assert check(node, given, layout, train)
                saved = run(node, given, "direct", "", train)
                assert saved is not None
                kept = {name: saved[name] for name in ("saved_mean", "saved_inv_std")}
                grad = rng.standard_normal(shape).astype(dtype)
                backward = OpNode(
                    "batch_norm_grad",
                    slots | {name: (name,) for name in kept} | {"out_grad": ("grad",)},
                    {f"{name}_grad": (f"{name}_grad",) for name in ("x", "scale", "bias")},
                    attrs,
                )
                assert check(backward, given | kept | {"grad": grad}, layout, train)
    if len(shape) > 2:  # channels neither first nor last
        assert run(node, given, "direct", "steps", train) is None
