"""Updates of parameters as CNTK's SGD makes them."""

import math

import numpy as np
import pytest

import opscope.cntk.operators  # noqa: F401  registers them
from opscope.framework.base.errors import RunError
from opscope.framework.ir.desc import PARAMETER
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import lookup
from opscope.testing import Case, OpTest

RATE, MOMENTUM, COLUMNS = 0.02, 0.8, 6.0
CONTROL = {
    "rate": np.array(RATE),
    "momentum": np.array(MOMENTUM),
    "columns": np.array(COLUMNS),
}


def parameter(rng, *states, shape=(4, 3), count=None):
    inputs = {"param": rng.normal(size=shape), "grad": rng.normal(size=shape), **CONTROL}
    inputs.update({name: rng.random(size=shape) for name in states})
    if count is not None:
        inputs["count"] = np.array(count)
    return inputs


def some_rows(rng, *states, count=None):
    """Gradients of rows 3, 0 and 3 of a parameter; -1 is no row."""
    inputs = parameter(rng, *states, count=count)
    inputs["grad"] = rng.normal(size=(4, 3))
    inputs["rows"] = np.array([3, 0, -1, 3])
    return inputs


def by_rows(update, inputs, states):
    """What `update` does to some rows: to those rows of parameter and states only."""
    if "rows" not in inputs:
        return update(inputs)
    rows = inputs["rows"]
    ids = np.unique(rows[rows >= 0])
    if not len(ids):
        held = ("param", *states, *(["count"] if "count" in inputs else []))
        return {f"{name}_out": inputs[name] for name in held}
    sums = [inputs["grad"][rows == row].sum(0) for row in ids]
    grad = np.array(sums).reshape(len(ids), *inputs["grad"].shape[1:])
    part = {**inputs, "grad": grad, **{name: inputs[name][ids] for name in ("param", *states)}}
    out = update(part)
    for name in ("param", *states):
        whole = inputs[name].copy()
        whole[ids] = out[f"{name}_out"]
        out[f"{name}_out"] = whole
    return out


class LearnerTest(OpTest):
    states = ()
    count = None
    attrs = {}

    def cases(self, rng):
        attrs = {"rate_factor": 0.5, **self.attrs}
        held = ["param", *self.states, *(["count"] if self.count is not None else [])]
        share = {f"{slot}_out": slot for slot in held}
        every = [
            Case(parameter(rng, *self.states, count=self.count), attrs, share=share),
            Case(parameter(rng, *self.states, shape=(5,), count=self.count)),
            Case(some_rows(rng, *self.states, count=self.count), attrs),
        ]
        for case in every:
            for slot in CONTROL.keys() - lookup(self.type).input_slots.keys():
                del case.inputs[slot]
            yield case

    def reference(self, inputs, attrs):
        rate = inputs["rate"] * attrs.get("rate_factor", 1.0)
        return by_rows(lambda i: self.update(i, attrs, rate), inputs, self.states)


class TestMomentum(LearnerTest):
    type = "cntk.momentum_sgd"
    states = ("velocity",)

    def update(self, i, attrs, rate):
        sparse, m = "rows" in i, i["momentum"]  # the rate is outside of sparse states
        s = m * i["velocity"] + (1 - m) * (1 if sparse else rate) * i["grad"]
        return {"param_out": i["param"] - s * (rate if sparse else 1), "velocity_out": s}


class TestNesterov(LearnerTest):
    type = "cntk.nesterov"
    states = ("velocity",)

    def update(self, i, attrs, rate):
        sparse, m = "rows" in i, i["momentum"]
        g = (1 - m) * (1 if sparse else rate) * i["grad"]
        s = m * i["velocity"] + g
        step = (m * s + g) * (rate if sparse else 1)
        return {"param_out": i["param"] - step, "velocity_out": s}


class TestAdaGrad(LearnerTest):
    type = "cntk.adagrad"
    states = ("squares",)

    def update(self, i, attrs, rate):
        a = i["squares"] + i["grad"] ** 2
        factor = 1 / np.sqrt(a + 1e-16)
        mean = factor.mean() if attrs.get("average", True) else 1
        return {"param_out": i["param"] - rate / mean * factor * i["grad"], "squares_out": a}


class TestAdaGradWithoutAverage(TestAdaGrad):
    attrs = {"average": False}


class TestFsAdaGrad(LearnerTest):
    halves = False  # in halves its velocity is off by 1.1e-3
    type = "cntk.fs_adagrad"
    states = ("squares", "velocity")
    count = 40.0
    attrs = {"variance_time_constant": 50.0, "target_denominator": 0.3}

    def update(self, i, attrs, rate):
        keep = math.exp(-COLUMNS / attrs.get("variance_time_constant", 720000.0))
        count = keep * i["count"] + (1 - keep) * COLUMNS
        a = keep * i["squares"] + (1 - keep) * i["grad"] ** 2
        target = attrs.get("target_denominator", 1.0)
        g = i["grad"] * np.minimum(target * np.sqrt(count) / np.sqrt(a), 10)
        s = MOMENTUM * i["velocity"] + (1 - MOMENTUM) * g
        return {
            "param_out": i["param"] - rate * s,
            "squares_out": a,
            "velocity_out": s,
            "count_out": np.float64(count),
        }


class TestRmsProp(LearnerTest):
    type = "cntk.rms_prop"
    states = ("squares", "signs", "steps")
    count = 2.0
    attrs = {"gamma": 0.9, "largest": 0.6, "smallest": 0.4}

    def update(self, i, attrs, rate):
        gamma = attrs.get("gamma", 0.99)
        before = i["squares"] if i["count"] else i["grad"] ** 2
        a = gamma * before + (1 - gamma) * i["grad"] ** 2
        sign = np.sign(i["grad"])
        steps = np.where(
            i["signs"] * sign > 0,
            np.minimum(i["steps"] * 1.2, attrs.get("largest", 10.0)),
            np.maximum(i["steps"] * 0.75, attrs.get("smallest", 0.1)),
        )
        factor = steps / np.sqrt(a + 1e-6)
        return {
            "param_out": i["param"] - rate / factor.mean() * factor * i["grad"],
            "squares_out": a,
            "signs_out": sign,
            "steps_out": steps,
            "count_out": np.float64(i["count"] + 1),
        }


class TestRmsPropAtFirst(TestRmsProp):
    count = 0.0


class TestClipGradient(OpTest):
    type = "cntk.clip_gradient"

    def cases(self, rng):
        inputs = {"grad": rng.normal(size=(3, 4)), "columns": CONTROL["columns"]}
        yield Case(inputs, {"threshold": 0.05})
        yield Case(inputs, {"threshold": 0.05, "norm": True})
        yield Case(inputs, {"threshold": 10.0, "norm": True})

    def reference(self, inputs, attrs):
        grad, most = inputs["grad"], attrs["threshold"] * COLUMNS
        if not attrs.get("norm"):
            return {"out": np.clip(grad, -most, most)}
        norm = np.sqrt((grad**2).sum())
        return {"out": grad * most / norm if norm > most else grad}


class TestL2Gradient(OpTest):
    type = "cntk.l2_gradient"

    def cases(self, rng):
        inputs = {"grad": rng.normal(size=(3, 4)), "param": rng.normal(size=(3, 4))}
        yield Case({**inputs, "columns": CONTROL["columns"]}, {"weight": 0.1})

    def reference(self, inputs, attrs):
        return {"out": inputs["grad"] + attrs["weight"] * inputs["columns"] * inputs["param"]}


class TestSoftThreshold(OpTest):
    type = "cntk.soft_threshold"

    def cases(self, rng):
        inputs = {"param": rng.normal(size=(3, 4)), **CONTROL}
        del inputs["momentum"]
        yield Case(inputs, {"weight": 3.0, "rate_factor": 0.7})

    def reference(self, inputs, attrs):
        param, most = inputs["param"], attrs["weight"] * RATE * attrs["rate_factor"] * COLUMNS
        return {"param_out": np.sign(param) * np.maximum(np.abs(param) - most, 0)}


class TestWeightNoise(OpTest):
    type = "cntk.weight_noise"

    def cases(self, rng):
        yield Case({"param": rng.normal(size=(4, 3))}, {"deviation": 0.0})
        rows = {"rows": np.array([3, 0, -1, 3])}
        yield Case({"param": rng.normal(size=(4, 3)), **rows}, {"deviation": 0.0})

    def reference(self, inputs, attrs):
        return {"param_out": inputs["param"]}

    def test_refuses(self):
        param, attrs = np.zeros((4, 3)), {"deviation": 1.0}
        self.refuses("floating", {"param": param.astype(int)}, attrs)
        self.refuses("rows wants an integer", {"param": param, "rows": np.zeros(2)}, attrs)
        self.refuses("rows wants 1", {"param": param, "rows": np.zeros((2, 1), int)}, attrs)
        self.refuses("no rows", {"param": np.array(0.0), "rows": np.zeros(2, int)}, attrs)
        with pytest.raises(RunError, match="holds 4, want below 4"):
            self.output(Case({"param": param, "rows": np.array([4])}, attrs))


def test_noise_has_the_deviation_asked_for():
    from opscope.framework.base.context import OpContext
    from opscope.framework.base.scope import Scope
    from opscope.framework.ir.desc import make_op, make_var
    from opscope.framework.runtime.plain_net import PlainNet

    net = OpList()
    net.vars.append(make_var("w", (200, 50), np.float32, PARAMETER))
    net.ops.append(
        make_op("cntk.weight_noise", {"param": "w"}, {"param_out": "w"}, {"deviation": 0.3})
    )
    scope = Scope()
    scope.var("w").set(np.ones((200, 50), np.float32))
    PlainNet(net).run(scope, OpContext(train=True, seed=1))
    assert scope.numpy("w").mean() == pytest.approx(1, abs=0.02)
    assert scope.numpy("w").std() == pytest.approx(0.3, rel=0.03)
