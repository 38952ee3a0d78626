"""matmul and affine: values, gradients and refusals."""

import itertools

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest
from opscope.testing.op_setup import run


def transposed(array):
    return array if array.ndim == 1 else array.swapaxes(-1, -2)


class TestMatmul(OpTest):
    type = "matmul"
    grad = ("x", "y")

    def cases(self, rng):
        for transpose_x, transpose_y in itertools.product((False, True), repeat=2):
            for batch_x, batch_y in (
                ((), ()),
                ((2,), (2,)),
                ((2, 1), (3,)),
                ((3,), ()),
                ((), (2,)),
                ((1,), ()),
                ((), (1,)),
            ):
                x = rng.normal(size=(*batch_x, 4, 5))
                y = rng.normal(size=(*batch_y, 5, 3))
                yield Case(
                    {
                        "x": np.ascontiguousarray(transposed(x) if transpose_x else x),
                        "y": np.ascontiguousarray(transposed(y) if transpose_y else y),
                    },
                    {"transpose_x": transpose_x, "transpose_y": transpose_y},
                )
        yield Case({"x": rng.normal(size=(2, 3)), "y": rng.normal(size=(3, 2))}, {"alpha": -0.5})
        yield Case({"x": rng.normal(size=5), "y": rng.normal(size=5)}, {"alpha": 2.0})
        yield Case({"x": rng.normal(size=5), "y": rng.normal(size=(5, 3))}, {"transpose_x": True})
        yield Case({"x": rng.normal(size=5), "y": rng.normal(size=(2, 5, 3))})
        yield Case({"x": rng.normal(size=(3, 2, 4)), "y": rng.normal(size=4)}, {"alpha": 3.0})
        yield Case({"x": rng.normal(size=(4, 1)), "y": rng.normal(size=(1, 3))})

    def reference(self, inputs, attrs):
        x = transposed(inputs["x"]) if attrs["transpose_x"] else inputs["x"]
        y = transposed(inputs["y"]) if attrs["transpose_y"] else inputs["y"]
        return {"out": attrs["alpha"] * np.matmul(x, y)}

    def test_refuses(self):
        a = np.zeros((2, 3), "float32")
        self.refuses("inner dimensions", {"x": a, "y": a})
        self.refuses("at least 1 dimension", {"x": a, "y": np.float32(1)})
        self.refuses("do not broadcast", {"x": np.zeros((2, 3, 4)), "y": np.zeros((3, 4, 5))})
        self.refuses("floating dtype", {"x": a, "y": a.T.astype("float64")})
        self.refuses("floating dtype", {"x": a.astype("int32"), "y": a.T.astype("int32")})

    def test_no_inner_elements_give_zeros(self):
        out = self.output(Case({"x": np.zeros((2, 0)), "y": np.zeros((0, 3))}))["out"]
        np.testing.assert_array_equal(out, np.zeros((2, 3)))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_not_finite_is_not_lost_beside_zeros(self, value):
        for m, k, n in itertools.product((1, 2, 3), repeat=3):
            wild, zeros = np.full((m, k), value), np.zeros((k, n))
            for inputs in ({"x": wild, "y": zeros}, {"x": zeros.T, "y": wild.T}):
                for library in ("xp", *self._libraries()):
                    setup = self.setup(Case(inputs, {"alpha": 0.5}), "float32", want=False)
                    out = run(setup, libraries=(library, "xp")).arrays["out"]
                    assert np.isnan(out).all(), f"{library}, {m} x {k} by {k} x {n}"


class TestAffine(OpTest):
    type = "affine"
    grad = ("x", "w", "b")
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        w, b = rng.normal(size=(5, 3)), rng.normal(size=3)
        for shape in ((4, 5), (1, 5), (2, 3, 5), (5,)):
            yield Case({"x": rng.normal(size=shape), "w": w, "b": b})
        yield Case({"x": rng.normal(size=(4, 5)), "w": w})
        x = rng.normal(size=(2, 3, 4))
        yield Case({"x": x, "w": rng.normal(size=(12, 3)), "b": b}, {"num_flatten_dims": 1})
        yield Case({"x": x, "w": rng.normal(size=(24, 3)), "b": b}, {"num_flatten_dims": 0})
        yield Case({"x": x, "w": rng.normal(size=(4, 3)), "b": b}, {"num_flatten_dims": 2})

    def reference(self, inputs, attrs):
        x, w = inputs["x"], inputs["w"]
        lead = x.shape[: attrs["num_flatten_dims"]]
        return {"out": x.reshape(*lead, len(w)) @ w + inputs.get("b", 0)}

    def test_refuses(self):
        x, w = np.zeros((2, 3), "float32"), np.zeros((3, 4), "float32")
        self.refuses("columns of x and the rows of w", {"x": x, "w": w.T})
        self.refuses("length of b", {"x": x, "w": w, "b": np.zeros(3, "float32")})
        self.refuses("b wants 1 dimensions", {"x": x, "w": w, "b": np.zeros((1, 4), "float32")})
        self.refuses("w wants 2 dimensions", {"x": x, "w": w[0]})
        self.refuses("floating dtype", {"x": x, "w": w.astype("float64")})
        self.refuses("leaves no columns", {"x": x, "w": w}, {"num_flatten_dims": 2})
        self.refuses("below -1", {"x": x, "w": w}, {"num_flatten_dims": -2}, AttributeTypeError)
        self.refuses("at least 1 dimension", {"x": x[0, 0], "w": w})

    @pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
    def test_empty(self, shape):
        w = np.ones((shape[1], 2))
        out = self.output(Case({"x": np.ones(shape), "w": w, "b": np.full(2, 7.0)}))["out"]
        np.testing.assert_array_equal(out, np.full((shape[0], 2), 7.0))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_batch_of_one_gives_the_gradient_of_shared_weights(rows):
    """[1, T, K] by [K, N], in each kernel library: the last minibatch may have one row."""
    x = np.random.default_rng(0).normal(size=(rows, 3, 4)).astype("float32")
    builder, scope = NetBuilder(), Scope()
    weights = builder.parameter("w", [4, 2])
    out = builder.matmul(builder.input("x", [-1, 3, 4]), weights)
    builder.backward_from(builder.sum(out, name="loss"))
    builder.initialize(scope)
    found = builder.run(scope, feed={"x": x}, fetch=["w@GRAD"])
    wanted = np.repeat(x.sum((0, 1))[:, None], 2, 1)
    np.testing.assert_allclose(found["w@GRAD"], wanted, rtol=1e-5)
