"""Operators of training in half precision: masters in float32 and scaled losses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import ShapeError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest
from opscope.testing.device_double import DOUBLE, by_default

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype("float16"), BFLOAT16)
NAN, INF = np.nan, np.inf


class TestMasterStore(OpTest):
    type = "master_store"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, {"dtype": np.dtype("float32")})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"].astype(attrs["dtype"])}

    def test_rounds_to_the_nearest(self):
        x = np.array([1 + 2**-12, 1 + 3 * 2**-11, 1e-9, 7e4, NAN], np.float32)
        for dtype in HALVES:
            out = self.output(Case({"x": x}, {"dtype": dtype}))["out"]
            assert out.dtype == dtype
            with np.errstate(over="ignore"):
                wanted = x.astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(out.astype(np.float32), wanted)

    def test_refuses(self):
        self.refuses("dtype wants a floating one", {"x": np.zeros(2)}, {"dtype": np.dtype("int8")})


class TestLossScaleSeed(OpTest):
    type = "loss_scale_seed"

    def cases(self, rng):
        yield Case({"x": np.array(rng.normal()), "scale": np.array(8.0)})
        yield Case({"x": rng.normal(size=(3, 2)), "scale": np.array(0.5)})

    def reference(self, inputs, attrs):
        return {"out": np.full(inputs["x"].shape, inputs["scale"])}


class TestLossScaleCheck(OpTest):
    type = "loss_scale_check"
    strided_outputs = False

    def cases(self, rng):
        scale = np.array(4.0)
        yield Case({"x": [rng.normal(size=(3, 4)), rng.normal(size=5)], "scale": scale})
        for bad in (NAN, INF, -INF):
            x = rng.normal(size=(2, 3))
            x[1, 2] = bad
            yield Case({"x": [rng.normal(size=5), x], "scale": scale})
        yield Case({"x": [np.zeros((0, 3))], "scale": scale})

    def reference(self, inputs, attrs):
        finite = float(all(np.isfinite(x).all() for x in inputs["x"]))
        return {"factor": 1 / inputs["scale"], "finite": np.array(finite)}

    def test_without_the_check(self):
        out = self.setup(Case({"x": [np.zeros(2)], "scale": np.array(4.0)}), "float32", want=False)
        assert "finite" not in out.outputs

    def test_largest_numbers_are_finite(self):
        """A sum of them is not."""
        x = np.full(4, np.finfo(np.float32).max)
        out = self.output(Case({"x": [x], "scale": np.array(2.0)}, outputs=("finite",)))
        assert out["finite"] == 1 and out["factor"] == 0.5

    def test_refuses_integers(self):
        self.refuses("floating dtype", {"x": [np.zeros(2, int)], "scale": np.array(1.0)})


class TestLossScaleUndo(OpTest):
    type = "loss_scale_undo"
    exact_dtype = ("out",)

    def cases(self, rng):
        single = {"dtype": np.dtype("float32")}
        yield Case({"x": rng.normal(size=(3, 4)), "grad_scale": np.array(0.25)}, single)
        yield Case({"x": rng.normal(size=(3, 4))}, single)

    def reference(self, inputs, attrs):
        return {"out": (inputs["x"] * inputs.get("grad_scale", 1)).astype(attrs["dtype"])}

    def test_keeps_what_float16_would_lose(self):
        x = np.array([2.0**-20], np.float16)
        factor = np.array(2.0**-16, np.float32)
        case = Case({"x": x, "grad_scale": factor}, {"dtype": np.dtype("float32")})
        out = self.output(case, None)["out"]
        assert out == np.float32(2.0**-36)


class TestLossScaleCommit(OpTest):
    type = "loss_scale_commit"
    nan = False  # a NaN that is not taken leaves no trace: that is its purpose

    def cases(self, rng):
        for finite in (0.0, 1.0):
            new, old = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
            new[0, 0] = 0.5 if finite else NAN
            yield Case({"new": new, "old": old, "finite": np.array(finite)})

    def reference(self, inputs, attrs):
        return {"out": inputs["new"] if inputs["finite"] > 0 else inputs["old"]}

    def test_integers(self):
        for finite, wanted in ((0.0, 3), (1.0, 4)):
            case = Case({"new": np.array(4), "old": np.array(3), "finite": np.array(finite)})
            out = self.output(case)["out"]
            assert out == wanted and out.dtype == np.int64

    def test_refuses(self):
        finite = np.array(1.0)
        given = {"new": np.zeros(2), "old": np.zeros(2, int), "finite": finite}
        self.refuses("one dtype", given)
        self.refuses("one shape", {"new": np.zeros(2), "old": np.zeros(3), "finite": finite})


class TestLossScaleUpdate(OpTest):
    type = "loss_scale_update"
    strided_outputs = False

    def cases(self, rng):
        attrs = {"growth_interval": 3, "growth_factor": 4.0, "backoff_factor": 0.25}
        for steps, finite in ((0, 1.0), (1, 1.0), (2, 1.0), (2, 0.0), (0, 0.0)):
            given = {"scale": np.array(64.0), "steps": np.array(steps), "finite": np.array(finite)}
            yield Case(given, attrs)

    def reference(self, inputs, attrs):
        scale, steps = inputs["scale"], inputs["steps"] + 1
        if inputs["finite"] == 0:
            return {"scale_out": scale * attrs["backoff_factor"], "steps_out": np.array(0)}
        if steps < attrs["growth_interval"]:
            return {"scale_out": scale, "steps_out": steps}
        return {"scale_out": scale * attrs["growth_factor"], "steps_out": np.array(0)}

    def test_stays_within_the_numbers_of_its_dtype(self):
        info, attrs = np.finfo(np.float32), {"growth_interval": 1}
        for scale, finite, wanted in ((info.max, 1.0, info.max), (info.tiny, 0.0, info.tiny)):
            given = {"scale": scale, "steps": np.array(0), "finite": np.array(finite)}
            assert self.output(Case(given, attrs))["scale_out"] == wanted


def synced(param: np.ndarray, master: np.ndarray) -> np.ndarray:
    net, scope = OpList(), Scope()
    net.vars.append(make_var("param", param.shape, param.dtype, INPUT))
    net.vars.append(make_var("master", master.shape, master.dtype, INPUT))
    net.ops.append(make_op("master_sync", {"param": "param", "master": "master"}, {"out": "out"}))
    scope.feed({"param": param, "master": master})
    PlainNet(net).run(scope, OpContext())
    return scope.numpy("out")


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_master_sync(dtype):
    """What rounds to the parameter stays; where the parameter was set it is taken."""
    master = np.array([1 + 2**-12, -3.1, 0.0, 5.0, 1e-30], np.float32)
    param = master.astype(dtype)
    np.testing.assert_array_equal(synced(param, master), master)
    param[1], param[3] = 2.5, NAN
    np.testing.assert_array_equal(
        synced(param, master), np.array([1 + 2**-12, 2.5, 0, NAN, 1e-30], np.float32)
    )


def test_master_sync_on_the_device():
    with by_default():
        assert Scope().place == DOUBLE
        out = synced(np.array([1, 2], np.float16), np.array([1.0001, 3], np.float32))
        np.testing.assert_array_equal(out, np.array([1.0001, 2], np.float32))


@pytest.mark.parametrize(
    "param, master", [("float32", "float32"), ("float16", "float16"), ("float16", "float64")]
)
def test_master_sync_refuses(param, master):
    with pytest.raises(ShapeError, match="half precision and a float32 master"):
        synced(np.zeros(2, param), np.zeros(2, master))
