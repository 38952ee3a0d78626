"""Convolution, pooling and their like through networks, beside sums written out place by place."""

from itertools import product

import numpy as np
import pytest

from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet

ROWS = 3


def build(operation, inputs, attributes):
    """A net of one node in double precision over inputs and parameters given by their shapes."""
    network, rng = Network("test"), np.random.default_rng(1)
    network.precision = "double"
    nodes, streams = [], {}
    for name, shape in inputs.items():
        if name.startswith("x"):
            nodes.append(network.add("InputValue", name, attributes={"shape": shape}))
            streams[name] = rng.normal(size=(ROWS, int(np.prod(shape))))
        else:
            given = {"shape": shape, "init": "uniform", "initValueScale": 20}
            nodes.append(network.add("LearnableParameter", name, attributes=given))
    network.add(operation, "out", nodes, attributes)
    network.validate()
    begin, layout = np.arange(ROWS + 1), packed(np.ones(ROWS, int))
    held = {name: Samples(begin, rows) for name, rows in streams.items()}
    batch = Minibatch(held, dict.fromkeys(held, layout), np.zeros((ROWS, 2)))
    return CntkNet(network), batch


def tensor(batch, name, shape):
    """[rows, d1, ..., dk] of a stream, in CNTK's order of elements."""
    rows = batch.streams[name].values
    return np.stack([row.reshape(shape, order="F") for row in rows])


def one_each(values, rank):
    return list(values) * rank if len(values) == 1 else list(values)


class Geometry:
    """Where windows lie, as CNTK's `ConvolveGeometry` has it."""

    def __init__(self, shape, kernelShape, **given):  # noqa: N803  CNTK's names
        rank = len(shape)
        self.shape, self.kernel = shape, kernelShape
        self.stride = one_each(given.get("strideShape", (1,)), rank)
        self.auto = one_each(given.get("dimPadding", (True,)), rank)
        self.low = one_each(given.get("dimPadLower", (0,)), rank)
        self.high = one_each(given.get("dimPadUpper", (0,)), rank)
        self.maps = given.get("mapCount", (1,))
        if len(self.maps) == 1:
            self.maps = (*(1,) * (rank - 1), self.maps[0])
        self.shared = one_each(given.get("dimSharing", (True,)), rank)
        self.counts, self.starts = [], []
        for axis, (size, kernel) in enumerate(zip(shape, kernelShape, strict=True)):
            padded = size + (kernel - 1 if self.auto[axis] else self.low[axis] + self.high[axis])
            count = (padded - kernel) // self.stride[axis] + 1
            extra = size - ((count - 1) * self.stride[axis] + 1)
            center = extra // 2 if self.auto[axis] else (kernel - 1) // 2 - self.low[axis]
            self.counts.append(count)
            self.starts.append(center - (kernel - 1) // 2)

    def windows(self):
        """Each window's place, and the taps that lie inside: (tap, place in the input)."""
        for place in product(*map(range, self.counts)):
            taps = []
            for tap in product(*(range(k) for k in reversed(self.kernel))):
                tap = tap[::-1]  # the first axis fastest
                axes = zip(place, self.stride, self.starts, tap, strict=True)
                at = tuple(p * step + start + t for p, step, start, t in axes)
                if all(0 <= a < size for a, size in zip(at, self.shape, strict=True)):
                    taps.append((tap, at))
            yield place, taps

    def kernel_of(self, place, maps):
        """Number of the kernel of a place and maps."""
        number, factor = 0, 1
        for axis, (p, m) in enumerate(zip(place, maps, strict=True)):
            if not self.shared[axis]:
                number, factor = number + factor * p, factor * self.counts[axis]
            number, factor = number + factor * m, factor * self.maps[axis]
        return number

    def products(self):
        """(kernel, tap number, place in the input, place in the result) that belong together."""
        steps = np.cumprod([1, *self.kernel])[:-1]
        for place, taps in self.windows():
            for maps in product(*map(range, self.maps)):
                pairs = zip(place, maps, self.counts, strict=True)
                out = tuple(p + m * count for p, m, count in pairs)
                for tap, at in taps:
                    yield self.kernel_of(place, maps), int(np.dot(tap, steps)), at, out

    @property
    def result(self):
        return tuple(c * m for c, m in zip(self.counts, self.maps, strict=True))


CONVOLUTIONS = {
    "image": ((5, 4, 2), {"kernelShape": (3, 2, 2), "mapCount": (3,), "dimPadding": (1, 1, 0)}),
    "strides": (
        (7, 6, 2),
        {"kernelShape": (2, 3, 2), "mapCount": (2,), "strideShape": (3, 2, 2), "dimPadding": (0,)},
    ),
    "steps wider than kernels": (
        (8, 7, 1),
        {"kernelShape": (1, 2, 1), "mapCount": (2,), "strideShape": (4, 5, 1)},
    ),
    "padding given": (
        (4, 5, 2),
        {
            "kernelShape": (3, 3, 2),
            "mapCount": (2,),
            "dimPadding": (False,),
            "dimPadLower": (1, 0, 0),
            "dimPadUpper": (0, 1, 0),
        },
    ),
    "one axis": ((6, 3), {"kernelShape": (4, 3), "mapCount": (2,), "dimPadding": (1, 0)}),
    "three axes": (
        (3, 4, 3, 2),
        {"kernelShape": (2, 3, 2, 2), "mapCount": (3,), "dimPadding": (1, 1, 1, 0)},
    ),
    "channels overlap": ((4, 3, 3), {"kernelShape": (2, 2, 2), "mapCount": (2,)}),
    "a vector": ((7,), {"kernelShape": (3,), "mapCount": (2,), "strideShape": (2,)}),
    "maps along all axes": (
        (4, 3, 2),
        {"kernelShape": (3, 2, 2), "mapCount": (2, 3, 2), "dimPadding": (1, 1, 0)},
    ),
    "own kernels along one axis": (
        (4, 3, 2),
        {
            "kernelShape": (3, 2, 2),
            "mapCount": (2,),
            "dimSharing": (False, True, True),
            "dimPadding": (1, 1, 0),
        },
    ),
    "own kernels everywhere": (
        (3, 4, 2),
        {
            "kernelShape": (2, 2, 2),
            "mapCount": (1, 2, 2),
            "dimSharing": (False,),
            "dimPadding": (0,),
        },
    ),
}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("which", CONVOLUTIONS)
def test_convolution(which, transpose):
    large, attributes = CONVOLUTIONS[which]
    plan = Geometry(large, **attributes)
    if transpose:  # the sizes that come back to themselves
        auto = [axis for axis, padded in enumerate(plan.auto) if padded]
        large = tuple(
            (plan.counts[axis] - 1) * plan.stride[axis]
            + (1 if axis in auto else plan.kernel[axis] - plan.low[axis] - plan.high[axis])
            for axis in range(len(large))
        )
        if any(k > size for k, size in zip(plan.kernel, large, strict=True)):
            pytest.skip("the kernel is larger than the result")
        plan = Geometry(large, **attributes)
    products = list(plan.products())
    kernels = 1 + max(kernel for kernel, *_ in products)
    shape = plan.result if transpose else large
    inputs = {"W": (int(np.prod(plan.kernel)), kernels), "x": shape}
    net, batch = build("Convolution", inputs, {**attributes, "transpose": transpose})
    x, weight = tensor(batch, "x", shape), net.get("W")
    out = np.zeros((ROWS, *(large if transpose else plan.result)))
    for kernel, tap, at, place in products:
        source, target = (place, at) if transpose else (at, place)
        out[(slice(None), *target)] += weight[tap, kernel] * x[(slice(None), *source)]
    value = net.forward(batch, ["out"])["out"]
    assert value.shape == out.shape[1:]
    np.testing.assert_allclose(value.data, out.transpose(0, *range(out.ndim - 1, 0, -1)))


POOLINGS = {
    "image": ((5, 4, 2), {"kernelShape": (2, 2), "strideShape": (2, 2), "dimPadding": (False,)}),
    "padded": ((5, 6, 2), {"kernelShape": (3, 2), "strideShape": (2, 2)}),
    "channels too": ((4, 4, 4), {"kernelShape": (2, 2, 2), "strideShape": (1, 2, 2)}),
    "one axis": ((7, 3), {"kernelShape": (3,), "strideShape": (2,)}),
    "a vector": ((7,), {"kernelShape": (3,), "strideShape": (2,)}),
    "four axes": ((3, 3, 2, 3), {"kernelShape": (2, 2, 2, 2), "strideShape": (1, 1, 1, 2)}),
    "steps wider than windows": ((8, 5, 1), {"kernelShape": (1, 2), "strideShape": (4, 1)}),
}


def completed(shape, attributes):
    """With the values of axes that are not given: passed by."""
    fills = {"kernelShape": 1, "strideShape": 1, "dimPadding": False}
    given = {"dimPadding": (True,), **attributes}
    for key, fill in fills.items():
        values = list(given[key])
        values += values[-1:] * (len(attributes["kernelShape"]) - len(values))
        given[key] = tuple(values + [fill] * (len(shape) - len(values)))
    return given


@pytest.mark.parametrize("pool", ["max", "average"])
@pytest.mark.parametrize("which", POOLINGS)
def test_pooling(which, pool):
    shape, attributes = POOLINGS[which]
    plan = Geometry(shape, **completed(shape, attributes))
    net, batch = build("Pooling", {"x": shape}, {**attributes, "pool": pool})
    x, out = tensor(batch, "x", shape), np.zeros((ROWS, *plan.result))
    for place, taps in plan.windows():
        held = np.stack([x[(slice(None), *at)] for _, at in taps])
        out[(slice(None), *place)] = held.max(0) if pool == "max" else held.mean(0)
    value = net.forward(batch, ["out"])["out"]
    np.testing.assert_allclose(value.data, out.transpose(0, *range(out.ndim - 1, 0, -1)))


def old_places(window, counts, steps, size):
    """Of CNTK's old engine: for each window (column, row) the elements' (column, row) inside."""
    for column, row in product(*map(range, counts)):
        for y, x in product(*map(range, window)):
            at = column * steps[0] + y - size[2], row * steps[1] + x - size[3]
            if 0 <= at[0] < size[0] and 0 <= at[1] < size[1]:
                yield (column, row), (y, x), at


@pytest.mark.parametrize("padded", [False, True])
def test_convolution_of_the_layout_hwc(padded):
    """Elements lie as channel + channels * (row + rows * column), weights of a map as row +
    rows * column + kernel * channel; a matrix holds the maps of each weight side by side."""
    (width, height, channels), (wide, high), maps, steps = (5, 4, 2), (3, 2), 3, (2, 1)
    attributes = {
        "kernelShape": (wide, high, 1),
        "mapCount": (1, 1, maps),
        "strideShape": (*steps, 1),
        "dimPadding": (padded,),
        "imageLayout": "HWC",
        "convolution2D": True,
    }
    inputs = {"W": (maps, wide * high * channels), "x": (channels, width, height)}
    net, batch = build("Convolution", inputs, attributes)
    value = net.forward(batch, ["out"])["out"]
    counts = value.shape[1:]
    x, weight = batch.streams["x"].values.reshape(ROWS, width, height, channels), net.get("W")
    weight = weight.reshape(maps, channels, wide, high)
    out = np.zeros((ROWS, *counts, maps))
    size = (width, height, *((wide // 2, high // 2) if padded else (0, 0)))
    for place, tap, at in old_places((wide, high), counts, steps, size):
        out[:, *place] += x[:, *at] @ weight[:, :, *tap].T
    np.testing.assert_allclose(value.data.reshape(ROWS, -1), out.reshape(ROWS, -1))


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("operation", ["MaxPooling", "AveragePooling"])
def test_window_pooling(operation, layout):
    width, height, channels, window, steps = 5, 4, 2, (3, 2), (1, 2)
    shape = (channels, width, height) if layout == "HWC" else (width, height, channels)
    names = ("windowWidth", "windowHeight", "horizontalSubsample", "verticalSubsample")
    attributes = dict(zip(names, (*window, *steps), strict=True))
    net, batch = build(operation, {"x": shape}, {**attributes, "imageLayout": layout})
    x = batch.streams["x"].values
    if layout == "HWC":
        x = x.reshape(ROWS, width, height, channels)
    else:
        x = x.reshape(ROWS, channels, height, width).transpose(0, 3, 2, 1)
    counts = (3, 2)
    held = np.zeros((ROWS, *counts, *window, channels))
    for place, tap, at in old_places(window, counts, steps, (width, height, 0, 0)):
        held[:, *place, *tap] = x[:, *at]
    out = held.max((3, 4)) if operation == "MaxPooling" else held.mean((3, 4))
    if layout == "CHW":
        out = out.transpose(0, 3, 2, 1)
    found = net.forward(batch, ["out"])["out"].data
    np.testing.assert_allclose(found.reshape(ROWS, -1), out.reshape(ROWS, -1))


def test_unpooling():
    attributes = {"kernelShape": (2, 2), "strideShape": (2, 2), "dimPadding": (False,)}
    net, batch = build("MaxUnpooling", {"x": (2, 2, 3), "x2": (4, 5, 3)}, attributes)
    pooled, whole = tensor(batch, "x", (2, 2, 3)), tensor(batch, "x2", (4, 5, 3))
    out = np.zeros_like(whole)
    plan = Geometry((4, 5, 3), **completed((4, 5, 3), attributes))
    for place, taps in plan.windows():
        held = np.stack([whole[(slice(None), *at)] for _, at in taps])
        for row, best in enumerate(held.argmax(0)):
            out[(row, *taps[best][1])] = pooled[(row, *place)]
    found = net.forward(batch, ["out"])["out"]
    assert found.shape == (4, 5, 3)
    np.testing.assert_allclose(found.data, out.transpose(0, 3, 2, 1))


def test_regions():
    """Regions are columns (x, y, width, height); results [columns x rows x channels x regions]."""
    net, batch = build("ROIPooling", {"x": (6, 4, 2), "x2": (4, 2)}, {"roiOutputShape": (3, 2)})
    regions = np.array([[0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5]])
    batch.streams["x2"].values[:] = regions.reshape(-1)
    x = tensor(batch, "x", (6, 4, 2))
    found = net.forward(batch, ["out"])["out"]
    assert found.shape == (3, 2, 2, 2)
    out = found.data.transpose(0, 4, 3, 2, 1)
    np.testing.assert_allclose(out[..., 0], x.reshape(ROWS, 3, 2, 2, 2, 2).max((2, 4)))
    half = x[:, 3:, 2:]
    np.testing.assert_allclose(out[..., 1], half)


NORMALIZED = [  # spatial, time constants of statistics and of blending
    (True, 5.0, 0.0),
    (True, -1.0, 2.0),
    (False, 0.0, 0.0),
    (False, 7.0, np.inf),
]


@pytest.mark.parametrize(("spatial", "time", "blend"), NORMALIZED)
def test_batch_normalization_learns_statistics(spatial, time, blend):
    shape = (3, 2, 4)
    count = 4 if spatial else 24
    inputs = {"x": shape, **{name: (count, 1) for name in ("scale", "bias", "mean", "variance")}}
    attributes = {"spatial": spatial, "epsilon": 0.01}
    attributes |= {"normalizationTimeConstant": time, "blendTimeConstant": blend}
    net, batch = build("BatchNormalization", inputs, attributes)
    net.set("variance", np.linspace(1, 2, count)[:, None])
    mean, variance = net.get("mean")[:, 0], net.get("variance")[:, 0]
    scale, bias = net.get("scale")[:, 0], net.get("bias")[:, 0]
    rng, axes = np.random.default_rng(4), (0, 2) if spatial else (0,)
    for turn in range(3):
        rows = rng.normal(1, 2, size=(ROWS, 24))
        batch.streams["x"].values[:] = rows
        x = rows.reshape(ROWS, 4, 6) if spatial else rows
        found = net.forward(batch, ["out"], train=True)["out"].data.reshape(x.shape)
        seen, samples = ROWS * turn, x.size // count
        share, weight = 1.0, 0.0
        if turn:
            share = ROWS / (ROWS + seen) if time < 0 else 1 - np.exp(-ROWS / time) if time else 1.0
            weight = 1.0 if np.isinf(blend) else blend / (blend + ROWS)
        own, spread = x.mean(axes), x.var(axes)
        mean = share * own + (1 - share) * mean
        variance = share * spread * samples / (samples - 1) + (1 - share) * variance
        center = weight * mean + (1 - weight) * own
        inverse = weight / np.sqrt(variance + 0.01) + (1 - weight) / np.sqrt(spread + 0.01)
        parts = (center, inverse * scale, bias)
        center, factor, term = (p[:, None] for p in parts) if spatial else parts
        np.testing.assert_allclose(found, (x - center) * factor + term, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(net.get("mean")[:, 0], mean)
    np.testing.assert_allclose(net.get("variance")[:, 0], variance)
    net.store()
    assert net.network.find("out").attributes["samplesSeen"] == 3 * ROWS
    before = net.forward(batch, ["out"])["out"].data
    wanted = (x - (mean[:, None] if spatial else mean)) * (
        (scale / np.sqrt(variance + 0.01))[(..., None) if spatial else ...]
    ) + (bias[:, None] if spatial else bias)
    np.testing.assert_allclose(before.reshape(x.shape), wanted, rtol=1e-9, atol=1e-9)
