"""norm, normalize, cosine_similarity."""

from __future__ import annotations

import numpy as np

from opscope.testing import Case, OpTest

INF = float("inf")


def _drawn(rng, *shape):
    """Numbers whose absolute values are well apart, none near 0."""
    count = int(np.prod(shape))
    sizes = 0.3 + rng.permutation(count) * 0.17
    return (sizes * rng.choice([-1, 1], count)).reshape(shape)


class TestNorm(OpTest):
    type = "norm"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for p in (2.0, 1.0, INF, -INF, 3.0, 0.5, -1.5, 0.0):
            yield Case({"x": _drawn(rng, 3, 4)}, {"axes": [1], "p": p})
            yield Case({"x": _drawn(rng, 2, 3, 2)}, {"axes": [0, 2], "p": p, "keepdims": True})
        yield Case({"x": _drawn(rng, 2, 3, 2)})
        yield Case({"x": np.array(-1.5)})

    def reference(self, inputs, attrs):
        x, p = np.abs(inputs["x"]), attrs["p"]
        axes = tuple(attrs["axes"]) or tuple(range(x.ndim))
        keep = {"keepdims": attrs["keepdims"]}
        if p == INF:
            out = x.max(axes, **keep)
        elif p == -INF:
            out = x.min(axes, **keep)
        elif p == 0:
            out = (x != 0).sum(axes, **keep).astype(float)
        else:
            out = (x**p).sum(axes, **keep) ** (1 / p)
        return {"out": np.asarray(out)}

    def slopes(self, x, **attrs):
        setup = self.setup(Case({"x": np.array(x)}, {"axes": [1], **attrs}), "float64")
        found = setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]
        return found / setup.seed("out")[:, None]

    def test_gradient_at_zero(self):
        for p in (2.0, 1.0, 3.0, 1.5, 0.5, INF, 0.0):
            np.testing.assert_array_equal(self.slopes([[0.0, 0.0]], p=p), [[0, 0]], f"p = {p}")
        for p in (1.0, 1.5, 0.5):
            assert np.isfinite(self.slopes([[0.0, 2.0]], p=p)).all()

    def test_largest_elements_share_the_gradient(self):
        np.testing.assert_array_equal(self.slopes([[3.0, -3.0, 1.0]], p=INF), [[0.5, -0.5, 0]])

    def test_zero_counts(self):
        out = self.output(Case({"x": np.array([[0.0, 2.0, -3.0]])}, {"p": 0.0}))["out"]
        assert out == 2

    def test_of_nothing(self):
        case = Case({"x": np.zeros((2, 0))}, {"axes": [1]})
        np.testing.assert_array_equal(self.output(case)["out"], [0, 0])
        self.refuses("no element", case.inputs, {"axes": [1], "p": INF})

    def test_half_precision_does_not_overflow(self):
        out = self.output(Case({"x": np.full((1, 4), 300.0)}, {"axes": [1]}), "float16")["out"]
        np.testing.assert_array_equal(out, [600])

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros((2, 3))}, {"axes": [2]})
        self.refuses("p is NaN", {"x": np.zeros((2, 3))}, {"p": float("nan")})
        self.refuses("floating dtype", {"x": np.zeros(3, int)})


class TestNormalize(OpTest):
    type = "normalize"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))})
        yield Case({"x": rng.normal(size=(3, 4, 2))}, {"axis": 1})
        yield Case({"x": rng.normal(size=(3, 4, 2))}, {"axis": 0, "epsilon": 0.5})
        yield Case({"x": rng.normal(size=(2, 5)) * 0.01}, {"epsilon": 1.0})  # epsilon divides

    def reference(self, inputs, attrs):
        x = inputs["x"]
        length = np.sqrt((x * x).sum(attrs["axis"], keepdims=True))
        return {"out": x / np.maximum(length, attrs["epsilon"])}

    def test_zeros(self):
        setup = self.setup(Case({"x": np.zeros((1, 3))}, {"epsilon": 0.5}), "float64")
        arrays = self.output(setup.case, "float64")
        np.testing.assert_array_equal(arrays["out"], [[0, 0, 0]])
        gradient = setup.gradients(arrays, ("x",))["x"]
        np.testing.assert_allclose(gradient, setup.seed("out") / 0.5)
        for dtype in ("float16", "float32"):
            assert (self.output(Case({"x": np.zeros((1, 3))}), dtype)["out"] == 0).all()

    def test_refuses(self):
        self.refuses("out of range", {"x": np.array(1.0)})
        self.refuses("floating", {"x": np.ones(2, int)})


class TestCosineSimilarity(OpTest):
    type = "cosine_similarity"
    grad = ("x", "y")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        for x, y, axis in [
            ((3, 4), (3, 4), -1),
            ((3, 4, 2), (3, 4, 2), 1),
            ((3, 4), (4,), -1),
            ((2, 1, 4), (3, 4), -1),
            ((1, 5), (3, 5), 1),
            ((5,), (5,), 0),
        ]:
            yield Case({"x": rng.normal(size=x), "y": rng.normal(size=y)}, {"axis": axis})
        x, y = rng.normal(size=(2, 2, 5))
        yield Case({"x": x * 0.01, "y": y}, {"epsilon": 1.0})  # epsilon stands for the length of x

    def reference(self, inputs, attrs):
        x, y = np.broadcast_arrays(inputs["x"], inputs["y"])
        axis, eps = attrs["axis"], attrs["epsilon"]
        lengths = [np.maximum(np.sqrt((a * a).sum(axis)), eps) for a in (x, y)]
        return {"out": np.asarray((x * y).sum(axis) / lengths[0] / lengths[1])}

    def test_one_number_broadcast_along_the_axis(self):
        x, y = np.array([[3.0, 4.0]]), np.array([[2.0], [-1.0]])
        out = self.output(Case({"x": x, "y": y}))["out"]
        np.testing.assert_allclose(out, [7 / 5 / 2**0.5, -7 / 5 / 2**0.5], rtol=1e-6)

    def test_zeros(self):
        case = Case({"x": np.zeros((1, 3)), "y": np.ones((1, 3))})
        assert self.output(case)["out"] == 0

    def test_refuses(self):
        self.refuses("do not broadcast", {"x": np.ones(2), "y": np.ones(3)})
        self.refuses("floating", {"x": np.ones(2), "y": np.ones(2, int)})
        self.refuses("out of range", {"x": np.ones(2), "y": np.ones(2)}, {"axis": 1})
