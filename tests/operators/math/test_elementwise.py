"""Elementwise operators: activations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest
from opscope.testing.unary_test import UnaryTest


class TestRelu(UnaryTest):
    type = "relu"
    kinks = (0,)

    def formula(self, x):
        return np.maximum(x, 0)

    def test_refuses_integers(self):
        self.refuses("bool", {"x": np.array([True])})


class TestReluOfIntegers(OpTest):
    type = "relu"

    def cases(self, rng):
        yield Case({"x": np.arange(-2, 3, dtype=np.int32)})

    def reference(self, inputs, attrs):
        return {"out": np.maximum(inputs["x"], 0)}

    def test_grad_names_what_there_is(self):
        assert self.entry.gradient is not None


class TestLeakyRelu(UnaryTest):
    type = "leaky_relu"
    kinks = (0,)
    given = ({}, {"alpha": 0.2}, {"alpha": 2.0}, {"alpha": 0.0})

    def formula(self, x, alpha):
        return np.where(x > 0, x, alpha * x)

    def test_refuses_a_negative_slope(self):
        self.refuses("below 0", {"x": np.ones(2)}, {"alpha": -1.0}, AttributeTypeError)


class TestElu(UnaryTest):
    type = "elu"
    kinks = (0,)
    given = ({}, {"alpha": 0.5})

    def formula(self, x, alpha):
        return np.where(x > 0, x, alpha * np.expm1(x))


class TestSigmoid(UnaryTest):
    type = "sigmoid"

    def formula(self, x):
        return 1 / (1 + np.exp(-x))

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_both_ends(self, dtype):
        x = np.array([-1000, -80, -20, 20, 1000])
        out = self.output(Case({"x": x.astype(dtype)}), dtype)["out"]
        np.testing.assert_allclose(out, [0, math.exp(-80), math.exp(-20), 1, 1], rtol=1e-5)


class TestTanh(UnaryTest):
    type = "tanh"

    def formula(self, x):
        return np.tanh(x)


class TestSilu(UnaryTest):
    type = "silu"

    def formula(self, x):
        return x / (1 + np.exp(-x))


class TestSoftplus(UnaryTest):
    type = "softplus"
    given = ({}, {"beta": 3.0}, {"beta": 0.1})

    def formula(self, x, beta):
        return np.logaddexp(beta * x, 0) / beta

    def test_refuses_beta_0(self):
        self.refuses("beta=0.0 is not above 0", {"x": np.ones(2)}, {"beta": 0.0})


class TestHardSigmoid(UnaryTest):
    type = "hard_sigmoid"
    kinks = (-2.5, 2.5)
    given = ({}, {"alpha": 0.4, "beta": 1.0})

    def formula(self, x, alpha, beta):
        return np.clip(alpha * x + beta, 0, 1)


class TestGelu(UnaryTest):
    type = "gelu"
    given = ({}, {"approximate": "tanh"})

    def formula(self, x, approximate):
        if approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))

    def test_refuses_another_approximation(self):
        attrs = {"approximate": "cosh"}
        self.refuses("'cosh' is none of", {"x": np.ones(2)}, attrs, AttributeTypeError)


class TestGeluErf(UnaryTest):
    type = "gelu_erf"
    tolerance64 = 1e-14

    def formula(self, x):
        return 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))

    def test_far_below_zero(self):
        x = np.array([-12.0, -8.0, -5.0])
        out = self.output(Case({"x": x}), "float64")["out"]
        np.testing.assert_allclose(out, self.formula(x), rtol=1e-13)


class TestGeluTanh(UnaryTest):
    type = "gelu_tanh"

    def formula(self, x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
