"""Remainders, floored quotients and atan2, with broadcasting."""

from __future__ import annotations

import numpy as np

from opscope.testing import Case, OpTest

SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 1), (1, 4)),
    ((3, 4), ()),
    ((), ()),
]


class Remainder(OpTest):
    grad = ("x", "y")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        def drawn(low, high, shape):  # no quotient is near a whole number
            return rng.integers(low, high, shape) * 1.0

        for x, y in SHAPES:
            sign = rng.choice([-1.0, 1.0], y)
            yield Case({"x": drawn(-9, 9, x) + 0.5, "y": drawn(2, 5, y) * sign})

    def reference(self, inputs, attrs):
        return {"out": np.asarray(self.formula(inputs["x"], inputs["y"]))}

    def formula(self, x, y):
        return getattr(np, self.type)(x, y)

    def test_integers_and_signs(self):
        x, y = np.array([7, -7, 7, -7]), np.array([3, 3, -3, -3])
        out = self.output(Case({"x": x, "y": y}))["out"]
        assert out.dtype == np.int64 and out.tolist() == self.formula(x, y).tolist()

    def test_by_zero(self):
        zero = np.zeros(3)
        out = self.output(Case({"x": np.array([1.0, -1.0, 0.0]), "y": zero}))["out"]
        np.testing.assert_array_equal(out, [np.nan] * 3)
        out = self.output(Case({"x": np.array([1, -1, 0]), "y": np.zeros(3, int)}))["out"]
        assert out.tolist() == [0, 0, 0]

    def test_refuses(self):
        self.refuses("dtype", {"x": np.ones(2), "y": np.ones(2, int)})
        self.refuses("dtype", {"x": np.ones(2, bool), "y": np.ones(2, bool)})
        self.refuses("do not broadcast", {"x": np.ones(2), "y": np.ones(3)})


class TestMod(Remainder):
    type = "mod"

    def test_sign_of_python(self):
        x, y = np.array([7.5, -7.5, 7.5, -7.5]), np.array([2.0, 2.0, -2.0, -2.0])
        out = self.output(Case({"x": x, "y": y}), "float64")["out"]
        assert out.tolist() == [a % b for a, b in zip(x.tolist(), y.tolist(), strict=True)]


class TestFmod(Remainder):
    type = "fmod"


class TestFloorDivide(Remainder):
    type = "floor_divide"
    grad = ()

    def test_by_zero(self):
        case = Case({"x": np.array([1.0, -1.0, 0.0]), "y": np.zeros(3)})
        np.testing.assert_array_equal(self.output(case)["out"], [np.inf, -np.inf, np.nan])
        case = Case({"x": np.array([1, -1]), "y": np.array([0, 0])})
        assert self.output(case)["out"].tolist() == [0, 0]


class TestAtan2(OpTest):
    type = "atan2"
    grad = ("x", "y")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for x, y in SHAPES:
            sign = rng.choice([-1.0, 1.0], y)
            yield Case({"x": rng.normal(size=x), "y": rng.uniform(0.5, 2, y) * sign})

    def reference(self, inputs, attrs):
        return {"out": np.asarray(np.arctan2(inputs["x"], inputs["y"]))}

    def test_refuses_integers(self):
        self.refuses("floating", {"x": np.ones(2, int), "y": np.ones(2, int)})
