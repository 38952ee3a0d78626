"""Convolution, pooling and batch normalisation.

Images in the layout CHW are [rows, C, H, W] here. Usual convolutions and poolings become those of
the shared operators; others go through tables of windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...framework.desc import make_op
from ..network import geometry
from ..network.node import Node
from .emitter import Emitter, dims, size
from .table import lowers


def _full(values: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """An attribute of one value for each axis, fastest first; one value stands for all."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


class Windows:
    """The geometry of a convolution or pooling over a tensor of CNTK's `shape`, all axes slowest
    first."""

    def __init__(self, node: Node, shape: Sequence[int], result: Sequence[int]) -> None:
        values, rank = node.attributes, len(shape)
        maps = _full(values.get("mapCount", (1,)), rank)
        if len(values.get("mapCount", (1,))) == 1:
            maps = (1,) * (rank - 1) + (maps[0],)
        counts = tuple(r // m for r, m in zip(result, maps, strict=True))
        self.shape = tuple(shape)[::-1]
        self.kernel = tuple(values["kernelShape"])[::-1]
        self.stride = _full(values["strideShape"], rank)[::-1]
        self.lower = tuple(
            geometry.lower_padding(node, axis, tuple(shape), counts) for axis in range(rank)
        )[::-1]
        self.counts, self.maps = counts[::-1], maps[::-1]
        self.shared = _full(values.get("dimSharing", (True,)), rank)[::-1]

    @property
    def attrs(self) -> dict[str, Any]:
        """As `cntk.unfold` takes them."""
        names = ("shape", "kernel", "stride", "lower", "counts")
        return {name: getattr(self, name) for name in names}

    @property
    def flat(self) -> bool:
        """Whether it is over images of two axes, with whole or with single channels."""
        return len(self.shape) == 3 and self.lower[0] == 0

    def padding(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Padding before and behind both axes of an image; None where elements in front are left
        out."""
        found = []
        for axis in (1, 2):
            steps = (self.counts[axis] - 1) * self.stride[axis] + self.kernel[axis]
            after = steps - self.lower[axis] - self.shape[axis]
            if self.lower[axis] < 0 or after <= -self.stride[axis]:
                return None
            found.append((self.lower[axis], max(after, 0)))
        return tuple(found)


def _chw(e: Emitter, node: Node, child: Node) -> str:
    """A node's value, from the layout HWC to [rows, C, H, W] where it is in that."""
    if geometry.is_chw(node) or len(dims(child)) != 3:
        return e.value(child)
    return e.op("transpose", {"x": e.value(child)}, {"perm": (0, 3, 1, 2)})


def _back(e: Emitter, node: Node, name: str) -> str:
    """[rows, C, H, W] in the layout of the node."""
    if geometry.is_chw(node) or len(dims(node)) != 3:
        return name
    return e.op("transpose", {"x": name}, {"perm": (0, 2, 3, 1)})


def _weights(e: Emitter, node: Node, shape: tuple[int, ...]) -> str:
    """The weight as an array [maps, kernel]. That of the layout HWC is a matrix [maps x kernel]
    with channels fastest; all others are read as their elements stand."""
    weight = node.inputs[0]
    if geometry.is_chw(node) or len(dims(weight)) != 2:
        return e.shaped(weight, shape)
    kernel = node.attributes["kernelShape"]
    turned = e.op("transpose", {"x": e.value(weight)}, {"perm": (1, 0)})
    channels_last = e.reshape(turned, (shape[0], kernel[1], kernel[0], kernel[2]))
    ordered = e.op("transpose", {"x": channels_last}, {"perm": (0, 3, 1, 2)})
    return e.reshape(ordered, shape)


@lowers("Convolution")
def _(e: Emitter, node: Node) -> str:
    data = node.inputs[1]
    shape, result = data.shape, node.shape
    if not geometry.is_chw(node) and len(shape) == 3:
        shape, result = geometry.to_chw(shape, node), geometry.to_chw(result, node)
    if node.attributes["transpose"]:
        return _transposed(e, node, Windows(node, result, shape))
    windows = Windows(node, shape, result)
    maps, elements = math.prod(windows.maps), math.prod(windows.kernel)
    x = _chw(e, node, data)
    whole = windows.kernel[0] == windows.shape[0] and windows.counts[0] == 1
    if windows.flat and whole and all(windows.shared):
        padding = windows.padding()
        if padding is not None and windows.maps[1:] == (1, 1):
            weight = _weights(e, node, (maps, *windows.kernel))
            return _back(e, node, _convolution_2d(e, x, weight, windows, padding))
    flat = e.reshape(x, (0, math.prod(windows.shape)))
    columns = e.op("cntk.unfold", {"x": flat}, windows.attrs)
    count = math.prod(windows.counts)
    if all(windows.shared):
        weight = _weights(e, node, (maps, elements))
        out = e.op("matmul", {"x": columns, "y": weight}, {"transpose_y": True})
        out = e.op("transpose", {"x": out}, {"perm": (0, 2, 1)})  # [rows, maps, windows]
    else:
        weight = _own_weights(e, node, windows)
        left = e.op("transpose", {"x": columns}, {"perm": (1, 0, 2)})
        out = e.op("matmul", {"x": left, "y": weight}, {"transpose_y": True})
        out = e.op("transpose", {"x": out}, {"perm": (1, 2, 0)})
    return _back(e, node, _interleave(e, out, windows, count))


def _interleave(e: Emitter, out: str, windows: Windows, count: int) -> str:
    """[rows, maps, windows] as the tensor in which each axis holds its maps and windows."""
    rank = len(windows.counts)
    whole = tuple(m * c for m, c in zip(windows.maps, windows.counts, strict=True))
    if windows.maps[1:] == (1,) * (rank - 1):
        return e.reshape(out, (0, *whole))
    split = e.reshape(out, (0, *windows.maps, *windows.counts))
    order = [place for axis in range(rank) for place in (1 + axis, 1 + rank + axis)]
    return e.reshape(e.op("transpose", {"x": split}, {"perm": (0, *order)}), (0, *whole))


def _own_weights(e: Emitter, node: Node, windows: Windows) -> str:
    """Weights [windows, maps, kernel] where windows along some axes have kernels of their own.

    In CNTK's order of kernels each axis, the fastest first, counts its windows and then its maps.
    """
    rank, shape, kinds = len(windows.counts), [], []
    for axis in range(rank):
        shape += [windows.maps[axis], 1 if windows.shared[axis] else windows.counts[axis]]
        kinds += [("map", axis), ("window", axis)]
    elements = math.prod(windows.kernel)
    weight = e.shaped(node.inputs[0], (*shape, elements))
    order = [kinds.index((kind, axis)) for kind in ("window", "map") for axis in range(rank)]
    weight = e.op("transpose", {"x": weight}, {"perm": (*order, 2 * rank)})
    if any(windows.shared):
        wide = (*windows.counts, *windows.maps, elements)
        weight = e.op("expand", {"x": weight}, {"shape": wide})
    return e.reshape(weight, (math.prod(windows.counts), math.prod(windows.maps), elements))


def _convolution_2d(e: Emitter, x: str, weight: str, windows: Windows, padding: Any) -> str:
    (top, bottom), (left, right) = padding
    attrs = {"stride": windows.stride[1:], "padding": (top, left)}
    if (bottom, right) != (top, left):
        around = ((0, 0), (0, 0), (top, bottom), (left, right))
        x = e.op("pad", {"x": x}, {"paddings": tuple(n for pair in around for n in pair)})
        attrs["padding"] = (0, 0)
    return e.op("conv2d", {"x": x, "w": weight}, attrs)


def _transposed(e: Emitter, node: Node, windows: Windows) -> str:
    """Each element of the input is spread over its window of the result."""
    maps, count = math.prod(windows.maps), math.prod(windows.counts)
    weight = _weights(e, node, (maps, math.prod(windows.kernel)))
    rank = len(windows.counts)
    x = _chw(e, node, node.inputs[1])
    if windows.maps[1:] != (1,) * (rank - 1):
        pairs = [n for pair in zip(windows.maps, windows.counts, strict=True) for n in pair]
        x = e.reshape(x, (0, *pairs))
        order = [1 + 2 * axis for axis in range(rank)] + [2 + 2 * axis for axis in range(rank)]
        x = e.op("transpose", {"x": x}, {"perm": (0, *order)})
    x = e.reshape(x, (0, maps, count))
    x = e.op("transpose", {"x": x}, {"perm": (0, 2, 1)})
    columns = e.op("matmul", {"x": x, "y": weight})
    out = e.op("cntk.fold", {"x": columns}, windows.attrs)
    return _back(e, node, e.reshape(out, (0, *windows.shape)))


@lowers("Pooling")
def _(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    windows = Windows(node, child.shape, node.shape)
    return _pooled(e, node, windows, node.attributes["pool"] == "max", e.value(child))


def _pooled(e: Emitter, node: Node, windows: Windows, largest: bool, x: str) -> str:
    """Padding neither counts as an element of a mean nor is a maximum."""
    single = windows.flat and windows.kernel[0] == windows.stride[0] == 1
    padding = windows.padding() if single else None
    if padding is not None and all(
        after <= before < kernel
        for (before, after), kernel in zip(padding, windows.kernel[1:], strict=True)
    ):
        attrs = {
            "kernel": windows.kernel[1:],
            "stride": windows.stride[1:],
            "padding": tuple(before for before, _ in padding),
        }
        if _windows_of(windows, padding) == windows.counts[1:]:
            if largest:
                return e.op("max_pool2d", {"x": x}, attrs, out=("out", "index"))
            return e.op("avg_pool2d", {"x": x}, {**attrs, "count_include_pad": False})
    flat = e.reshape(x, (0, math.prod(windows.shape)))
    if largest:
        fill = {"fill": -math.inf}
        columns = e.op("cntk.unfold", {"x": flat}, {**windows.attrs, **fill})
        out = e.op("reduce_max", {"x": columns}, {"axes": (2,)})
    else:
        columns = e.op("cntk.unfold", {"x": flat}, windows.attrs)
        total = e.op("reduce_sum", {"x": columns}, {"axes": (2,)})
        ones = e.op("cntk.unfold", {"x": e.constant(1.0, flat)}, windows.attrs)
        held = e.op("reduce_sum", {"x": ones}, {"axes": (2,)})
        out = e.op("div", {"x": total, "y": held})
    return e.reshape(out, (0, *windows.counts))


def _windows_of(windows: Windows, padding: Any) -> tuple[int, ...]:
    """Windows along both axes of an image with the padding before it on both sides."""
    return tuple(
        (size + 2 * before - kernel) // stride + 1
        for size, (before, _), kernel, stride in zip(
            windows.shape[1:], padding, windows.kernel[1:], windows.stride[1:], strict=True
        )
    )


@lowers("MaxPooling", "AveragePooling")
def _(e: Emitter, node: Node) -> str:
    (child,), values = node.inputs, node.attributes
    attrs = {
        "kernel": (values["windowHeight"], values["windowWidth"]),
        "stride": (values["verticalSubsample"], values["horizontalSubsample"]),
    }
    x = {"x": _chw(e, node, child)}
    if node.operation == "MaxPooling":
        return _back(e, node, e.op("max_pool2d", x, attrs, out=("out", "index")))
    return _back(e, node, e.op("avg_pool2d", x, attrs))


@lowers("MaxUnpooling")
def _(e: Emitter, node: Node) -> str:
    pooled, whole = node.inputs
    windows = Windows(node, whole.shape, pooled.shape)
    reads = {"x": e.flat(pooled), "pooled": e.flat(whole)}
    return e.unflat(e.op("cntk.max_unpool", reads, windows.attrs), node)


@lowers("ROIPooling")
def _(e: Emitter, node: Node) -> str:
    image, regions = node.inputs
    cols, rows = node.attributes["roiOutputShape"]
    reads = {"x": e.value(image), "regions": e.value(regions)}
    return e.op("cntk.region_pool", reads, {"rows": rows, "cols": cols}, out=("out", "where"))


@lowers("BatchNormalization")
def _(e: Emitter, node: Node) -> str:
    data, *parameters = node.inputs
    values, features = node.attributes, size(parameters[0])
    positions = size(data) // features
    shape = (features, positions) if positions > 1 else (features,)
    reads = dict(zip(("scale", "bias"), parameters, strict=False))
    inputs = {slot: e.shaped(child, (features,)) for slot, child in reads.items()}
    inputs["x"] = e.shaped(data, shape)
    inputs["seen"] = e.state(node, "SEEN", (1,), values["samplesSeen"], "float64")
    time, blend = values["normalizationTimeConstant"], values["blendTimeConstant"]
    inputs["time"] = e.state(node, "TIME", (1,), time, "float64")
    inputs["blend"] = e.state(node, "BLEND", (1,), blend, "float64")
    outputs = {"seen_out": inputs["seen"]}
    for slot, child in zip(("mean", "variance"), parameters[2:], strict=True):
        inputs[slot] = outputs[f"{slot}_out"] = e.value(child)
    for slot in ("out", "used_mean", "used_scale", "own_weight"):
        outputs[slot] = e.temporary()
    attrs = {"epsilon": values["epsilon"]}
    e.append(make_op("cntk.batch_norm", inputs, outputs, attrs))
    return outputs["out"] if shape == dims(node) else e.reshape(outputs["out"], (0, *dims(node)))
