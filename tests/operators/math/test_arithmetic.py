"""Arithmetic of two arrays with broadcasting, and the sum of many."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import SlotError
from opscope.testing import Case, OpTest
from opscope.testing.op_setup import run

SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4), (3, 1)),
    ((3, 4), ()),
    ((), ()),
    ((1,), (1, 1)),
    ((2, 3, 4), (1, 3, 4)),
]


class Binary(OpTest):
    """An operator of x and y, away from ties and from zero."""

    grad = ("x", "y")
    dtypes = ("float16", "float32", "float64")
    integers = True

    def cases(self, rng):
        for x, y in SHAPES:
            yield Case({"x": rng.uniform(0.5, 1.5, x), "y": rng.uniform(1.6, 2.5, y)})
        yield Case({"x": rng.uniform(-2.5, -1.6, (3, 4)), "y": rng.uniform(-1.5, -0.5, (4,))})

    def reference(self, inputs, attrs):
        return {"out": np.asarray(self.formula(inputs["x"], inputs["y"]))}

    def test_refuses_shapes(self):
        self.refuses("do not broadcast", {"x": np.ones((2, 3)), "y": np.ones((2, 4))})

    def test_refuses_dtypes(self):
        self.refuses("dtype", {"x": np.ones(2), "y": np.ones(2, int)})
        self.refuses("dtype", {"x": np.ones(2, bool), "y": np.ones(2, bool)})

    def test_integers(self):
        x, y = np.array([[3, -2], [7, 0]]), np.array([2, 5])
        if self.integers:
            out = self.output(Case({"x": x, "y": y}))["out"]
            assert out.dtype == np.int64 and out.tolist() == self.formula(x, y).tolist()
        else:
            self.refuses("floating", {"x": x, "y": y})


class TestAdd(Binary):
    type = "add"

    def formula(self, x, y):
        return x + y


class TestSub(Binary):
    type = "sub"

    def formula(self, x, y):
        return x - y


class TestMul(Binary):
    type = "mul"

    def formula(self, x, y):
        return x * y


class TestDiv(Binary):
    type = "div"
    integers = False

    def formula(self, x, y):
        return x / y


class TestMaximum(Binary):
    type = "maximum"

    def cases(self, rng):
        yield from super().cases(rng)
        yield Case({"x": np.array([1.0, -2, 3, 4]), "y": np.array([0.0, 5, 2, 8])})

    def formula(self, x, y):
        return np.maximum(x, y)


class TestMinimum(TestMaximum):
    type = "minimum"

    def formula(self, x, y):
        return np.minimum(x, y)


class TestPow(Binary):
    type = "pow"
    integers = False

    def cases(self, rng):
        for x, y in SHAPES:
            yield Case({"x": rng.uniform(0.5, 1.5, x), "y": rng.uniform(-1.6, 2.5, y)})

    def formula(self, x, y):
        return x**y

    def test_gradient_at_zero(self):
        case = Case({"x": np.array([0.0, 0.0, 2.0]), "y": np.array([2.0, 0.0, 0.0])})
        setup = self.setup(case, "float64")
        found = setup.gradients(run_arrays(setup), self.grad)
        assert found["x"].tolist() == [0, 0, 0] and found["y"][:2].tolist() == [0, 0]


def run_arrays(setup):
    return run(setup).arrays


class TestSum(OpTest):
    type = "sum"
    grad = ("x",)

    def cases(self, rng):
        for count in (1, 2, 3, 5):
            yield Case({"x": [rng.normal(size=(3, 4)) for _ in range(count)]})
        yield Case({"x": [rng.normal(size=()) for _ in range(2)]})

    def reference(self, inputs, attrs):
        return {"out": sum(inputs["x"][1:], inputs["x"][0])}

    def test_integers(self):
        out = self.output(Case({"x": [np.array([1, 2]), np.array([3, 4])]}))["out"]
        assert out.tolist() == [4, 6]

    def test_refuses(self):
        self.refuses("must have one shape", {"x": [np.ones(2), np.ones(3)]})
        self.refuses("one dtype", {"x": [np.ones(2), np.ones(2, int)]})
        self.refuses("a number's", {"x": [np.ones(2, bool), np.ones(2, bool)]})
        with pytest.raises(SlotError, match="missing"):
            self.setup(Case({}), None, want=False)
