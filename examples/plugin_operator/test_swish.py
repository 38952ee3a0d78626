"""The operator `swish`: values, gradients, and a net that holds it."""

import numpy as np
import opscope
from opscope.testing import Case, OpTest


class TestSwish(OpTest):
    type = "swish"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, {"beta": 1.5})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        return {"out": x / (1 + np.exp(-attrs["beta"] * x))}


def test_in_a_net():
    b = opscope.NetBuilder("plugin")
    b.swish(b.input("x", [-1, 3]), beta=2.0, name="y")
    x = np.ones((4, 3))
    out = b.run(opscope.Scope(), feed={"x": x}, fetch=["y"], need_backward=False)
    np.testing.assert_allclose(out["y"], 1 / (1 + np.exp(-2)), rtol=1e-6)
