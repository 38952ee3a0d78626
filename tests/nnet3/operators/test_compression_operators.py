"""Matrices in fewer bits."""

import numpy as np

import opscope.nnet3.components  # noqa: F401  (registers the operators)
from opscope.testing import Case, OpTest


class TestCompress(OpTest):
    type = "nnet3.compress"
    exact_dtype = ("out",)

    def cases(self, rng):
        x = np.concatenate((rng.uniform(-12, 12, (5, 4)), np.zeros((1, 4))))
        yield Case({"x": x}, {"range": 10.0, "dtype": np.dtype("int16")})
        yield Case({"x": x}, {"range": 0.0, "dtype": np.dtype("uint8")})

    def reference(self, inputs, attrs):
        x, limit = inputs["x"], attrs["range"]
        if not limit:
            return {"out": (x > 0).astype(np.uint8)}
        cut = np.clip(x * x.dtype.type(32767 / limit), -32767, 32767)
        return {"out": np.rint(cut).astype(np.int16)}

    def test_refuses(self):
        x = {"x": np.zeros((2, 2))}
        self.refuses("whole numbers", x, {"range": 1.0, "dtype": np.dtype("float32")})
        self.refuses("no numbers below 0", x, {"range": 1.0, "dtype": np.dtype("uint8")})


class TestDecompress(OpTest):
    type = "nnet3.decompress"
    exact_dtype = ("out",)

    def cases(self, rng):
        x = rng.integers(-32767, 32768, (5, 4)).astype(np.int16)
        yield Case({"x": x}, {"range": 10.0})
        yield Case({"x": x}, {"range": 10.0, "dtype": np.dtype("float64")})
        yield Case({"x": rng.integers(0, 2, (5, 4)).astype(np.uint8)}, {"range": 0.0})

    def reference(self, inputs, attrs):
        x = inputs["x"].astype(attrs.get("dtype", np.float32))
        return {"out": x * x.dtype.type(attrs["range"] / 32767) if attrs["range"] else x}
