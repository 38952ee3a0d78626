"""Comparisons, logic and selection."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.testing import Case, OpTest


class Comparison(OpTest):
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for x, y in [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 3, 1), (1, 4)), ((), (2,)), ((), ())]:
            yield Case({"x": rng.integers(-2, 3, x) / 2, "y": rng.integers(-2, 3, y) / 2})
            yield Case({"x": rng.integers(-2, 3, x), "y": rng.integers(-2, 3, y)})
        yield Case({"x": np.array([np.nan, 1.0, np.inf]), "y": np.array([np.nan, np.nan, 1.0])})

    def reference(self, inputs, attrs):
        return {"out": np.asarray(getattr(np, self.type)(inputs["x"], inputs["y"]))}

    def test_refuses(self):
        self.refuses("one dtype", {"x": np.ones(2), "y": np.ones(2, int)})
        self.refuses("do not broadcast", {"x": np.ones(2), "y": np.ones(3)})


class TestEqual(Comparison):
    type = "equal"


class TestNotEqual(Comparison):
    type = "not_equal"


class TestLess(Comparison):
    type = "less"


class TestLessEqual(Comparison):
    type = "less_equal"


class TestGreater(Comparison):
    type = "greater"


class TestGreaterEqual(Comparison):
    type = "greater_equal"


class Connective(OpTest):
    dtypes = ("float32",)

    def cases(self, rng):
        for x, y in [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4))]:
            yield Case({"x": rng.random(x) > 0.5, "y": rng.random(y) > 0.5})

    def reference(self, inputs, attrs):
        return {"out": getattr(np, self.type)(inputs["x"], inputs["y"])}

    def test_refuses_numbers(self):
        self.refuses("y wants dtype bool", {"x": np.ones(2, bool), "y": np.ones(2)})


class TestLogicalAnd(Connective):
    type = "logical_and"


class TestLogicalOr(Connective):
    type = "logical_or"


class TestLogicalXor(Connective):
    type = "logical_xor"


class TestLogicalNot(OpTest):
    type = "logical_not"
    dtypes = ("float32",)

    def cases(self, rng):
        yield Case({"x": rng.random((3, 4)) > 0.5})

    def reference(self, inputs, attrs):
        return {"out": ~inputs["x"]}

    def test_refuses_numbers(self):
        self.refuses("x wants dtype bool", {"x": np.ones(2)})


class TestIsfinite(OpTest):
    type = "isfinite"

    def cases(self, rng):
        yield Case({"x": np.array([[0, np.nan], [np.inf, -np.inf]])})

    def reference(self, inputs, attrs):
        return {"out": getattr(np, self.type)(inputs["x"])}

    def test_refuses_integers(self):
        self.refuses("floating", {"x": np.arange(2)})


class TestIsinf(TestIsfinite):
    type = "isinf"


class TestIsnan(TestIsfinite):
    type = "isnan"


class TestWhere(OpTest):
    type = "where"
    grad = ("x", "y")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for condition, x, y in [
            ((3, 4), (3, 4), (3, 4)),
            ((3, 1), (3, 4), (4,)),
            ((4,), (), (3, 4)),
            ((2, 3, 4), (3, 1), (1, 1, 4)),
            ((), (3,), (3,)),
        ]:
            yield Case(
                {
                    "condition": rng.random(condition) > 0.5,
                    "x": rng.normal(size=x),
                    "y": rng.normal(size=y),
                }
            )

    def reference(self, inputs, attrs):
        return {"out": np.where(inputs["condition"], inputs["x"], inputs["y"])}

    def test_refuses(self):
        ones, yes = np.ones(2), np.ones(2, bool)
        self.refuses("condition wants dtype bool", {"condition": ones, "x": ones, "y": ones})
        self.refuses("one dtype", {"condition": yes, "x": ones, "y": np.ones(2, int)})
        self.refuses("do not broadcast", {"condition": yes, "x": ones, "y": np.ones(3)})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_where_keeps_bad_gradients_out(bad):
    test = TestWhere()
    case = Case({"condition": np.array([True, False]), "x": np.ones(2), "y": np.ones(2)})
    setup = test.setup(case, "float64")
    setup.seed = lambda name: np.array([1.0, bad])
    found = setup.gradients(test.output(case, "float64"), ("x", "y"))
    assert found["x"].tolist() == [1, 0]
