"""Adaptive pooling, against a reference window by window and against PyTorch."""

import itertools
import math

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


def distinct(rng, *shape):
    """Values far enough apart for finite differences not to change the order."""
    return rng.permutation(np.arange(np.prod(shape), dtype=float)).reshape(shape) / 8 - 3


def pooled(x, size, reduce):
    rank = x.ndim - 2
    sizes = tuple(size) * rank if len(size) == 1 else tuple(size)
    out = np.zeros((*x.shape[:2], *sizes))
    for where in itertools.product(*map(range, sizes)):
        window = [
            slice(math.floor(p * n / m), math.ceil((p + 1) * n / m))
            for p, n, m in zip(where, x.shape[2:], sizes, strict=True)
        ]
        out[(..., *where)] = reduce(x[(..., *window)], axis=tuple(range(2, x.ndim)))
    return out


CASES = {
    1: [((2, 3, 8), 4), ((2, 3, 7), 3), ((2, 2, 3), 5), ((2, 2, 5), 1), ((2, 2, 4), 4)],
    2: [((2, 3, 5, 7), [3, 2]), ((1, 2, 6, 4), 2), ((1, 2, 3, 10), [4, 4]), ((2, 2, 4, 3), [4, 2])],
    3: [((1, 2, 4, 3, 5), [2, 3, 2]), ((1, 1, 3, 3, 3), 1)],
}


class Adaptive(OpTest):
    grad = ("x",)

    def cases(self, rng):
        for shape, size in CASES[int(self.type[-2])]:
            yield Case({"x": distinct(rng, *shape)}, {"size": size})

    def reference(self, inputs, attrs):
        reduce = np.mean if "avg" in self.type else np.max
        return {"out": pooled(inputs["x"], attrs["size"], reduce)}

    def test_refuses(self):
        rank = int(self.type[-2])
        x = np.zeros((2, 3, 4, 5, 6)[: 2 + rank])
        self.refuses(f"{2 + rank} dimensions", {"x": x[0]}, {"size": 2})
        self.refuses("axis of size 0", {"x": x[:, :, :0]}, {"size": 2})
        self.refuses("size wants 1", {"x": x}, {"size": [1, 2, 3, 4]})
        self.refuses("floating dtype", {"x": x.astype(int)}, {"size": 2})
        self.refuses("size", {"x": x}, {"size": 0}, error=AttributeTypeError)
        self.refuses("size", {"x": x}, {}, error=AttributeTypeError)


class TestAvg1d(Adaptive):
    type = "adaptive_avg_pool1d"


class TestAvg2d(Adaptive):
    type = "adaptive_avg_pool2d"
    dtypes = ("float16", "float32", "float64")


class TestAvg3d(Adaptive):
    type = "adaptive_avg_pool3d"


class TestMax1d(Adaptive):
    type = "adaptive_max_pool1d"


class TestMax2d(Adaptive):
    type = "adaptive_max_pool2d"
    dtypes = ("float16", "float32", "float64")

    def test_minus_infinity_keeps_its_gradient(self):
        case = Case({"x": np.full((1, 1, 4, 4), -np.inf)}, {"size": 2})
        setup = self.setup(case, "float64")
        gradient = setup.gradients(self.output(case, "float64"), ("x",))["x"]
        assert np.count_nonzero(gradient) == 4


class TestMax3d(Adaptive):
    type = "adaptive_max_pool3d"


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_equals_torch(kind, rank):
    torch = pytest.importorskip("torch")

    class Test(Adaptive):
        type = f"adaptive_{kind}_pool{rank}d"

    for shape, size in [*CASES[rank], ((1, 1, *[40] * rank), 7)]:
        x = np.random.default_rng(0).integers(-2, 3, shape).astype("float32")  # with many ties
        setup = Test().setup(Case({"x": x}, {"size": size}), "float32", want=False)
        arrays = Test().output(setup.case)
        twin = torch.tensor(x, requires_grad=True)
        wanted = getattr(torch.nn.functional, setup.entry.type)(twin, size)
        np.testing.assert_allclose(arrays["out"], wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        wanted.backward(torch.tensor(setup.seed("out")))
        found = setup.gradients(arrays, ("x",))["x"]
        np.testing.assert_allclose(found, twin.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_out_has_a_known_size_whatever_the_input_has():
    b = NetBuilder()
    x = b.input("x", [-1, 3, -1, -1])
    assert b.adaptive_avg_pool2d(x, size=1).shape == (-1, 3, 1, 1)
    assert b.fc(b.flatten(b.adaptive_max_pool2d(x, size=[2, 3]), axis=1), 4).shape == (-1, 4)
