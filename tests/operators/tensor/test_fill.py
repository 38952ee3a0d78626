"""Constants."""

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


class TestFillConstant(OpTest):
    type = "fill_constant"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({})
        yield Case({}, {"shape": [2, 3], "value": 1.5})
        yield Case({}, {"shape": [4], "value": 7, "dtype": np.dtype("int64")})
        yield Case({}, {"shape": [2], "value": 1, "dtype": np.dtype("bool")})
        yield Case({}, {"shape": [0, 2], "value": -1, "dtype": np.dtype("float16")})

    def reference(self, inputs, attrs):
        return {"out": np.full(attrs["shape"], attrs["value"], attrs["dtype"])}

    def test_refuses(self):
        self.refuses("below 0", {}, {"shape": [-1]}, AttributeTypeError)
        for value in (1.5, 300.0, np.nan, np.inf):
            self.refuses("is no int8", {}, {"value": value, "dtype": np.dtype("int8")})


class TestFillLike(OpTest):
    type = "fill_like"

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(2, 3))}, {"value": 2.5})
        yield Case({"x": np.array(3.0)})
        yield Case({"x": np.array([3, 4])}, {"value": 1.0})

    def reference(self, inputs, attrs):
        return {"out": np.full_like(inputs["x"], attrs["value"])}

    def test_refuses(self):
        self.refuses("0.5 is no int64", {"x": np.array([1])}, {"value": 0.5})


class TestConstant(OpTest):
    type = "constant"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({}, {"value": np.array([[1.5, -2.0]], np.float32)})
        yield Case({}, {"value": np.array(3)})
        yield Case({}, {"value": np.zeros((0, 2))})

    def reference(self, inputs, attrs):
        return {"out": attrs["value"]}


class TestArange(OpTest):
    type = "arange"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({}, {"stop": 5})
        yield Case({}, {"start": 5, "stop": -1, "step": -2})
        yield Case({}, {"start": 1, "stop": 1})
        yield Case({}, {"stop": 1, "step": 0.25, "dtype": np.dtype("float32")})

    def reference(self, inputs, attrs):
        out = np.arange(attrs["start"], attrs["stop"], attrs["step"])
        return {"out": out.astype(attrs["dtype"])}

    def test_refuses(self):
        self.refuses("step that is not 0", {}, {"stop": 3, "step": 0.0})
        self.refuses("finite bounds", {}, {"stop": np.inf})


class TestLinspace(OpTest):
    type = "linspace"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({}, {"start": -1.0, "stop": 2.0, "num": 7})
        yield Case({}, {"start": 3.0, "stop": 1.0, "num": 5, "dtype": np.dtype("float64")})
        yield Case({}, {"start": 0.0, "stop": 9.0, "num": 4, "dtype": np.dtype("int64")})
        yield Case({}, {"start": 2.0, "stop": 5.0, "num": 1})
        yield Case({}, {"start": 2.0, "stop": 5.0, "num": 0})
        yield Case({}, {"start": 0.0, "stop": 1.0})

    def reference(self, inputs, attrs):
        out = np.linspace(attrs["start"], attrs["stop"], attrs["num"])
        return {"out": out.astype(attrs["dtype"])}

    def test_refuses(self):
        self.refuses("finite bounds", {}, {"start": 0.0, "stop": np.inf})
        self.refuses("below 0", {}, {"start": 0.0, "stop": 1.0, "num": -1}, AttributeTypeError)
