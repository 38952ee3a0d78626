"""Functions of one number that elementwise_math.py has in a table, and stop_gradient."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.errors import GradientError
from opscope.framework.base.scope import Scope
from opscope.testing import Case, OpTest
from opscope.testing.unary_test import UnaryTest


class Function(UnaryTest):
    """A function that NumPy has, between `low` and `high`."""

    low, high = -2.0, 2.0
    numpy_name = ""

    def cases(self, rng):
        yield Case({"x": rng.uniform(self.low, self.high, (3, 4))})
        yield Case({"x": rng.uniform(self.low, self.high, (2, 3, 5))})
        yield Case({"x": rng.uniform(self.low, self.high, ())})

    def formula(self, x):
        return getattr(np, self.numpy_name or self.type)(x)


class TestExp2(Function):
    type = "exp2"


class TestExpm1(Function):
    type = "expm1"

    def test_small_numbers(self):
        x = np.array([1e-6, -1e-6])
        np.testing.assert_allclose(self.output(Case({"x": x}))["out"], np.expm1(x), rtol=1e-6)


class TestLog2(Function):
    type = "log2"
    low, high = 0.3, 4.0


class TestLog10(Function):
    type = "log10"
    low, high = 0.3, 4.0


class TestLog1p(Function):
    type = "log1p"
    low, high = -0.5, 4.0

    def test_small_numbers(self):
        x = np.array([1e-6, -1e-6])
        np.testing.assert_allclose(self.output(Case({"x": x}))["out"], np.log1p(x), rtol=1e-6)


class TestTan(Function):
    type = "tan"
    low, high = -1.2, 1.2


class TestAsin(Function):
    type = "asin"
    numpy_name = "arcsin"
    low, high = -0.9, 0.9


class TestAcos(TestAsin):
    type = "acos"
    numpy_name = "arccos"


class TestAtan(Function):
    type = "atan"
    numpy_name = "arctan"


class TestSinh(Function):
    type = "sinh"


class TestCosh(Function):
    type = "cosh"


class TestAsinh(Function):
    type = "asinh"
    numpy_name = "arcsinh"


class TestAcosh(Function):
    type = "acosh"
    numpy_name = "arccosh"
    low, high = 1.3, 4.0


class TestAtanh(Function):
    type = "atanh"
    numpy_name = "arctanh"
    low, high = -0.9, 0.9


class TestTrunc(UnaryTest):
    type = "trunc"
    grad = ()
    kinks = (-3, -2, -1, 0, 1, 2, 3)

    def formula(self, x):
        return np.trunc(x)


class TestStopGradient(OpTest):
    type = "stop_gradient"

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))})
        yield Case({"x": np.arange(4)})
        yield Case({"x": np.array([True, False])})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"]}

    def test_no_gradient_passes(self):
        b = NetBuilder()
        x = b.input("x", [-1, 3])
        y = b.mul(x, b.stop_gradient(x))
        b.backward_from(b.mean(y), wrt=[x])
        values = np.array([[1.0, 2.0, 4.0]], np.float32)
        found = b.run(Scope(), feed={"x": values}, fetch=[b.gradient(x)])
        np.testing.assert_allclose(found[b.gradient(x)], values / 3, rtol=1e-6)

    def test_says_so_where_nothing_else_leads_back(self):
        b = NetBuilder()
        x = b.input("x", [-1, 3])
        with pytest.raises(GradientError, match="to stop it is what the operator is for"):
            b.backward_from(b.mean(b.stop_gradient(x)), wrt=[x])
