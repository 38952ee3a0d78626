"""Normalizations, with PyTorch as the oracle where it is installed."""

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import AttributeTypeError, ShapeError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import PARAMETER, STATE, make_var
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest


def normalized(x, axes, epsilon, scale=None, bias=None, mean=None, variance=None):
    if mean is None:
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    out = (x - mean) / np.sqrt(variance + epsilon)
    out = out if scale is None else out * scale
    return out if bias is None else out + bias


def by_channel(array, ndim):
    return None if array is None else array.reshape(1, -1, *(1,) * (ndim - 2))


class TestBatchNorm(OpTest):
    type = "batch_norm"
    grad = ("x", "scale", "bias")

    def case(self, rng, *shape, attrs=None, **more):
        inputs = {
            "x": rng.normal(1, 2, shape),
            "scale": rng.uniform(0.5, 1.5, shape[1]),
            "bias": rng.normal(size=shape[1]),
            "mean": rng.normal(size=shape[1]),
            "variance": rng.uniform(0.5, 1.5, shape[1]),
        }
        return Case(inputs, attrs or {}, **more)

    def cases(self, rng):
        for train in (True, False):
            yield self.case(rng, 4, 3, train=train)
            yield self.case(rng, 3, 2, 5, train=train, attrs={"momentum": 0.25, "epsilon": 0.1})
            yield self.case(rng, 2, 3, 4, 2, train=train)
        yield self.case(rng, 1, 2, 2, 2, 2, attrs={"use_global_stats": True})

    def reference(self, inputs, attrs):
        x, axes = inputs["x"], (0, *range(2, inputs["x"].ndim))
        scale, bias = by_channel(inputs["scale"], x.ndim), by_channel(inputs["bias"], x.ndim)
        running = inputs["mean"], inputs["variance"]
        if attrs["use_global_stats"] or not self.training:
            mean, variance = (by_channel(array, x.ndim) for array in running)
            out = normalized(x, axes, attrs["epsilon"], scale, bias, mean, variance)
            return {"out": out, "mean_out": running[0], "variance_out": running[1]}
        keep, move = 1 - attrs["momentum"], attrs["momentum"]
        return {
            "out": normalized(x, axes, attrs["epsilon"], scale, bias),
            "mean_out": keep * running[0] + move * x.mean(axes),
            "variance_out": keep * running[1] + move * x.var(axes, ddof=1),
            "saved_mean": x.mean(axes),
            "saved_inv_std": 1 / np.sqrt(x.var(axes) + attrs["epsilon"]),
        }

    def setup(self, case, dtype, want=True):
        self.training = case.train
        return super().setup(case, dtype, want)

    def test_refuses(self):
        good = {name: np.ones(3) for name in ("scale", "bias", "mean", "variance")}
        x = np.zeros((2, 3, 4))
        self.refuses("at least 2 dimensions", {"x": x[0, 0], **good})
        self.refuses("channels of x and the sizes", {"x": x[:, :2], **good})
        self.refuses("channels of x and the sizes", {"x": x, **good, "mean": np.ones(2)})
        self.refuses("1 dimension", {"x": x, **good, "bias": np.ones((3, 1))})
        self.refuses("floating dtype", {"x": x.astype("float32"), **good})
        for attrs in ({"momentum": 1.5}, {"epsilon": -1.0}):
            self.refuses(next(iter(attrs)), {"x": x, **good}, attrs, AttributeTypeError)

    def test_one_value_a_channel_has_no_variance(self):
        case = self.case(np.random.default_rng(0), 1, 3)
        with pytest.raises(ShapeError, match="more than one value a channel and has 1"):
            self.output(case)

    def test_half_precision_does_not_overflow(self):
        rng = np.random.default_rng(0)
        more = ("mean_out", "variance_out")
        case = self.case(rng, 64, 2, 40, 40, outputs=more)
        case.inputs["x"][...] += 30
        self.setup(case, "float16").check(self.output(case, "float16"), self)

    def test_running_values_move_on_in_place(self):
        net, scope = running_net()
        x = np.random.default_rng(0).normal(3, 2, (8, 2)).astype("float32")
        scope.feed({"x": x})
        net.run(scope, OpContext(train=True))
        np.testing.assert_allclose(scope.numpy("mean"), 0.1 * x.mean(0), rtol=1e-5)
        net.run(scope, OpContext(train=True))
        np.testing.assert_allclose(scope.numpy("mean"), 0.19 * x.mean(0), rtol=1e-5)
        variance = 0.81 + 0.19 * x.var(0, ddof=1)
        np.testing.assert_allclose(scope.numpy("variance"), variance, rtol=1e-5)
        before = scope.numpy("mean").copy()
        net.run(scope, OpContext(train=False, live_out=frozenset({"out"})))
        np.testing.assert_array_equal(scope.numpy("mean"), before)
        wanted = (x - before) / np.sqrt(variance + 1e-5)
        np.testing.assert_allclose(scope.numpy("out"), wanted, rtol=1e-4, atol=1e-5)


def running_net():
    """A batch_norm that writes its running values over themselves, with gradients."""
    net, scope = PlainNet(), Scope()
    names = {"scale": PARAMETER, "bias": PARAMETER, "mean": STATE, "variance": STATE}
    for name, kind in names.items():
        net.add_var(make_var(name, (2,), np.dtype("float32"), kind))
        fill = np.ones if name in ("scale", "variance") else np.zeros
        scope.feed({name: fill(2, "float32")})
    inputs = {name: name for name in ("x", *names)}
    outputs = {"out": "out", "mean_out": "mean", "variance_out": "variance"}
    outputs |= {"saved_mean": "saved_mean", "saved_inv_std": "saved_inv_std"}
    net.add_op("batch_norm", inputs, outputs)
    net.add_backward_ops("out")
    return net, scope


class TestLayerNorm(OpTest):
    type = "layer_norm"
    grad = ("x", "scale", "bias")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for shape, begin in (((3, 4), -1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((5,), 0), ((3, 4), 0)):
            params = {name: rng.normal(size=shape[begin:]) for name in ("scale", "bias")}
            yield Case({"x": rng.normal(size=shape), **params}, {"begin_norm_axis": begin})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        axes = tuple(range(attrs["begin_norm_axis"] % x.ndim, x.ndim))
        params = inputs.get("scale"), inputs.get("bias")
        return {"out": normalized(x, axes, attrs["epsilon"], *params)}

    def test_refuses(self):
        x = np.zeros((2, 3, 4))
        self.refuses("out of range", {"x": x}, {"begin_norm_axis": 3})
        self.refuses("scale", {"x": x, "scale": np.ones(3)})
        self.refuses("bias", {"x": x, "bias": np.ones((3, 4))})
        self.refuses("no elements", {"x": x[..., :0]})
        self.refuses("floating dtype", {"x": x.astype(int)})


class Bare(OpTest):
    """Without scale and bias."""

    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(2, 4, 3))}, self.attrs)
        yield Case({"x": rng.normal(size=(3, 2, 2, 5))}, self.attrs)

    attrs = {}


class TestBareLayerNorm(Bare, TestLayerNorm):
    grad = ("x",)
    cases = Bare.cases


class TestRmsNorm(OpTest):
    type = "rms_norm"
    grad = ("x", "scale")

    def cases(self, rng):
        for shape, begin in (((3, 4), -1), ((2, 3, 4), 1), ((5,), 0)):
            inputs = {"x": rng.normal(size=shape), "scale": rng.normal(size=shape[begin:])}
            yield Case(inputs, {"begin_norm_axis": begin, "epsilon": 1e-3})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        axes = tuple(range(attrs["begin_norm_axis"] % x.ndim, x.ndim))
        if 0 in x.shape[axes[0] :]:
            raise ValueError("there is no mean of nothing")
        out = x / np.sqrt((x**2).mean(axes, keepdims=True) + attrs["epsilon"])
        return {"out": out * inputs.get("scale", 1)}

    def test_refuses(self):
        self.refuses("scale", {"x": np.zeros((2, 3)), "scale": np.ones(2)})


class TestBareRmsNorm(Bare, TestRmsNorm):
    grad = ("x",)
    cases = Bare.cases


class TestGroupNorm(OpTest):
    type = "group_norm"
    grad = ("x", "scale", "bias")

    def cases(self, rng):
        for shape, groups in (((2, 4, 3), 2), ((3, 6, 2, 3), 3), ((2, 4), 2), ((2, 3, 4), 1)):
            params = {name: rng.normal(size=shape[1]) for name in ("scale", "bias")}
            yield Case({"x": rng.normal(size=shape), **params}, {"groups": groups})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        split = x.reshape(len(x), attrs["groups"], -1) if len(x) else x
        out = normalized(split, (2,), attrs["epsilon"]).reshape(x.shape) if len(x) else x
        params = (by_channel(inputs.get(name), x.ndim) for name in ("scale", "bias"))
        return {"out": normalized(out, (), 0, *params, 0, 1)}

    def test_refuses(self):
        x = np.zeros((2, 4, 3))
        self.refuses("do not split into 3 groups", {"x": x}, {"groups": 3})
        self.refuses("at least 2 dimensions", {"x": x[0, 0]}, {"groups": 1})
        self.refuses("no elements", {"x": x[..., :0]}, {"groups": 1})
        self.refuses("scale", {"x": x, "scale": np.ones(3)}, {"groups": 2})
        self.refuses("groups", {"x": x}, {}, AttributeTypeError)


class TestInstanceNorm(OpTest):
    type = "instance_norm"
    grad = ("x", "scale", "bias")

    def cases(self, rng):
        for shape in ((2, 3, 5), (2, 3, 4, 2)):
            params = {name: rng.normal(size=3) for name in ("scale", "bias")}
            yield Case({"x": rng.normal(size=shape), **params}, {"epsilon": 1e-2})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        params = (by_channel(inputs[name], x.ndim) for name in ("scale", "bias"))
        return {"out": normalized(x, tuple(range(2, x.ndim)), attrs["epsilon"], *params)}

    def test_refuses(self):
        self.refuses("at least 3 dimensions", {"x": np.zeros((2, 3))})


class TestLrn(OpTest):
    type = "lrn"
    grad = ("x",)

    def cases(self, rng):
        for shape, size in (((2, 6, 3), 3), ((2, 5, 2, 2), 4), ((2, 3), 5), ((2, 3, 2), 1)):
            attrs = {"size": size, "alpha": 0.3, "beta": 0.6, "k": 1.5}
            yield Case({"x": rng.normal(size=shape)}, attrs)

    def reference(self, inputs, attrs):
        x, size = inputs["x"], attrs["size"]
        ends = [(0, 0)] * x.ndim
        ends[1] = (size // 2, (size - 1) // 2)
        squares = np.pad(x**2, ends)
        total = sum(squares[:, tap : tap + x.shape[1]] for tap in range(size))
        return {"out": x / (attrs["k"] + attrs["alpha"] / size * total) ** attrs["beta"]}

    def test_refuses(self):
        self.refuses("at least 2 dimensions", {"x": np.zeros(3)})


TORCH = {
    "batch_norm": (
        (6, 4, 5),
        {},
        lambda f, g: f.batch_norm(
            g["x"], g["mean"], g["variance"], g["scale"], g["bias"], training=True
        ),
    ),
    "layer_norm": ((6, 4, 5), {}, lambda f, g: f.layer_norm(g["x"], (5,), g["scale"], g["bias"])),
    "rms_norm": ((6, 4, 5), {}, lambda f, g: f.rms_norm(g["x"], (5,), g["scale"], 1e-6)),
    "group_norm": (
        (6, 4, 5),
        {"groups": 2},
        lambda f, g: f.group_norm(g["x"], 2, g["scale"], g["bias"]),
    ),
    "instance_norm": (
        (6, 4, 5),
        {},
        lambda f, g: f.instance_norm(g["x"], weight=g["scale"], bias=g["bias"]),
    ),
    "lrn": ((6, 4, 5), {"size": 3}, lambda f, g: f.local_response_norm(g["x"], 3)),
}


@pytest.mark.parametrize("kind", TORCH)
def test_equals_torch(kind):
    torch = pytest.importorskip("torch")
    shape, attrs, oracle = TORCH[kind]

    class Test(OpTest):
        type = kind

    rng = np.random.default_rng(0)
    slots = [slot for slot in Test().entry.input_slots if slot != "x"]
    width = shape[-1] if kind in ("layer_norm", "rms_norm") else shape[1]
    inputs = {"x": rng.normal(size=shape), **{slot: rng.uniform(1, 2, width) for slot in slots}}
    more = ("mean_out", "variance_out") if kind == "batch_norm" else ()
    setup = Test().setup(Case(inputs, attrs, outputs=more), "float32", want=False)
    arrays = Test().output(setup.case)
    given = {name: torch.tensor(array) for name, array in setup.arrays.items()}
    learned = [name for name in given if name in ("x", "scale", "bias")]
    for name in learned:
        given[name].requires_grad_()
    wanted = oracle(torch.nn.functional, given)
    np.testing.assert_allclose(arrays["out"], wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    wanted.backward(torch.tensor(setup.seed("out")))
    found = setup.gradients(arrays, learned)
    for name in learned:
        np.testing.assert_allclose(found[name], given[name].grad.numpy(), rtol=1e-4, atol=1e-5)
    for name in ("mean", "variance") if more else ():
        np.testing.assert_allclose(arrays[f"{name}_out"], given[name].numpy(), rtol=1e-5)
