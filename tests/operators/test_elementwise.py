"""Elementwise operators: activations."""

from __future__ import annotations

import numpy as np
from op_test import Case, OpTest


class TestRelu(OpTest):
    type = "relu"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))})
        yield Case({"x": rng.normal(size=(2, 3, 5))})

    def reference(self, inputs, attrs):
        return {"out": np.maximum(inputs["x"], 0)}
