"""Elementwise functions of one input."""

from __future__ import annotations

import math

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest
from opscope.testing.unary_test import UnaryTest


class Positive(UnaryTest):
    """A function for positive numbers."""

    def cases(self, rng):
        yield Case({"x": rng.uniform(0.3, 3, (3, 4))})
        yield Case({"x": rng.uniform(0.3, 3, (7,))})


class TestNeg(UnaryTest):
    type = "neg"

    def formula(self, x):
        return -x

    def cases(self, rng):
        yield from super().cases(rng)
        yield Case({"x": rng.normal(size=5)})

    def test_refuses_integers(self):
        self.refuses("bool", {"x": np.array([True])})


class TestNegOfIntegers(OpTest):
    type = "neg"

    def cases(self, rng):
        yield Case({"x": np.arange(4)})

    def reference(self, inputs, attrs):
        return {"out": -inputs["x"]}

    def test_grad_names_what_there_is(self):
        assert self.entry.gradient is not None


class TestAbs(UnaryTest):
    type = "abs"
    kinks = (0,)

    def formula(self, x):
        return np.abs(x)

    def test_refuses_integers(self):
        self.refuses("bool", {"x": np.array([True])})


class Step(UnaryTest):
    grad = ()
    kinks = (-3, -2, -1, 0, 1, 2, 3)


class TestSign(Step):
    type = "sign"

    def formula(self, x):
        return np.sign(x)

    def test_refuses_integers(self):
        self.refuses("bool", {"x": np.array([True])})


class TestSignOfIntegers(OpTest):
    type = "sign"

    def cases(self, rng):
        yield Case({"x": np.arange(-2, 3)})
        yield Case({"x": np.arange(3, dtype=np.uint8)})

    def reference(self, inputs, attrs):
        return {"out": np.sign(inputs["x"])}


class TestFloor(Step):
    type = "floor"

    def formula(self, x):
        return np.floor(x)


class TestCeil(Step):
    type = "ceil"

    def formula(self, x):
        return np.ceil(x)


class TestRound(Step):
    type = "round"

    def formula(self, x):
        return np.rint(x)

    def test_halves_go_to_even(self):
        out = self.output(Case({"x": np.array([0.5, 1.5, 2.5, -0.5])}))["out"]
        assert out.tolist() == [0, 2, 2, 0]


class TestExp(UnaryTest):
    type = "exp"

    def formula(self, x):
        return np.exp(x)


class TestLog(Positive):
    type = "log"

    def formula(self, x):
        return np.log(x)


class TestSqrt(Positive):
    type = "sqrt"

    def formula(self, x):
        return np.sqrt(x)


class TestRsqrt(Positive):
    type = "rsqrt"

    def formula(self, x):
        return 1 / np.sqrt(x)


class TestSquare(UnaryTest):
    type = "square"

    def formula(self, x):
        return x * x

    def test_refuses_integers(self):
        self.refuses("bool", {"x": np.array([True])})


class TestReciprocal(Positive):
    type = "reciprocal"

    def formula(self, x):
        return 1 / x


class TestSin(UnaryTest):
    type = "sin"

    def formula(self, x):
        return np.sin(x)


class TestCos(UnaryTest):
    type = "cos"

    def formula(self, x):
        return np.cos(x)


class TestErf(UnaryTest):
    type = "erf"
    tolerance64 = 1e-14

    def formula(self, x):
        return np.vectorize(math.erf, otypes=[float])(x)

    def test_accuracy(self):
        x = np.concatenate([np.linspace(-7, 7, 1001), [1e-300, -1e-9, 30, np.inf, -np.inf]])
        out = self.output(Case({"x": x}), "float64")["out"]
        np.testing.assert_allclose(out, self.formula(x), rtol=1e-14)


class TestClip(UnaryTest):
    type = "clip"
    kinks = (-1, 1.5)
    given = ({"minimum": -1.0, "maximum": 1.5}, {"minimum": -1.0}, {"maximum": 1.5}, {})

    def formula(self, x, minimum, maximum):
        return np.clip(x, minimum, maximum)

    def test_refuses_crossed_limits(self):
        self.refuses("minimum 2.0", {"x": np.ones(2)}, {"minimum": 2.0, "maximum": 1.0})


class TestAssign(UnaryTest):
    type = "assign"

    def formula(self, x):
        return x

    def test_refuses_integers(self):
        out = self.output(Case({"x": np.arange(3)}))["out"]
        assert out.dtype == np.int64 and out.tolist() == [0, 1, 2]


class TestScale(UnaryTest):
    type = "scale"
    given = ({"scale": 3.0, "bias": -1.0}, {"scale": 0.5}, {"bias": 2.0}, {})

    def formula(self, x, scale, bias):
        return scale * x + bias


class TestIncrement(UnaryTest):
    type = "increment"
    given = ({}, {"value": 2.5})

    def formula(self, x, value):
        return x + value

    def test_refuses_integers(self):
        self.refuses("not whole", {"x": np.arange(3)}, {"value": 0.5})


class TestIncrementInPlace(OpTest):
    type = "increment"

    def cases(self, rng):
        yield Case({"x": np.array([41])}, share={"out": "x"})
        yield Case({"x": np.array([5, 6], np.int32)}, {"value": -2.0})
        yield Case({"x": rng.normal(size=3)}, {"value": 0.5}, share={"out": "x"})

    def reference(self, inputs, attrs):
        value = attrs["value"]
        return {"out": inputs["x"] + (int(value) if inputs["x"].dtype.kind == "i" else value)}

    def test_grad_names_what_there_is(self):
        assert self.entry.gradient is not None


class TestCast(OpTest):
    type = "cast"
    exact_dtype = ("out",)

    def cases(self, rng):
        x = rng.normal(size=(3, 4)) * 3
        for dtype in ("int64", "float32", "float64", "bool"):
            yield Case({"x": x}, {"dtype": np.dtype(dtype)})
            yield Case({"x": np.arange(5)}, {"dtype": np.dtype(dtype)})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"].astype(attrs["dtype"])}

    def test_grad_names_what_there_is(self):
        assert self.entry.gradient is not None

    def test_refuses_no_dtype(self):
        self.refuses("dtype", {"x": np.ones(2)}, {}, AttributeTypeError)


class TestCastGradient(TestCast):
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, {"dtype": np.dtype("float64")})
