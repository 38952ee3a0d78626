"""Pooling, with PyTorch as the oracle where it is installed."""

import itertools
import math

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


def windows(shape, attrs):
    """For each output position: slices of the inputs inside its window, and its full extents."""
    rank = len(shape)

    def spread(values):
        return tuple(values) * rank if len(values) == 1 else tuple(values)

    kernel = spread(attrs["kernel"])
    stride = spread(attrs["stride"] or kernel)
    padding = attrs["padding"]
    before, after = (
        (padding[:rank], padding[rank:])
        if len(padding) == 2 * rank
        else (spread(padding), spread(padding))
    )
    if attrs["padding_algorithm"] == "same":
        # As ONNX's SAME_UPPER has it: ceil(size / stride) windows, and what they lack is padded.
        totals = [
            max(0, (math.ceil(n / s) - 1) * s + k - n)
            for n, s, k in zip(shape, stride, kernel, strict=True)
        ]
        before = [total // 2 for total in totals]
        after = [total - total // 2 for total in totals]
    axes = []
    for n, k, s, b, a in zip(shape, kernel, stride, before, after, strict=True):
        room = n + b + a - k
        count = room // s + 1
        if attrs["ceil_mode"] and room % s and count * s < n + b:
            count += 1
        starts = [p * s - b for p in range(count)]
        axes.append([(max(t, 0), min(t + k, n), min(t + k, n + a) - t) for t in starts])
    counts = [len(axis) for axis in axes]
    for where in itertools.product(*map(range, counts)):
        spans = [axes[i][p] for i, p in enumerate(where)]
        yield (
            counts,
            where,
            tuple(slice(b, e) for b, e, _ in spans),
            np.prod([c for *_, c in spans]),
        )


def size_of(spans):
    return int(np.prod([max(span.stop - span.start, 0) for span in spans]))


def pooled(x, attrs, reduce):
    out = None
    for counts, where, inside, size in windows(x.shape[2:], attrs):
        if out is None:
            out = np.zeros((*x.shape[:2], *counts))
        part = x[(..., *inside)].reshape(*x.shape[:2], size_of(inside))
        out[(..., *where)] = reduce(part, size)
    return out


def distinct(rng, *shape):
    """Values far enough apart for finite differences not to change the order."""
    return rng.permutation(np.arange(np.prod(shape), dtype=float)).reshape(shape) / 8 - 3


CASES = {
    1: [
        ((2, 3, 8), {"kernel": 2}),
        ((2, 3, 9), {"kernel": 3, "stride": 2, "padding": 1}),
        ((1, 2, 9), {"kernel": 3, "stride": 5}),
        ((2, 2, 5), {"kernel": 1}),
        ((2, 2, 5), {"kernel": 1, "stride": 2}),
        ((2, 2, 7), {"kernel": 4, "stride": 3, "padding_algorithm": "same"}),
    ],
    2: [
        ((2, 3, 4, 6), {"kernel": 2}),
        ((2, 3, 5, 7), {"kernel": [2, 3]}),
        ((2, 2, 6, 7), {"kernel": 3, "stride": 2, "padding": 1}),
        ((2, 2, 6, 7), {"kernel": [2, 3], "stride": 1, "padding": [1, 0, 0, 2]}),
        ((1, 2, 7, 8), {"kernel": 3, "stride": 2, "ceil_mode": True}),
        ((1, 2, 6, 6), {"kernel": 2, "stride": 3, "padding": 1, "ceil_mode": True}),
        ((2, 2, 4, 4), {"kernel": [1, 2]}),
        ((2, 2, 4, 4), {"kernel": 4}),
        ((2, 2, 6, 7), {"kernel": 3, "stride": 2, "padding_algorithm": "same"}),
        ((1, 2, 5, 6), {"kernel": [2, 3], "stride": [1, 5], "padding_algorithm": "same"}),
        ((1, 2, 5, 4), {"kernel": 3, "padding_algorithm": "valid"}),
    ],
    3: [
        ((2, 2, 4, 4, 2), {"kernel": 2}),
        ((1, 2, 3, 5, 4), {"kernel": [1, 3, 2], "stride": [1, 2, 1], "padding": [0, 1, 1]}),
    ],
}


class Pool(OpTest):
    grad = ("x",)

    def cases(self, rng):
        for shape, attrs in CASES[int(self.type[-2])]:
            yield Case({"x": distinct(rng, *shape)}, attrs)


class MaxPool(Pool):
    def reference(self, inputs, attrs):
        return {"out": pooled(inputs["x"], attrs, lambda part, size: part.max(-1))}


class TestMaxPool1d(MaxPool):
    type = "max_pool1d"

    def test_wide_windows(self):
        case = Case(
            {"x": distinct(np.random.default_rng(0), 2, 1, 700)}, {"kernel": 300, "stride": 200}
        )
        setup = self.setup(case, "float64")
        out = self.output(case, "float64")
        assert out["index"].dtype == np.int32
        setup.check(out, self)
        gradient = setup.gradients(out, ("x",))["x"]
        assert np.count_nonzero(gradient) == len(np.unique(out["out"]))


class TestMaxPool2d(MaxPool):
    type = "max_pool2d"
    dtypes = ("float16", "float32", "float64")

    def test_refuses(self):
        x = np.zeros((2, 3, 5, 5), "float32")
        self.refuses("4 dimensions", {"x": x[0]}, {"kernel": 2})
        self.refuses("floating dtype", {"x": x.astype(int)}, {"kernel": 2})
        self.refuses("does not fit into 5", {"x": x}, {"kernel": 6})
        self.refuses("does not fit into 0", {"x": x[:, :, :0]}, {"kernel": 2, "padding": 1})
        self.refuses("padding 2 is not below the kernel 2", {"x": x}, {"kernel": 2, "padding": 2})
        self.refuses("kernel wants 1 or 2", {"x": x}, {"kernel": [2, 2, 2]})
        self.refuses("stride wants 1 or 2", {"x": x}, {"kernel": 2, "stride": [1, 1, 1]})
        self.refuses("padding wants 1, 2 or 4", {"x": x}, {"kernel": 2, "padding": [1, 1, 1]})
        self.refuses("kernel", {"x": x}, {}, error=AttributeTypeError)
        self.refuses("kernel", {"x": x}, {"kernel": 0}, error=AttributeTypeError)

    def test_first_of_equal_inputs_gets_the_gradient(self):
        x = np.zeros((1, 1, 2, 4))
        x[0, 0] = [[0, 1, 2, 2], [1, 1, 2, 2]]
        setup = self.setup(Case({"x": x}, {"kernel": 2}), "float64")
        gradient = setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]
        assert (gradient[0, 0] != 0).tolist() == [[False, True, True, False], [False] * 4]

    def test_minus_infinity_keeps_its_gradient(self):
        case = Case({"x": np.full((1, 1, 3, 3), -np.inf)}, {"kernel": 3, "padding": 1, "stride": 2})
        setup = self.setup(case, "float64")
        out = self.output(case, "float64")
        assert np.count_nonzero(setup.gradients(out, ("x",))["x"]) == 4


class TestMaxPool3d(MaxPool):
    type = "max_pool3d"


class AvgPool(Pool):
    def cases(self, rng):
        for case in super().cases(rng):
            yield case
            if case.attrs.get("padding") or case.attrs.get("padding_algorithm"):
                yield Case(case.inputs, {**case.attrs, "count_include_pad": False})

    def reference(self, inputs, attrs):
        def mean(part, size):
            return part.sum(-1) / (size if attrs["count_include_pad"] else part.shape[-1])

        return {"out": pooled(inputs["x"], attrs, mean)}


class TestAvgPool1d(AvgPool):
    type = "avg_pool1d"


class TestAvgPool2d(AvgPool):
    type = "avg_pool2d"

    def test_refuses(self):
        x = np.zeros((2, 3, 5, 5), "float32")
        self.refuses("4 dimensions", {"x": x[0]}, {"kernel": 2})
        self.refuses("does not fit into 5", {"x": x}, {"kernel": 6})


class TestAvgPool3d(AvgPool):
    type = "avg_pool3d"


class Global(OpTest):
    grad = ("x",)

    def cases(self, rng):
        for shape in ((2, 3, 5), (2, 3, 4, 5), (1, 2, 2, 3, 2), (2, 3, 1, 1)):
            yield Case({"x": distinct(rng, *shape)})

    def test_refuses(self):
        self.refuses("at least 3 dimensions", {"x": np.zeros((2, 3))})
        self.refuses("axis of size 0", {"x": np.zeros((2, 3, 0))})
        self.refuses("floating dtype", {"x": np.zeros((2, 3, 4), int)})


class TestGlobalAvgPool(Global):
    type = "global_avg_pool"

    def reference(self, inputs, attrs):
        x = inputs["x"]
        return {"out": x.mean(tuple(range(2, x.ndim)), keepdims=True)}


class TestGlobalMaxPool(Global):
    type = "global_max_pool"

    def reference(self, inputs, attrs):
        x = inputs["x"]
        index = x.reshape(*x.shape[:2], int(np.prod(x.shape[2:]))).argmax(-1)
        return {"out": x.max(tuple(range(2, x.ndim)), keepdims=True), "index": index}


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_equals_torch(kind, rank):
    torch = pytest.importorskip("torch")

    class Test(Pool):
        type = f"{kind}_pool{rank}d"

    for shape, attrs in CASES[rank]:
        if np.size(attrs.get("padding", 0)) > rank or "padding_algorithm" in attrs:
            continue  # PyTorch pads both ends alike
        x = np.random.default_rng(0).integers(-2, 3, shape).astype("float32")  # with many ties
        setup = Test().setup(Case({"x": x}, attrs), "float32", want=False)
        arrays = Test().output(setup.case)
        given = torch.tensor(x, requires_grad=True)
        renamed = {"kernel_size" if name == "kernel" else name: v for name, v in attrs.items()}
        wanted = getattr(torch.nn.functional, setup.entry.type)(given, **renamed)
        np.testing.assert_allclose(arrays["out"], wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        wanted.backward(torch.tensor(setup.seed("out")))
        found = setup.gradients(arrays, ("x",))["x"]
        np.testing.assert_allclose(found, given.grad.numpy(), rtol=1e-5, atol=1e-6)
