"""Convolution, pooling and batch normalization.

Images in the layout CHW are [rows, C, H, W] here. Usual convolutions and poolings become shared
operators; others go through tables of windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....framework.ir.desc import make_op
from ....operators.conv.windows import spread
from ...network.nodes import geometry
from ...network.nodes.node import Node
from ..emitter import Emitter, dims, size
from ..table import lowers


class Windows:
    """The geometry of a convolution or pooling over a tensor of CNTK's `shape`, all axes slowest
    first."""

    def __init__(self, node: Node, shape: Sequence[int], result: Sequence[int]) -> None:
        values = node.attributes
        rank = len(shape)
        maps = spread(values.get("mapCount", (1,)), rank)
        if len(values.get("mapCount", (1,))) == 1:
            maps = (1,) * (rank - 1) + (maps[0],)
        counts = tuple(r // m for r, m in zip(result, maps, strict=True))
        self.shape = tuple(shape)[::-1]
        self.kernel = tuple(values["kernelShape"])[::-1]
        self.stride = spread(values["strideShape"], rank)[::-1]
        self.lower = tuple(
            geometry.lower_padding(node, axis, tuple(shape), counts) for axis in range(rank)
        )[::-1]
        self.counts = counts[::-1]
        self.maps = maps[::-1]
        self.shared = spread(values.get("dimSharing", (True,)), rank)[::-1]

    @property
    def attrs(self) -> dict[str, Any]:
        """As `cntk.unfold` takes them."""
        names = ("shape", "kernel", "stride", "lower", "counts")
        return {name: getattr(self, name) for name in names}

    def padding(self, first: int) -> tuple[list[int], list[int]] | None:
        """Padding before and after the axes from `first` on, negative after where elements are
        left out; None where some are left out in front."""
        before = list(self.lower[first:])
        after = []
        for axis in range(first, len(self.shape)):
            covered = (self.counts[axis] - 1) * self.stride[axis] + self.kernel[axis]
            after.append(covered - self.lower[axis] - self.shape[axis])
        return None if min(before, default=0) < 0 else (before, after)

    @property
    def usual(self) -> tuple[list[int], list[int]] | None:
        """The padding, where this is a convolution over one to three axes of all channels, whose
        maps are the channels of the result; else None."""
        whole = self.kernel[0] == self.shape[0] and self.lower[0] == 0 and self.counts[0] == 1
        maps = all(self.shared) and set(self.maps[1:]) <= {1}
        return self.padding(1) if whole and maps and 2 <= len(self.shape) <= 4 else None


def _convolve(
    e: Emitter,
    x: str,
    weight: str,
    stride: Sequence[int],
    padding: tuple[Sequence[int], Sequence[int]],
    transpose: bool,
) -> str:
    """[rows, channels, ...] with weights [maps, channels, ...]; or with `transpose`, back."""
    before, after = padding
    attrs = {"stride": tuple(stride), "padding": (*before, *(max(n, 0) for n in after))}
    if not transpose:
        return e.op(f"conv{len(stride)}d", {"x": x, "w": weight}, attrs)
    attrs["output_padding"] = tuple(max(-n, 0) for n in after)
    return e.op(f"conv_transpose{len(stride)}d", {"x": x, "w": weight}, attrs)


def _rows(e: Emitter, node: Node, shape: Sequence[int]) -> str:
    """A node's value as rows, one for a node without samples, of a shape."""
    if node.axis is not None:
        return e.shaped(node, tuple(shape))
    return e.reshape(e.value(node), (1, *shape))


def _whole(e: Emitter, node: Node, name: str) -> str:
    """Rows as a node's value."""
    return e.reshape(name, (0, *dims(node)) if node.axis is not None else dims(node))


class Legacy:
    """An image of the layout HWC, which CNTK's old engine takes in an order of its own: channels
    fastest, then the height, then the width, whatever the shape says.

    Args:
        size: width, height and channels.
    """

    def __init__(self, e: Emitter, child: Node, size: Sequence[int]) -> None:
        self.e = e
        image = _rows(e, child, size)
        self.value = e.op("transpose", {"x": image}, {"perm": (0, 3, 1, 2)})

    def weights(self, node: Node, channels: int) -> str:
        """[maps, channels, width, height] of a matrix [maps x kernel], the height fastest."""
        width, height = node.attributes["kernelShape"][:2]
        elements = channels * width * height
        shape = (channels, width, height, size(node.inputs[0]) // elements)
        weights = self.e.shaped(node.inputs[0], shape)
        return self.e.op("transpose", {"x": weights}, {"perm": (3, 0, 1, 2)})

    def back(self, name: str, node: Node) -> str:
        """[rows, channels, width, height] as a node's value."""
        return _whole(self.e, node, self.e.op("transpose", {"x": name}, {"perm": (0, 2, 3, 1)}))


def _legacy_convolution(e: Emitter, node: Node) -> str:
    """Padding, where there is any, begins with half of the kernel."""
    data = node.inputs[1]
    values = node.attributes
    given = geometry.to_chw(data.shape, node) if values["convolution2D"] else data.shape
    result = geometry.to_chw(node.shape, node)
    large, small = (result, given) if values["transpose"] else (given, result)
    kernel, stride = values["kernelShape"], values["strideShape"]
    before = [kernel[axis] // 2 if values["dimPadding"][0] else 0 for axis in range(2)]
    after = [
        (small[axis] - 1) * stride[axis] + kernel[axis] - before[axis] - large[axis]
        for axis in range(2)
    ]
    image = Legacy(e, data, given)
    weight = image.weights(node, large[2])
    padding = before, after
    out = _convolve(e, image.value, weight, stride[:2], padding, values["transpose"])
    return image.back(out, node)


@lowers("Convolution")
def lower_convolution(e: Emitter, node: Node) -> str:
    data = node.inputs[1]
    values = node.attributes
    if not geometry.is_chw(node):
        return _legacy_convolution(e, node)
    shapes = (data.shape, node.shape)
    windows = Windows(node, *(shapes[::-1] if values["transpose"] else shapes))
    maps = math.prod(windows.maps)
    padding = windows.usual
    if padding is not None:
        weight = e.shaped(node.inputs[0], (maps, *windows.kernel))
        x = _rows(e, data, dims(data))
        out = _convolve(e, x, weight, windows.stride[1:], padding, values["transpose"])
        result = windows.shape if values["transpose"] else (maps, *windows.counts[1:])
        if node.axis is not None and tuple(result) == dims(node):
            return out  # as it is, and what follows may be computed with it
    elif values["transpose"]:
        out = _transposed(e, node, windows)
    else:
        out = _unfolded(e, node, windows)
    return _whole(e, node, out)


def _unfolded(e: Emitter, node: Node, windows: Windows) -> str:
    """Products of all windows and the kernels."""
    flat = _rows(e, node.inputs[1], (math.prod(windows.shape),))
    columns = e.op("cntk.unfold", {"x": flat}, windows.attrs)
    if all(windows.shared):
        weight = e.shaped(node.inputs[0], (math.prod(windows.maps), math.prod(windows.kernel)))
        out = e.op("matmul", {"x": columns, "y": weight}, {"transpose_y": True})
        out = e.op("transpose", {"x": out}, {"perm": (0, 2, 1)})  # [rows, maps, windows]
    else:
        weight = _own_weights(e, node, windows)
        left = e.op("transpose", {"x": columns}, {"perm": (1, 0, 2)})
        out = e.op("matmul", {"x": left, "y": weight}, {"transpose_y": True})
        out = e.op("transpose", {"x": out}, {"perm": (1, 2, 0)})
    return _interleave(e, out, windows)


def _interleave(e: Emitter, out: str, windows: Windows) -> str:
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
    rank = len(windows.counts)
    shape = []
    kinds = []
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


def _transposed(e: Emitter, node: Node, windows: Windows) -> str:
    """Each element of the input is spread over its window of the result."""
    maps, count = math.prod(windows.maps), math.prod(windows.counts)
    rank = len(windows.counts)
    pairs = [n for pair in zip(windows.maps, windows.counts, strict=True) for n in pair]
    order = [1 + 2 * axis for axis in range(rank)] + [2 + 2 * axis for axis in range(rank)]
    x = _rows(e, node.inputs[1], pairs)
    x = e.reshape(e.op("transpose", {"x": x}, {"perm": (0, *order)}), (0, maps, count))
    x = e.op("transpose", {"x": x}, {"perm": (0, 2, 1)})
    elements = math.prod(windows.kernel)
    if all(windows.shared):
        weight = e.shaped(node.inputs[0], (maps, elements))
        columns = e.op("matmul", {"x": x, "y": weight})
    else:
        weight = _own_weights(e, node, windows)
        left = e.op("transpose", {"x": x}, {"perm": (1, 0, 2)})
        columns = e.op("matmul", {"x": left, "y": weight})
        columns = e.op("transpose", {"x": columns}, {"perm": (1, 0, 2)})
    return e.op("cntk.fold", {"x": columns}, windows.attrs)


@lowers("Pooling")
def lower_pooling(e: Emitter, node: Node) -> str:
    (child,) = node.inputs
    windows = Windows(node, child.shape, node.shape)
    out, is_whole = _pooled(e, child, windows, node.attributes["pool"] == "max")
    return out if is_whole and node.axis is not None else _whole(e, node, out)


def _pool(e: Emitter, x: str, rank: int, attrs: dict[str, Any], largest: bool) -> str:
    """[rows, channels, ...]. Padding neither counts as an element of a mean nor is a maximum."""
    if largest:
        return e.op(f"max_pool{rank}d", {"x": x}, attrs, out=("out", "index"))
    return e.op(f"avg_pool{rank}d", {"x": x}, {**attrs, "count_include_pad": False})


def _pooled(e: Emitter, child: Node, windows: Windows, largest: bool) -> tuple[str, bool]:
    """The result, and whether it has all axes; those in front that are not pooled count as
    channels."""
    axes = zip(windows.kernel, windows.stride, windows.lower, strict=True)
    pooled = [number for number, axis in enumerate(axes) if axis != (1, 1, 0)]
    rank = len(windows.shape)
    first = min(pooled, default=len(windows.shape) - 1)
    padding = windows.padding(first) if rank - first <= 3 else None
    if padding is not None:
        before, after = padding
        x = _rows(e, child, (math.prod(windows.shape[:first]), *windows.shape[first:]))
        attrs = {"kernel": windows.kernel[first:], "stride": windows.stride[first:]}
        attrs["padding"] = (*before, *(max(n, 0) for n in after))
        return _pool(e, x, rank - first, attrs, largest), first == 1
    flat = _rows(e, child, (math.prod(windows.shape),))
    if largest:
        columns = e.op("cntk.unfold", {"x": flat}, {**windows.attrs, "fill": -math.inf})
        return e.op("reduce_max", {"x": columns}, {"axes": (2,)}), False
    columns = e.op("cntk.unfold", {"x": flat}, windows.attrs)
    total = e.op("reduce_sum", {"x": columns}, {"axes": (2,)})
    ones = e.op("cntk.unfold", {"x": e.constant(1.0, flat)}, windows.attrs)
    count = e.op("reduce_sum", {"x": ones}, {"axes": (2,)})
    return e.op("div", {"x": total, "y": count}), False


@lowers("MaxPooling", "AveragePooling")
def lower_max_pooling(e: Emitter, node: Node) -> str:
    (child,), values = node.inputs, node.attributes
    kernel = values["windowWidth"], values["windowHeight"]
    stride = values["horizontalSubsample"], values["verticalSubsample"]
    largest = node.operation == "MaxPooling"
    if geometry.is_chw(node):
        attrs = {"kernel": kernel[::-1], "stride": stride[::-1]}
        return _whole(e, node, _pool(e, _rows(e, child, dims(child)), 2, attrs, largest))
    image = Legacy(e, child, geometry.to_chw(child.shape, node))
    return image.back(_pool(e, image.value, 2, {"kernel": kernel, "stride": stride}, largest), node)


@lowers("MaxUnpooling")
def lower_max_unpooling(e: Emitter, node: Node) -> str:
    pooled, whole = node.inputs
    windows = Windows(node, whole.shape, pooled.shape)
    reads = {"x": e.flat(pooled), "pooled": e.flat(whole)}
    out = e.op("cntk.max_unpool", reads, windows.attrs, out=("out", "owner"))
    return e.unflat(out, node)


@lowers("ROIPooling")
def lower_roi_pooling(e: Emitter, node: Node) -> str:
    image, regions = node.inputs
    cols, rows = node.attributes["roiOutputShape"]
    reads = {"x": e.value(image), "regions": e.value(regions)}
    return e.op("cntk.region_pool", reads, {"rows": rows, "cols": cols}, out=("out", "where"))


@lowers("BatchNormalization")
def lower_batch_normalization(e: Emitter, node: Node) -> str:
    data, *parameters = node.inputs
    features = size(parameters[0])
    positions = size(data) // features
    shape = (features, positions) if positions > 1 else (features,)
    if positions > 1 and dims(data)[0] == features:
        shape = dims(data)  # an image stays one for what follows
    slots = ("scale", "bias", "mean", "variance")
    reads: dict[str, Node] = dict(zip(slots, parameters, strict=True))
    x = e.shaped(data, shape)
    attrs = {"epsilon": node.attributes["epsilon"]}
    if e.inference:
        inputs = {slot: e.shaped(child, (features,)) for slot, child in reads.items()}
        outputs = ("out", "saved_mean", "saved_inv_std")
        out = e.op("batch_norm", {"x": x, **inputs}, attrs, out=outputs)
    else:
        out = _trained_norm(e, node, x, reads, attrs)
    return out if shape == dims(node) else e.reshape(out, (0, *dims(node)))


def _trained_norm(
    e: Emitter, node: Node, x: str, reads: dict[str, Node], attrs: dict[str, float]
) -> str:
    """Batch normalization whose running statistics move as CNTK's."""
    values = node.attributes
    inputs = {"x": x}
    inputs |= {slot: e.shaped(reads[slot], (size(reads[slot]),)) for slot in ("scale", "bias")}
    inputs["seen"] = e.state(node, "SEEN", (1,), values["samplesSeen"], "float64")
    time, blend = values["normalizationTimeConstant"], values["blendTimeConstant"]
    inputs["time"] = e.state(node, "TIME", (1,), time, "float64")
    inputs["blend"] = e.state(node, "BLEND", (1,), blend, "float64")
    outputs = {"seen_out": inputs["seen"]}
    for slot in ("mean", "variance"):
        inputs[slot] = outputs[f"{slot}_out"] = e.value(reads[slot])
    for slot in ("out", "used_mean", "used_scale", "own_weight"):
        outputs[slot] = e.temporary()
    e.append(make_op("cntk.batch_norm", inputs, outputs, attrs))
    return outputs["out"]
