"""softmax, log_softmax and hardmax."""

import numpy as np

from opscope.operators.math.softmax import _PIECE
from opscope.testing import Case, OpTest

ALL_FLOATS = ("float16", "float32", "float64")


def exps(x, axis):
    return np.exp(x - x.max(axis, keepdims=True))


class AlongAxis(OpTest):
    def cases(self, rng):
        for axis in (-1, 0, 1):
            yield Case({"x": rng.normal(size=(3, 4))}, {"axis": axis})
            yield Case({"x": 3 * rng.normal(size=(2, 5, 3))}, {"axis": axis})
        yield Case({"x": rng.normal(size=6)})
        yield Case({"x": np.array([[7.0], [-7.0]])})

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros((2, 3))}, {"axis": 2})
        self.refuses("out of range", {"x": np.float64(1)})
        self.refuses("no elements", {"x": np.zeros((2, 0))})
        self.refuses("floating dtype", {"x": np.zeros((2, 3), int)})


class TestSoftmax(AlongAxis):
    type = "softmax"
    grad = ("x",)
    dtypes = ALL_FLOATS

    def reference(self, inputs, attrs):
        e = exps(inputs["x"], attrs["axis"])
        return {"out": e / e.sum(attrs["axis"], keepdims=True)}

    def test_is_stable(self):
        out = self.output(Case({"x": np.array([[1e4, 0.0, -1e4], [3e38, 3e38, -3e38]])}))["out"]
        np.testing.assert_array_equal(out, [[1, 0, 0], [0.5, 0.5, 0]])


class TestLogSoftmax(AlongAxis):
    type = "log_softmax"
    grad = ("x",)
    dtypes = ALL_FLOATS

    def reference(self, inputs, attrs):
        x, axis = inputs["x"], attrs["axis"]
        shifted = x - x.max(axis, keepdims=True)
        return {"out": shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))}

    def test_is_stable(self):
        out = self.output(Case({"x": np.array([[1e4, 0.0, 0.0]])}))["out"]
        np.testing.assert_array_equal(out, [[0, -1e4, -1e4]])

    def test_rows_in_pieces(self):
        """Several pieces, the last one shorter; each row is as it is alone."""
        x = np.random.default_rng(0).standard_normal((5, _PIECE // 2 - 3))
        out = self.output(Case({"x": x}))["out"]
        alone = [self.output(Case({"x": row[None]}))["out"][0] for row in x]
        np.testing.assert_array_equal(out, alone)
        np.testing.assert_allclose(np.exp(out).sum(1), 1, rtol=1e-4)


class TestHardmax(AlongAxis):
    type = "hardmax"

    def cases(self, rng):
        yield from super().cases(rng)
        yield Case({"x": np.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])})

    def reference(self, inputs, attrs):
        x, axis = inputs["x"], attrs["axis"] % inputs["x"].ndim
        out = np.zeros(x.shape)
        np.put_along_axis(out, np.expand_dims(x.argmax(axis), axis), 1.0, axis)
        return {"out": out}
