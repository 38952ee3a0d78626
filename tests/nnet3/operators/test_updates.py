"""Objectives and updates of parameters, operator by operator."""

import numpy as np

import opscope.nnet3.components  # noqa: F401 - registers the operators
from opscope.testing import Case, OpTest

ONE = np.ones(1)


class TestLinearObjective(OpTest):
    type = "nnet3.linear_objective"
    exact_dtype = ("totals",)

    def cases(self, rng):
        yield Case({"output": rng.normal(size=(4, 3)), "supervision": rng.uniform(size=(4, 3))})

    def reference(self, inputs, attrs):
        x, y = inputs["output"], inputs["supervision"]
        return {"deriv": y, "totals": np.array([y.sum(), (x * y).sum()])}

    def test_refuses(self):
        self.refuses("one shape", {"output": np.zeros((2, 2)), "supervision": np.zeros((2, 3))})


class TestQuadraticObjective(OpTest):
    type = "nnet3.quadratic_objective"
    exact_dtype = ("totals",)

    def cases(self, rng):
        yield Case({"output": rng.normal(size=(4, 3)), "supervision": rng.normal(size=(4, 3))})

    def reference(self, inputs, attrs):
        diff = inputs["supervision"] - inputs["output"]
        return {"deriv": diff, "totals": np.array([len(diff), -0.5 * (diff**2).sum()])}


class TestParameterDelta(OpTest):
    type = "nnet3.parameter_delta"

    def cases(self, rng):
        param, grad, delta = ([rng.normal(size=(2, 3)), rng.normal(size=3)] for _ in range(3))
        common = {"param": param, "rate": np.array([0.1]), "l2_scale": np.array([8.0])}
        yield Case(common | {"grad": grad}, {"l2": 0.01})
        momentum = {"l2": 0.01, "momentum": 0.5}
        yield Case(common | {"grad": grad, "delta": delta, "kept": ONE}, momentum)
        yield Case(common | {"grad": grad, "delta": delta, "kept": 0 * ONE}, momentum)
        yield Case(common | {"delta": delta}, momentum)
        yield Case(common, {"l2": 0.01})

    def reference(self, inputs, attrs):
        kept = attrs["momentum"] * inputs.get("kept", ONE)
        rate, decay = inputs["rate"], 2 * attrs["l2"] * inputs["l2_scale"]
        zeros = [np.zeros(1)] * len(inputs["param"])
        groups = (inputs["param"], inputs.get("grad", zeros), inputs.get("delta", zeros))
        triples = zip(*groups, strict=True)
        return {"delta_out": [kept * d + rate * (g - decay * p) for p, g, d in triples]}

    def test_refuses(self):
        inputs = {"param": [np.zeros(2)], "grad": [np.zeros(3)], "rate": ONE, "l2_scale": ONE}
        self.refuses("param and grad", inputs)


class TestMaxChange(OpTest):
    type = "nnet3.max_change"

    def cases(self, rng):
        delta = [np.full((2, 2), 2.0), np.full(9, 1.0), np.full(4, 0.5)]
        inputs = {"delta": delta, "scale": np.array([-0.5]), "bound_scale": np.array([2.0])}
        attrs = {"arrays": [2, 0, 1], "bounds": [0.75, 1.0, 0.0], "total": 0.0}
        yield Case(inputs, attrs)
        yield Case(inputs, attrs | {"total": 0.5})
        infinite = {**inputs, "delta": [np.full((2, 2), np.inf), *delta[1:]]}
        yield Case(infinite, attrs)

    def reference(self, inputs, attrs):
        if np.isinf(inputs["delta"][0]).any():
            return {"scales": np.zeros(3), "kept": np.zeros(1)}
        # Of the cases: norms 5 and 1, halved by the scale; the bound of the first is 1.5.
        both, last = inputs["delta"][:2], inputs["delta"][2]
        norms = np.sqrt([sum((delta**2).sum() for delta in both), 0, (last**2).sum()]) / 2
        factors = np.array([1.5 / max(norms[0], 1.5), 1.0, 1.0])
        change = np.linalg.norm(factors * norms)
        whole = 1.0 / change if attrs["total"] and change > 1 else 1.0
        return {
            "factors": factors,
            "change": np.array([change]),
            "scales": -0.5 * factors * whole,
            "kept": np.ones(1),
        }


class TestApplyChange(OpTest):
    type = "nnet3.apply_change"

    def cases(self, rng):
        param, delta = ([rng.normal(size=(2, 3)), rng.normal(size=3)] for _ in range(2))
        scales = np.array([0.0, -0.5])
        for index in (0, 1):
            yield Case({"param": param, "delta": delta, "scales": scales}, {"index": index})

    def reference(self, inputs, attrs):
        scale = inputs["scales"][attrs["index"]]
        pairs = zip(inputs["param"], inputs["delta"], strict=True)
        return {"param_out": [p + scale * d for p, d in pairs]}

    def test_refuses(self):
        arrays = {"param": [np.zeros(2)], "delta": [np.zeros(2)], "scales": ONE}
        self.refuses("none at 3", arrays, {"index": 3})


class TestConstrainOrthonormal(OpTest):
    type = "nnet3.constrain_orthonormal"
    tolerance = 1e-4

    def cases(self, rng):
        near = np.linalg.qr(rng.normal(size=(5, 3)))[0] + 0.01 * rng.normal(size=(5, 3))
        always = {"probability": 1.0}
        yield Case({"w": near}, {"scale": 1.0, **always})
        yield Case({"w": near.T}, {"scale": -1.0, **always})
        yield Case({"w": rng.normal(size=(3, 5))}, {"scale": -1.0, **always})
        yield Case({"w": near, "wanted": 0 * ONE}, {"scale": 1.0, **always})
        yield Case({"w": near}, {"scale": 1.0, "probability": 0.0})

    def reference(self, inputs, attrs):
        given = inputs["w"]
        if "wanted" in inputs or not attrs["probability"]:
            return {"w_out": given}
        w = given if len(given) <= given.shape[1] else given.T
        p = w @ w.T
        square, speed = attrs["scale"] ** 2, 0.125
        if attrs["scale"] < 0:
            square = np.trace(p @ p) / np.trace(p)
            ratio = np.trace(p @ p) * len(p) / np.trace(p) ** 2
            speed *= 0.25 if ratio > 1.1 else 0.5 if ratio > 1.02 else 1
        w = w - 4 * speed / square * (p - square * np.eye(len(p))) @ w
        return {"w_out": w if len(given) <= given.shape[1] else w.T}

    def test_refuses(self):
        self.refuses("no constraint", {"w": np.zeros((2, 2))}, {"scale": 0.0})


class TestScaleStates(OpTest):
    type = "nnet3.scale_states"

    def cases(self, rng):
        yield Case({"x": [rng.normal(size=3), rng.normal(size=1)], "factor": np.array([0.8])})

    def reference(self, inputs, attrs):
        return {"x_out": [inputs["factor"] * x for x in inputs["x"]]}
