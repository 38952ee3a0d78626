"""Running sums and products."""

import numpy as np

from opscope.testing import Case, OpTest


class TestCumsum(OpTest):
    type = "cumsum"
    grad = ("x",)

    def cases(self, rng):
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"exclusive": exclusive, "reverse": reverse}
                yield Case({"x": rng.normal(size=(3, 4))}, attrs)
                yield Case({"x": rng.normal(size=(3, 2, 2))}, {**attrs, "axis": 0})

    def reference(self, inputs, attrs):
        x, axis = inputs["x"], attrs["axis"]
        if attrs["reverse"]:
            x = np.flip(x, axis)
        out = np.cumsum(x, axis)
        if attrs["exclusive"]:
            out = out - x
        return {"out": np.flip(out, axis) if attrs["reverse"] else out}

    def test_integers_give_int64(self):
        out = self.output(Case({"x": np.array([100, 100], np.int8)}))["out"]
        assert out.dtype == np.int64
        np.testing.assert_array_equal(out, [100, 200])

    def test_refuses(self):
        self.refuses("out of range", {"x": np.array(1.0)})


class TestCumprod(OpTest):
    type = "cumprod"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")
    tolerance16 = 2e-2

    def cases(self, rng):
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"exclusive": exclusive, "reverse": reverse}
                yield Case({"x": rng.normal(size=(3, 4))}, attrs)
                yield Case({"x": rng.normal(size=(3, 2, 2))}, {**attrs, "axis": 0})
                yield Case({"x": np.array([[2.0, 0, 3, 4], [0, 5, 0, 6], [0, 0, 0, 0]])}, attrs)
        yield Case({"x": rng.normal(size=1)})

    def reference(self, inputs, attrs):
        x, axis = np.moveaxis(inputs["x"], attrs["axis"], -1), attrs["axis"]
        if attrs["reverse"]:
            x = np.flip(x, -1)
        out = np.cumprod(x, -1)
        if attrs["exclusive"]:
            out = np.concatenate([np.ones_like(x[..., :1]), out[..., :-1]], -1)
        return {"out": np.moveaxis(np.flip(out, -1) if attrs["reverse"] else out, -1, axis)}

    def test_integers_give_int64(self):
        out = self.output(Case({"x": np.array([100, 100], np.int8)}))["out"]
        assert out.dtype == np.int64
        np.testing.assert_array_equal(out, [100, 10000])

    def test_refuses(self):
        self.refuses("out of range", {"x": np.array(1.0)})
