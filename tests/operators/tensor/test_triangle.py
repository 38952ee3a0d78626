"""tril, triu, eye, diag."""

from __future__ import annotations

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


class TestTril(OpTest):
    type = "tril"
    grad = ("x",)

    def cases(self, rng):
        for diagonal in (0, 1, -1, 7, -7):
            yield Case({"x": rng.normal(size=(3, 4))}, {"diagonal": diagonal})
        yield Case({"x": rng.normal(size=(2, 4, 3))}, {"diagonal": 1})

    def reference(self, inputs, attrs):
        return {"out": getattr(np, self.type)(inputs["x"], attrs["diagonal"])}

    def test_nan_outside_is_cleared(self):
        for dtype in (np.float32, np.int64, bool):
            x = np.array([[1, 1], [1, 1]]).astype(dtype)
            out = self.output(Case({"x": x}), None)["out"]
            assert out.dtype == dtype and out.tolist() == getattr(np, self.type)(x).tolist()
        out = self.output(Case({"x": np.full((2, 2), np.nan)}))["out"]
        assert np.isnan(out).sum() == 3 and (out == 0).sum() == 1

    def test_refuses(self):
        self.refuses("at least 2 dimensions", {"x": np.zeros(3)})


class TestTriu(TestTril):
    type = "triu"


class TestEye(OpTest):
    type = "eye"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({}, {"rows": 3})
        yield Case({}, {"rows": 2, "columns": 4, "diagonal": 1, "dtype": np.dtype("int64")})
        yield Case({}, {"rows": 3, "columns": 2, "diagonal": -1, "dtype": np.dtype("float64")})
        yield Case({}, {"rows": 3, "columns": 0})
        yield Case({}, {"rows": 0, "dtype": np.dtype("bool")})

    def reference(self, inputs, attrs):
        columns = None if attrs["columns"] < 0 else attrs["columns"]
        return {"out": np.eye(attrs["rows"], columns, attrs["diagonal"], dtype=attrs["dtype"])}

    def test_refuses(self):
        self.refuses("below 0", {}, {"rows": -1}, AttributeTypeError)


class TestDiag(OpTest):
    type = "diag"
    grad = ("x",)

    def cases(self, rng):
        for diagonal in (0, 2, -1):
            yield Case({"x": rng.normal(size=3)}, {"diagonal": diagonal})
            yield Case({"x": rng.normal(size=(3, 4))}, {"diagonal": diagonal})
            yield Case({"x": rng.normal(size=(4, 3))}, {"diagonal": diagonal})
        yield Case({"x": rng.normal(size=(2, 2))}, {"diagonal": 5})

    def reference(self, inputs, attrs):
        return {"out": np.diag(inputs["x"], attrs["diagonal"])}

    def test_refuses(self):
        self.refuses("1 or 2 dimensions", {"x": np.zeros((2, 2, 2))})
