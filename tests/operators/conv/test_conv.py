"""Convolutions and transposed convolutions, with PyTorch as the oracle where it is installed."""

import itertools
import math

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


def pads(attrs, kernel, sizes=()):
    """Padding at the begins and the ends of the spatial axes."""
    rank = len(kernel)
    dilation = spread(attrs["dilation"], rank)
    if attrs.get("padding_algorithm") == "valid":
        return (0,) * rank, (0,) * rank
    if attrs.get("padding_algorithm") == "same":
        stride = spread(attrs["stride"], rank)
        # As ONNX's SAME_UPPER has it: out = ceil(size / stride), and what that lacks is padded.
        totals = [
            max(0, (math.ceil(n / s) - 1) * s + d * (k - 1) + 1 - n)
            for n, s, d, k in zip(sizes, stride, dilation, kernel, strict=True)
        ]
        return [t // 2 for t in totals], [t - t // 2 for t in totals]
    padding = attrs["padding"]
    if len(padding) == 2 * rank:
        return padding[:rank], padding[rank:]
    return spread(padding, rank), spread(padding, rank)


def spread(values, rank):
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def taps(attrs, kernel, positions):
    """For each tap: its index and the slices of the padded large array that it meets."""
    stride, dilation = spread(attrs["stride"], len(kernel)), spread(attrs["dilation"], len(kernel))
    for tap in itertools.product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(t * d, t * d + (p - 1) * s + 1, s)
                for t, d, s, p in zip(tap, dilation, stride, positions, strict=True)
            ),
        )


def naive_conv(x, w, b, attrs):
    """One tap after the other, in loops over groups."""
    kernel, groups = w.shape[2:], attrs["groups"]
    before, after = pads(attrs, kernel, x.shape[2:])
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    dilation, stride = spread(attrs["dilation"], len(kernel)), spread(attrs["stride"], len(kernel))
    positions = [
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(x.shape[2:], dilation, kernel, stride, strict=True)
    ]
    out = np.zeros((len(x), len(w), *positions))
    size, channels = len(w) // groups, w.shape[1]
    for g in range(groups):
        mine = x[:, g * channels : (g + 1) * channels]
        for tap, where in taps(attrs, kernel, positions):
            part = w[(slice(g * size, (g + 1) * size), slice(None), *tap)]
            out[:, g * size : (g + 1) * size] += np.einsum(
                "nc...,oc->no...", mine[(..., *where)], part
            )
    return out if b is None else out + b.reshape(-1, *(1,) * len(kernel))


def naive_transpose(x, w, b, attrs):
    kernel, groups = w.shape[2:], attrs["groups"]
    before, after = pads(attrs, kernel)
    dilation, stride = spread(attrs["dilation"], len(kernel)), spread(attrs["stride"], len(kernel))
    extra = spread(attrs["output_padding"], len(kernel))
    sizes = [
        (p - 1) * s + d * (k - 1) + 1 + e
        for p, s, d, k, e in zip(x.shape[2:], stride, dilation, kernel, extra, strict=True)
    ]
    out = np.zeros((len(x), w.shape[1] * groups, *sizes))
    size, channels = w.shape[1], len(w) // groups
    for g in range(groups):
        rows = slice(g * channels, (g + 1) * channels)
        for tap, where in taps(attrs, kernel, x.shape[2:]):
            out[:, g * size : (g + 1) * size][(..., *where)] += np.einsum(
                "nc...,co->no...", x[:, rows], w[(rows, slice(None), *tap)]
            )
    crop = tuple(slice(b, n - a) for b, a, n in zip(before, after, sizes, strict=True))
    out = out[(..., *crop)]
    return out if b is None else out + b.reshape(-1, *(1,) * len(kernel))


class Conv(OpTest):
    grad = ("x", "w", "b")

    def case(self, rng, x, w, attrs=None, bias=True):
        attrs = attrs or {}
        filters = w[1] * attrs.get("groups", 1) if "transpose" in self.type else w[0]
        inputs = {"x": rng.normal(size=x), "w": rng.normal(size=w)}
        if bias:
            inputs["b"] = rng.normal(size=filters)
        return Case(inputs, attrs)

    def reference(self, inputs, attrs):
        naive = naive_transpose if "transpose" in self.type else naive_conv
        return {"out": naive(inputs["x"], inputs["w"], inputs.get("b"), attrs)}


class TestConv1d(Conv):
    type = "conv1d"

    def cases(self, rng):
        yield self.case(rng, (2, 3, 9), (4, 3, 3))
        yield self.case(rng, (2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 2, "groups": 2})
        yield self.case(rng, (3, 1, 20), (2, 1, 4), {"dilation": 3, "padding": [1, 4]})
        yield self.case(rng, (2, 2, 19), (3, 2, 1), {"stride": 3})
        yield self.case(rng, (2, 2, 8), (3, 2, 4), {"stride": 3, "padding_algorithm": "same"})


class TestConv2d(Conv):
    type = "conv2d"

    def cases(self, rng):
        yield self.case(rng, (2, 1, 6, 7), (3, 1, 3, 2))
        yield self.case(rng, (9, 2, 6, 6), (3, 2, 3, 3), {"padding": 1})
        yield self.case(rng, (1, 3, 5, 20), (4, 3, 2, 3), {"padding": [1, 2]})
        yield self.case(rng, (2, 4, 7, 8), (6, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1})
        yield self.case(rng, (2, 3, 7, 8), (6, 1, 3, 3), {"groups": 3, "stride": [1, 2]})
        yield self.case(rng, (2, 2, 9, 8), (2, 2, 3, 3), {"dilation": [2, 1], "stride": [3, 1]})
        yield self.case(rng, (2, 2, 6, 8), (2, 2, 3, 2), {"dilation": [1, 3]})
        yield self.case(rng, (2, 2, 5, 6), (3, 2, 4, 3), {"padding_algorithm": "same"})
        yield self.case(
            rng, (2, 2, 5, 6), (3, 2, 3, 3), {"padding_algorithm": "valid", "padding": 7}
        )
        same = {"padding_algorithm": "same"}
        yield self.case(rng, (2, 2, 6, 7), (3, 2, 3, 3), {**same, "stride": 2})
        yield self.case(rng, (1, 2, 8, 5), (2, 2, 4, 2), {**same, "stride": [3, 4]})
        yield self.case(
            rng, (1, 4, 7, 9), (2, 2, 3, 2), {**same, "stride": 2, "dilation": 2, "groups": 2}
        )
        yield self.case(rng, (1, 1, 4, 4), (2, 1, 1, 1), {**same, "stride": 3})
        yield self.case(rng, (2, 2, 4, 5), (3, 2, 3, 3), {"padding": [0, 1, 2, 3]})
        yield self.case(rng, (2, 2, 5, 4), (3, 2, 2, 2), {"padding": 3, "stride": 2})

    def test_without_bias(self):
        rng = np.random.default_rng(0)
        case = self.case(rng, (2, 2, 5, 5), (3, 2, 3, 3), bias=False)
        setup = self.setup(case, "float64")
        setup.check({"out": self.output(case, "float64")["out"]}, self)

    def test_half_precision(self):
        case = self.case(np.random.default_rng(0), (2, 2, 5, 5), (3, 2, 3, 3), {"padding": 1})
        self.setup(case, "float16").check(self.output(case, "float16"), self)

    def test_weight_gradients_are_added_up_in_pieces(self, monkeypatch):
        from opscope.operators.conv import im2col as _im2col

        setup = self.setup(
            self.case(np.random.default_rng(0), (2, 2, 9, 6), (3, 2, 3, 3)), "float64"
        )
        arrays = {"x": setup.arrays["x"], "w": setup.arrays["w"], "b": setup.arrays["b"]}
        arrays["out"] = self.output(setup.case, "float64")["out"]
        whole = setup.gradients(arrays, ("w",))["w"]
        monkeypatch.setattr(_im2col, "_CHUNK", 3 * 2 * 9 * 3)
        pieces = setup.gradients(arrays, ("w",))["w"]
        np.testing.assert_allclose(pieces, whole, rtol=1e-12, atol=1e-12)

    def test_refuses(self):
        x, w = np.zeros((2, 4, 5, 5), "float32"), np.zeros((6, 4, 3, 3), "float32")
        self.refuses("4 dimensions", {"x": x[0], "w": w})
        self.refuses("4 dimensions", {"x": x, "w": w[0]})
        self.refuses("floating dtype", {"x": x, "w": w.astype("float64")})
        self.refuses("floating dtype", {"x": x.astype(int), "w": w.astype(int)})
        self.refuses("channels of x and of w", {"x": x, "w": w[:, :3]})
        self.refuses("channels of x and of w", {"x": x, "w": w}, {"groups": 2})
        self.refuses("do not split into 4", {"x": x, "w": w[:, :1]}, {"groups": 4})
        self.refuses("size of b", {"x": x, "w": w, "b": np.zeros(5, "float32")})
        self.refuses("does not fit into 5", {"x": x, "w": w}, {"dilation": 3})
        self.refuses("does not fit into 0", {"x": x[:, :, :0], "w": w}, {"padding": 3})
        self.refuses("axis of size 0", {"x": x, "w": w[:, :, :0]})
        self.refuses("stride wants 1 or 2 values", {"x": x, "w": w}, {"stride": [1, 1, 1]})
        self.refuses("dilation wants 1 or 2", {"x": x, "w": w}, {"dilation": []})
        self.refuses("padding wants 1, 2 or 4", {"x": x, "w": w}, {"padding": [1, 2, 3]})
        for attrs in ({"stride": 0}, {"padding": -1}, {"groups": 0}, {"padding_algorithm": "sme"}):
            self.refuses(next(iter(attrs)), {"x": x, "w": w}, attrs, error=AttributeTypeError)


class TestConv3d(Conv):
    type = "conv3d"

    def cases(self, rng):
        yield self.case(rng, (2, 2, 4, 5, 6), (3, 2, 2, 3, 2))
        attrs = {"padding": [1, 0, 2], "stride": [1, 2, 1], "groups": 2}
        yield self.case(rng, (2, 4, 3, 5, 4), (2, 2, 2, 3, 3), attrs)
        attrs = {"padding": 1, "stride": [2, 1, 1], "dilation": [1, 2, 1]}
        yield self.case(rng, (1, 2, 4, 5, 4), (2, 2, 3, 2, 3), attrs)


class TestConvTranspose1d(Conv):
    type = "conv_transpose1d"
    tolerance16 = 1.5e-3  # a GPU rounds the product, and then its sum with the bias

    def cases(self, rng):
        yield self.case(rng, (2, 3, 5), (3, 2, 3))
        yield self.case(rng, (2, 4, 5), (4, 3, 4), {"stride": 3, "padding": 2, "groups": 2})
        attrs = {"stride": 2, "output_padding": 1, "dilation": 2}
        yield self.case(rng, (3, 2, 4), (2, 2, 3), attrs)


class TestConvTranspose2d(Conv):
    type = "conv_transpose2d"

    def cases(self, rng):
        yield self.case(rng, (2, 3, 4, 5), (3, 2, 3, 2))
        yield self.case(rng, (6, 2, 4, 5), (2, 3, 3, 3), {"padding": 2})
        yield self.case(rng, (2, 4, 3, 4), (4, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1})
        attrs = {"stride": [2, 3], "output_padding": [1, 2], "padding": [0, 1]}
        yield self.case(rng, (2, 2, 3, 3), (2, 2, 2, 3), attrs)
        yield self.case(rng, (2, 2, 4, 3), (2, 2, 3, 2), {"dilation": [2, 3], "output_padding": 1})
        yield self.case(
            rng, (2, 2, 5, 3), (2, 2, 2, 2), {"stride": [1, 2], "padding": [1, 0, 0, 1]}
        )

    def test_refuses(self):
        x, w = np.zeros((2, 4, 5, 5), "float32"), np.zeros((4, 3, 3, 3), "float32")
        self.refuses("4 dimensions", {"x": x[0], "w": w})
        self.refuses("floating dtype", {"x": x, "w": w.astype("float64")})
        self.refuses("channels of x and of w", {"x": x, "w": w[:3]})
        self.refuses("do not split into 3", {"x": x, "w": w}, {"groups": 3})
        self.refuses("size of b", {"x": x, "w": w, "b": np.zeros(4, "float32")})
        self.refuses("output_padding 1 is not below", {"x": x, "w": w}, {"output_padding": 1})
        self.refuses("would become one of", {"x": x, "w": w}, {"padding": 4})
        self.refuses("would become one of", {"x": x[:, :, :0], "w": w}, {"stride": 1})
        self.refuses("axis of size 0", {"x": x, "w": w[:, :, :0]})
        self.refuses("output_padding wants 1 or 2", {"x": x, "w": w}, {"output_padding": [0] * 3})


class TestConvTranspose3d(Conv):
    type = "conv_transpose3d"

    def cases(self, rng):
        yield self.case(rng, (2, 2, 3, 2, 3), (2, 3, 2, 3, 2))
        attrs = {"padding": [1, 0, 1], "stride": [1, 2, 1], "groups": 2}
        yield self.case(rng, (2, 4, 3, 2, 4), (4, 2, 2, 3, 3), attrs)


TORCH = [
    ("conv1d", (3, 4, 17), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ("conv2d", (64, 1, 28, 28), (16, 1, 5, 5), {}),
    ("conv2d", (64, 16, 12, 12), (32, 16, 5, 5), {}),
    ("conv2d", (5, 6, 15, 13), (4, 3, 3, 2), {"stride": [2, 1], "padding": [1, 2], "groups": 2}),
    ("conv2d", (5, 6, 15, 13), (4, 6, 3, 3), {"dilation": [1, 2], "padding": 2}),
    ("conv3d", (2, 3, 6, 7, 8), (4, 3, 2, 3, 3), {"stride": [1, 2, 1], "padding": 1}),
    ("conv_transpose1d", (3, 4, 9), (4, 3, 4), {"stride": 2, "padding": 1, "groups": 2}),
    ("conv_transpose2d", (9, 6, 8, 7), (6, 2, 3, 3), {"stride": 2, "output_padding": 1}),
    ("conv_transpose2d", (9, 6, 8, 7), (6, 2, 3, 3), {"padding": 1, "groups": 3}),
    ("conv_transpose3d", (2, 3, 3, 4, 5), (3, 2, 2, 3, 3), {"stride": [1, 2, 1], "padding": 1}),
]


@pytest.mark.parametrize(("kind", "x", "w", "attrs"), TORCH, ids=lambda v: str(v))
def test_equals_torch(kind, x, w, attrs):
    torch = pytest.importorskip("torch")

    class Test(Conv):
        type = kind

    case = Test().case(np.random.default_rng(0), x, w, attrs)
    setup = Test().setup(case, "float32", want=False)
    out = Test().output(case)["out"]
    found = setup.gradients({**setup.arrays, "out": out}, ("x", "w", "b"))
    given = {name: torch.tensor(a, requires_grad=True) for name, a in setup.arrays.items()}
    wanted = getattr(torch.nn.functional, kind)(given["x"], given["w"], given["b"], **attrs)
    wanted.backward(torch.tensor(setup.seed("out")))
    close(out, wanted.detach().numpy())
    for name, tensor in given.items():
        close(found[name], tensor.grad.numpy())


@pytest.mark.parametrize("kind", ["conv", "max", "avg"])
def test_same_padding_has_the_fewest_positions_that_cover_every_input(kind):
    """Sizes, kernels, strides and dilations of all kinds, by the number of positions."""
    for size, kernel, stride in itertools.product((1, 2, 5, 8), (1, 2, 3, 5), (1, 2, 3, 7)):

        class Test(Conv):
            type = "conv1d" if kind == "conv" else f"{kind}_pool1d"

        attrs = {"stride": stride, "padding_algorithm": "same"}
        inputs = {"x": np.ones((1, 1, size))}
        if kind == "conv":
            inputs["w"] = np.ones((1, 1, kernel))
        else:
            attrs["kernel"] = kernel
        out = Test().output(Case(inputs, attrs), "float64")["out"]
        assert out.shape == (1, 1, math.ceil(size / stride))
        if kind == "conv":
            pad = max(0, (out.shape[2] - 1) * stride + kernel - size)
            padded = np.pad(np.ones(size), (pad // 2, pad - pad // 2))
            wanted = [padded[p * stride :][:kernel].sum() for p in range(out.shape[2])]
            assert out[0, 0].tolist() == wanted
        else:
            assert kind == "avg" or (out == 1).all()


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (4, 1), (2, 3)])
def test_same_padding_of_stride_1_equals_torch(kernel, dilation):
    torch = pytest.importorskip("torch")
    x, w = (np.random.default_rng(0).normal(size=s) for s in ((2, 3, 9, 6), (4, 3, kernel, kernel)))
    attrs = {"padding_algorithm": "same", "dilation": dilation}
    out = TestConv2d().output(Case({"x": x, "w": w}, attrs), "float64")["out"]
    wanted = torch.nn.functional.conv2d(
        torch.tensor(x), torch.tensor(w), padding="same", dilation=dilation
    )
    np.testing.assert_allclose(out, wanted.numpy(), rtol=1e-10, atol=1e-10)


def close(found, wanted):
    """Equal to within rounding, relative to the largest element."""
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
