"""Activations that test_elementwise.py has not: values, gradients, both ends."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.testing import Case, OpTest
from opscope.testing.unary_test import UnaryTest, away_from


class TestSelu(UnaryTest):
    type = "selu"
    kinks = (0,)

    def formula(self, x):
        scale, alpha = 1.0507009873554805, 1.6732632423543772
        return scale * np.where(x > 0, x, alpha * np.expm1(x))


class TestCelu(UnaryTest):
    type = "celu"
    kinks = (0,)
    given = ({}, {"alpha": 0.5}, {"alpha": 2.0})

    def formula(self, x, alpha):
        return np.where(x > 0, x, alpha * np.expm1(x / alpha))

    def test_refuses_alpha_0(self):
        self.refuses("alpha=0.0 is not above 0", {"x": np.ones(2)}, {"alpha": 0.0})


class TestRelu6(UnaryTest):
    type = "relu6"
    kinks = (0, 6)
    given = ({},)

    def cases(self, rng):
        yield from super().cases(rng)
        yield Case({"x": away_from(rng, (4, 5), 0, 1.2) * 5})

    def formula(self, x):
        return np.clip(x, 0, 6)


class TestHardTanh(UnaryTest):
    type = "hard_tanh"
    kinks = (-1, 1, -0.5, 2)
    given = ({}, {"minimum": -0.5, "maximum": 2.0})

    def formula(self, x, minimum, maximum):
        return np.clip(x, minimum, maximum)

    def test_no_gradient_at_the_limits(self):
        setup = self.setup(Case({"x": np.array([-1.0, 0.0, 1.0])}), "float64")
        gradient = setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]
        np.testing.assert_array_equal(gradient, [0, setup.seed("out")[1], 0])

    def test_refuses_crossed_limits(self):
        self.refuses("minimum 2.0", {"x": np.ones(2)}, {"minimum": 2.0})


class TestHardSwish(UnaryTest):
    type = "hard_swish"
    kinks = (-3, 3)

    def formula(self, x):
        return x * np.clip(x + 3, 0, 6) / 6

    def test_gradient_outside(self):
        setup = self.setup(Case({"x": np.array([-50.0, -3.0, 4.0])}), "float64")
        gradient = setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]
        np.testing.assert_array_equal(gradient, [0, 0, setup.seed("out")[2]])


class TestLogSigmoid(UnaryTest):
    type = "log_sigmoid"

    def formula(self, x):
        return -np.logaddexp(0, -x)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_both_ends(self, dtype):
        x = np.array([-1000.0, -80.0, 40.0, 1000.0])
        setup = self.setup(Case({"x": x}), dtype)
        arrays = self.output(setup.case, dtype)
        np.testing.assert_allclose(arrays["out"], [-1000, -80, -np.exp(-40), 0], rtol=1e-6)
        slope = setup.gradients(arrays, ("x",))["x"] / setup.seed("out")
        np.testing.assert_allclose(slope, [1, 1, np.exp(-40), 0], rtol=1e-5)


class TestSoftsign(UnaryTest):
    type = "softsign"

    def formula(self, x):
        return x / (1 + np.abs(x))


class TestMish(UnaryTest):
    type = "mish"

    def formula(self, x):
        return x * np.tanh(np.logaddexp(0, x))

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_both_ends(self, dtype):
        x = np.array([-80.0, -20.0, 20.0, 1000.0])
        setup = self.setup(Case({"x": x}), dtype)
        arrays = self.output(setup.case, dtype)
        wanted = [-80 * np.exp(-80), -20 * np.exp(-20), 20, 1000]
        np.testing.assert_allclose(arrays["out"], wanted, rtol=1e-5)
        slope = setup.gradients(arrays, ("x",))["x"] / setup.seed("out")
        wanted = [-79 * np.exp(-80), -19 * np.exp(-20), 1, 1]
        np.testing.assert_allclose(slope, wanted, rtol=1e-5)


class TestGlu(OpTest):
    type = "glu"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 8))})
        yield Case({"x": rng.normal(size=(3, 4, 5))}, {"axis": 1})
        yield Case({"x": rng.normal(size=(4, 3))}, {"axis": -2})
        yield Case({"x": rng.normal(size=6)}, {"axis": 0})

    def reference(self, inputs, attrs):
        value, gate = np.split(inputs["x"], 2, attrs["axis"])
        return {"out": value / (1 + np.exp(-gate))}

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_closed_and_open_gates(self, dtype):
        x = np.array([[2.0, 3.0, -1000.0, 1000.0]])
        setup = self.setup(Case({"x": x}), dtype)
        arrays = self.output(setup.case, dtype)
        np.testing.assert_array_equal(arrays["out"], [[0, 3]])
        slope = setup.gradients(arrays, ("x",))["x"]
        np.testing.assert_array_equal(slope, [[0, setup.seed("out")[0, 1], 0, 0]])

    def test_refuses(self):
        self.refuses("size 3 has no halves", {"x": np.ones((2, 3))})
        self.refuses("out of range", {"x": np.ones(2)}, {"axis": 1})
        self.refuses("floating", {"x": np.ones(2, int)})


class TestPrelu(OpTest):
    type = "prelu"
    grad = ("x", "w")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for shape, slopes in [
            ((3, 4), (4,)),
            ((3, 4), (1,)),
            ((2, 3, 2, 2), (3,)),
            ((2, 3, 2, 2), (1,)),
            ((2, 3, 4), (3,)),
            ((5,), (1,)),
            ((), (1,)),
        ]:
            yield Case({"x": away_from(rng, shape, 0), "w": rng.uniform(-0.5, 1.5, slopes)})

    def reference(self, inputs, attrs):
        x, w = inputs["x"], inputs["w"]
        if w.size != 1:
            w = w.reshape(-1, *(1,) * (x.ndim - 2))
        return {"out": np.asarray(np.where(x > 0, x, w * x).reshape(x.shape))}

    def test_nan(self):
        x = np.array([[np.nan, -1.0, np.inf]])
        out = self.output(Case({"x": x, "w": np.array([0.5])}))["out"]
        np.testing.assert_array_equal(out, [[np.nan, -0.5, np.inf]])

    def test_refuses(self):
        x = np.ones((2, 3, 4))
        self.refuses("3 channels.*2 slopes", {"x": x, "w": np.ones(2)})
        self.refuses("1 dimensions", {"x": x, "w": np.ones((3, 1))})
        self.refuses("channels", {"x": np.ones(3), "w": np.ones(3)})
        self.refuses("floating", {"x": x, "w": np.ones(3, int)})
