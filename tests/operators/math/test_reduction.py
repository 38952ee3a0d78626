"""Reductions: values against NumPy, gradients at ties and zeros, refusals."""

import numpy as np

from opscope.testing import Case, OpTest

ALL_FLOATS = ("float16", "float32", "float64")


class Reduction(OpTest):
    grad = ("x",)
    dtypes = ALL_FLOATS

    def cases(self, rng):
        def draw(*shape):  # distinct values well apart, so that no maximum is near a tie
            return (rng.permutation(int(np.prod(shape))).reshape(shape) / 7 - 1.5).round(2)

        yield Case({"x": draw(3, 4)})
        yield Case({"x": draw(3, 4)}, {"axes": [0]})
        yield Case({"x": draw(3, 4)}, {"axes": [-1], "keepdims": True})
        yield Case({"x": draw(2, 3, 2)}, {"axes": [2, 0]})
        yield Case({"x": draw(2, 3, 2)}, {"keepdims": True})
        yield Case({"x": np.array(1.25)})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        axes = tuple(attrs["axes"]) or None
        return {"out": np.asarray(self.value(x, axes, attrs["keepdims"]))}

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("out of range", {"x": x}, {"axes": [2]})
        self.refuses("twice", {"x": x}, {"axes": [1, -1]})


class TestReduceSum(Reduction):
    type = "reduce_sum"

    def value(self, x, axes, keepdims):
        return x.sum(axes, keepdims=keepdims)

    def test_integers_give_int64(self):
        for dtype in (bool, np.int8, np.int32):
            out = self.output(Case({"x": np.ones((200, 2), dtype)}, {"axes": [0]}))["out"]
            assert out.dtype == np.int64
            np.testing.assert_array_equal(out, [200, 200])


class TestReduceMean(Reduction):
    type = "reduce_mean"

    def value(self, x, axes, keepdims):
        sums = x.sum(axes, keepdims=keepdims)
        return sums / (x.size / sums.size if x.size else np.nan)

    def test_images(self):
        rng = np.random.default_rng(0)
        for shape in ((2, 20, 3, 4), (1, 3, 5, 1), (2, 1, 1, 3), (0, 2, 3, 3)):
            for keepdims in (True, False):
                x = rng.normal(size=shape)
                case = Case({"x": x}, {"axes": [-1, 2], "keepdims": keepdims})
                found = self.output(case)["out"]
                np.testing.assert_allclose(found, x.mean((2, 3), keepdims=keepdims), rtol=1e-5)

    def test_half_precision_does_not_overflow(self):
        out = self.output(Case({"x": np.full((1, 4000), 100.0)}, {"axes": [1]}), "float16")["out"]
        np.testing.assert_array_equal(out, [100])

    def test_refuses_integers(self):
        self.refuses("floating dtype", {"x": np.zeros(3, int)})


class TestReduceProd(Reduction):
    type = "reduce_prod"

    def cases(self, rng):
        yield from super().cases(rng)
        yield Case({"x": np.array([[0.0, 2, 3], [0, 0, 5], [1, 2, 4]])}, {"axes": [1]})

    def value(self, x, axes, keepdims):
        return x.prod(axes, keepdims=keepdims)


class Extreme(Reduction):
    def test_ties_share_the_gradient(self):
        x = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]])
        x = x if self.type == "reduce_max" else -x
        setup = self.setup(Case({"x": x}, {"axes": [1]}), "float64")
        gradient = setup.gradients(dict(setup.arrays) | self.output(setup.case, "float64"), ("x",))
        seed = setup.seed("out")[:, None]
        np.testing.assert_allclose(gradient["x"] / seed, [[0.5, 0.5, 0], [1 / 3] * 3])

    def test_refuses_empty(self):
        self.refuses("no element along axis 1", {"x": np.zeros((2, 0))}, {"axes": [1]})
        self.refuses("no element along axis 0", {"x": np.zeros((0, 2))})


class TestReduceMax(Extreme):
    type = "reduce_max"

    def value(self, x, axes, keepdims):
        return x.max(axes, keepdims=keepdims)

    def test_takes_integers(self):
        out = self.output(Case({"x": np.array([[3, -1], [7, 2]])}, {"axes": [0]}))["out"]
        np.testing.assert_array_equal(out, [7, 2])


class TestReduceMin(Extreme):
    type = "reduce_min"

    def value(self, x, axes, keepdims):
        return x.min(axes, keepdims=keepdims)


class TestLogsumexp(Reduction):
    type = "logsumexp"

    def value(self, x, axes, keepdims):
        if not x.size and not x.sum(axes).size:
            return x.sum(axes, keepdims=keepdims)
        peak = x.max(axes, keepdims=True)
        sums = np.log(np.exp(x - peak).sum(axes, keepdims=True)) + peak
        return sums if keepdims else sums.reshape(x.sum(axes).shape)

    def test_is_stable(self):
        inf = np.inf
        x = np.array([[1000.0, 1000.0], [-inf, -inf], [inf, 0], [-inf, 2], [np.nan, 0]])
        out = self.output(Case({"x": x}, {"axes": [1]}), "float64")["out"]
        np.testing.assert_allclose(out, [1000 + np.log(2), -inf, inf, 2, np.nan])

    def test_gradient_of_a_masked_row_is_zero(self):
        x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
        setup = self.setup(Case({"x": x}, {"axes": [1]}), "float64")
        gradient = setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]
        np.testing.assert_array_equal(gradient, [[0, 0], [setup.seed("out")[1], 0]])


class TestMean(OpTest):
    type = "mean"
    grad = ("x",)
    dtypes = ALL_FLOATS

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(5, 1))})
        yield Case({"x": rng.normal(size=(2, 3, 4))})
        yield Case({"x": rng.normal(size=(40, 30))})
        yield Case({"x": np.array(2.5)})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        return {"out": np.asarray(x.mean() if x.size else np.nan)}

    def test_refuses_integers(self):
        self.refuses("floating dtype", {"x": np.zeros(3, int)})
