"""Windows over tensors, and normalization with running statistics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opscope.cntk import operators as _operators  # noqa: F401  registers them
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest

WINDOWS = [
    {"shape": (5,), "kernel": (3,), "stride": (2,), "lower": (1,), "counts": (3,)},
    {
        "shape": (2, 4, 5),
        "kernel": (2, 3, 2),
        "stride": (1, 1, 2),
        "lower": (0, 1, 0),
        "counts": (1, 4, 2),
    },
    {"shape": (3, 4), "kernel": (2, 2), "stride": (1, 2), "lower": (-1, 0), "counts": (1, 2)},
]


def places(attrs):
    """For each window and element its place in the tensor, or None."""
    axes = list(zip(*(attrs[k] for k in ("shape", "stride", "lower")), strict=True))
    for window, starts in enumerate(itertools.product(*map(range, attrs["counts"]))):
        for element, offsets in enumerate(itertools.product(*map(range, attrs["kernel"]))):
            at = [
                start * stride - lower + offset
                for start, offset, (_, stride, lower) in zip(starts, offsets, axes, strict=True)
            ]
            inside = all(0 <= place < axis[0] for place, axis in zip(at, axes, strict=True))
            yield window, element, np.ravel_multi_index(at, attrs["shape"]) if inside else None


def unfolded(x, attrs, fill=0.0):
    out = np.full((len(x), np.prod(attrs["counts"]), np.prod(attrs["kernel"])), fill)
    for window, element, place in places(attrs):
        if place is not None:
            out[:, window, element] = x[:, place]
    return out


class TestUnfold(OpTest):
    type = "cntk.unfold"
    grad = ("x",)

    def cases(self, rng):
        for attrs in WINDOWS:
            yield Case({"x": rng.normal(size=(3, np.prod(attrs["shape"])))}, attrs)
        yield Case({"x": rng.normal(size=(2, 5))}, {**WINDOWS[0], "fill": -3.0})

    def reference(self, inputs, attrs):
        return {"out": unfolded(inputs["x"], attrs, attrs["fill"])}


class TestFold(OpTest):
    type = "cntk.fold"
    grad = ("x",)

    def cases(self, rng):
        for attrs in WINDOWS:
            shape = (3, np.prod(attrs["counts"]), np.prod(attrs["kernel"]))
            yield Case({"x": rng.normal(size=shape)}, attrs)

    def reference(self, inputs, attrs):
        out = np.zeros((len(inputs["x"]), np.prod(attrs["shape"])))
        for window, element, place in places(attrs):
            if place is not None:
                out[:, place] += inputs["x"][:, window, element]
        return {"out": out}


class TestMaxUnpool(OpTest):
    type = "cntk.max_unpool"
    grad = ("x",)
    attrs = {"shape": (4, 6), "kernel": (2, 3), "stride": (2, 3), "lower": (0, 0), "counts": (2, 2)}

    def cases(self, rng):
        pooled = rng.permuted(np.arange(48.0).reshape(2, 24), axis=1)
        yield Case({"x": rng.normal(size=(2, 4)), "pooled": pooled}, self.attrs)
        common = {**self.attrs, "stride": (1, 1), "lower": (0, 1), "counts": (3, 6)}
        yield Case({"x": rng.normal(size=(2, 18)), "pooled": -pooled}, common)

    def reference(self, inputs, attrs):
        out = np.zeros_like(inputs["pooled"])
        owner = np.full(out.shape, -1)
        best = unfolded(inputs["pooled"], attrs, -np.inf).argmax(2)
        for window, element, place in places(attrs):
            if place is not None:
                rows = best[:, window] == element
                out[rows, place], owner[rows, place] = inputs["x"][rows, window], window
        return {"out": out, "owner": owner}


SHARED = {"mean_out": "mean", "variance_out": "variance", "seen_out": "seen"}


def statistics(rng, features):
    return {
        "scale": rng.normal(size=features),
        "bias": rng.normal(size=features),
        "mean": rng.normal(size=features),
        "variance": rng.uniform(0.5, 2, features),
    }


class TestBatchNorm(OpTest):
    type = "cntk.batch_norm"
    grad = ("x", "scale", "bias")
    gradient_tolerance = 1e-5

    def cases(self, rng):
        times = {"time": np.array([10.0]), "blend": np.array([0.0]), "seen": np.array([20.0])}
        for shape in ((6, 4), (5, 4, 3)):
            yield Case({"x": rng.normal(size=shape), **statistics(rng, 4), **times}, share=SHARED)

    def reference(self, inputs, attrs):
        x = inputs["x"]
        axes = (0, 2) if x.ndim == 3 else (0,)
        samples = len(x) if x.size else 0
        moving = 1 - np.exp(-samples / 10)
        mean, variance = np.nan_to_num(x.mean(axes)), np.nan_to_num(x.var(axes))
        count = len(x) * (x.shape[2] if x.ndim == 3 else 1)
        wide = (lambda v: v[:, None]) if x.ndim == 3 else (lambda v: v)
        inverse = 1 / np.sqrt(variance + attrs["epsilon"])
        out = wide(inputs["scale"] * inverse) * (x - wide(mean)) + wide(inputs["bias"])
        unbiased = variance * count / max(count - 1, 1)
        return {
            "out": out,
            "mean_out": moving * mean + (1 - moving) * inputs["mean"],
            "variance_out": moving * unbiased + (1 - moving) * inputs["variance"],
            "seen_out": np.array([20.0 + samples]),
        }


def batch_norm(x, state, train, **times):
    net, scope = PlainNet(), Scope()
    reads = {s: s for s in ("x", "scale", "bias", "mean", "variance", "seen", "time", "blend")}
    writes = {"out": "out", **SHARED, "used_mean": "m", "used_scale": "s", "own_weight": "w"}
    net.add_op("cntk.batch_norm", reads, writes)
    scope.feed({"x": x, **state, **{name: np.array([v]) for name, v in times.items()}})
    net.run(scope, OpContext(train=train, live_out=("out",)))
    return {name: scope.numpy(name) for name in ("out", "mean", "variance", "seen")}


def test_batch_norm_outside_of_training():
    rng = np.random.default_rng(0)
    x, state = rng.normal(size=(5, 2)), statistics(rng, 2)
    found = batch_norm(x, state, False, seen=7.0, time=0.0, blend=0.0)
    normed = (x - state["mean"]) / np.sqrt(state["variance"] + 1e-5)
    np.testing.assert_allclose(found["out"], state["scale"] * normed + state["bias"])
    np.testing.assert_array_equal(found["mean"], state["mean"])
    assert found["seen"] == 7


@pytest.mark.parametrize(
    ("seen", "time", "blend", "moving", "blended"),
    [
        (0.0, np.inf, np.inf, 1.0, 0.0),  # the first minibatch counts alone
        (15.0, -1.0, 0.0, 0.25, 0.0),
        (15.0, 0.0, 5.0, 1.0, 0.5),
        (15.0, np.inf, np.inf, 0.0, 1.0),
    ],
)
def test_time_constants(seen, time, blend, moving, blended):
    rng = np.random.default_rng(1)
    x, state = rng.normal(size=(5, 2)), statistics(rng, 2)
    found = batch_norm(x, state, True, seen=seen, time=time, blend=blend)
    mean = moving * x.mean(0) + (1 - moving) * state["mean"]
    variance = moving * x.var(0, ddof=1) + (1 - moving) * state["variance"]
    np.testing.assert_allclose(found["mean"], mean)
    np.testing.assert_allclose(found["variance"], variance)
    used = blended * mean + (1 - blended) * x.mean(0)
    inverse = blended / np.sqrt(variance + 1e-5) + (1 - blended) / np.sqrt(x.var(0) + 1e-5)
    wanted = state["scale"] * (x - used) * inverse + state["bias"]
    np.testing.assert_allclose(found["out"], wanted)
    assert found["seen"] == (seen if blended == 1 else seen + 5)
