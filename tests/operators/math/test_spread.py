"""var, std, any, all over axes."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.testing import Case, OpTest

pytestmark = pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")  # NumPy's


class Spread(OpTest):
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for ddof in (0, 1):
            yield Case({"x": rng.normal(size=(3, 4))}, {"ddof": ddof})
            yield Case({"x": rng.normal(size=(3, 4))}, {"axes": [0], "ddof": ddof})
            yield Case({"x": rng.normal(size=(3, 4))}, {"axes": [-1], "keepdims": True})
            yield Case({"x": rng.normal(size=(2, 3, 2))}, {"axes": [2, 0], "ddof": ddof})
        yield Case({"x": rng.normal(size=(2, 3, 2))}, {"keepdims": True})

    def reference(self, inputs, attrs):
        x, axes, ddof = inputs["x"], tuple(attrs["axes"]) or None, attrs["ddof"]
        find = np.std if self.type == "reduce_std" else np.var
        return {"out": np.asarray(find(x, axes, keepdims=attrs["keepdims"], ddof=ddof))}

    def slopes(self, x, attrs):
        setup = self.setup(Case({"x": np.array(x)}, attrs), "float64")
        return setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]

    def test_one_element(self):
        one = Case({"x": np.array([[3.0], [4.0]])}, {"axes": [1]})
        np.testing.assert_array_equal(self.output(one)["out"], [0, 0])
        np.testing.assert_array_equal(self.slopes([[3.0]], {"axes": [1]}), [[0]])
        one = Case(one.inputs, {"axes": [1], "ddof": 1})
        np.testing.assert_array_equal(self.output(one)["out"], [np.nan, np.nan])

    def test_far_from_zero(self):
        x = np.array([1e8, 1e8 + 1, 1e8 + 2])
        wanted = np.sqrt(2 / 3) if self.type == "reduce_std" else 2 / 3
        out = self.output(Case({"x": x}), "float64")["out"]
        np.testing.assert_allclose(out, wanted, rtol=1e-12)

    def test_half_precision_does_not_overflow(self):
        x = np.array([[-300.0, 300.0] * 1000])
        out = self.output(Case({"x": x}, {"axes": [1]}), "float16")["out"]
        wanted = 300 if self.type == "reduce_std" else np.inf  # 90000 is above float16's largest
        np.testing.assert_array_equal(out, [wanted])

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros((2, 3))}, {"axes": [2]})
        self.refuses("twice", {"x": np.zeros((2, 3))}, {"axes": [1, -1]})
        self.refuses("floating dtype", {"x": np.zeros(3, int)})


class TestReduceVar(Spread):
    type = "reduce_var"


class TestReduceStd(Spread):
    type = "reduce_std"

    def test_gradient_where_all_are_equal(self):
        np.testing.assert_array_equal(self.slopes([[2.0, 2.0, 2.0]], {"axes": [1]}), [[0, 0, 0]])


class TestReduceAny(OpTest):
    type = "reduce_any"

    def cases(self, rng):
        x = rng.random((3, 4)) > 0.6
        yield Case({"x": x})
        yield Case({"x": x}, {"axes": [1]})
        yield Case({"x": x}, {"axes": [-2], "keepdims": True})
        yield Case({"x": rng.integers(0, 2, (2, 3, 2))}, {"axes": [2, 0]})
        yield Case({"x": np.array([[0, np.nan], [0, 0], [1, -2]])}, {"axes": [1]})
        yield Case({"x": np.array(True)})

    def reference(self, inputs, attrs):
        find = {"reduce_any": np.any, "reduce_all": np.all}[self.type]
        axes = tuple(attrs["axes"]) or None
        return {"out": np.asarray(find(inputs["x"], axes, keepdims=attrs["keepdims"]))}

    def test_of_nothing(self):
        out = self.output(Case({"x": np.zeros((2, 0), bool)}, {"axes": [1]}))["out"]
        assert out.tolist() == [self.type == "reduce_all"] * 2

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros((2, 3))}, {"axes": [2]})


class TestReduceAll(TestReduceAny):
    type = "reduce_all"
