"""Shapes of convolutions and poolings: kernels that slide over tensors of any rank.

Source: ConvolveGeometry.h and ConvolutionalNodes.h. `lower` and `upper` are paddings of the input;
automatic padding keeps output = ceil(input / stride).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import rules
from .attributes import Dims
from .node import Node


def is_chw(node: Node) -> bool:
    """Whether the node's layout is channels slowest (`CHW`, which is `cudnn`)."""
    return node.attributes["imageLayout"].lower() in ("chw", "cudnn")


def to_chw(shape: Dims, node: Node) -> Dims:
    """[W x H x C] from a shape in the node's layout."""
    return shape if is_chw(node) else (shape[1], shape[2], shape[0])


def from_chw(shape: Dims, node: Node) -> Dims:
    """[W x H x C] in the node's layout."""
    return shape if is_chw(node) else (shape[2], shape[0], shape[1])


def extend(
    values: Sequence[int], filter_rank: int, rank: int, default: int, full: Dims = ()
) -> tuple[int, ...]:
    """Repeat the last value up to the rank of the kernel, then continue with `full`, or
    `default`."""
    result = list(values)
    if not result:
        return ()
    result += result[-1:] * (filter_rank - len(result))
    while len(result) < rank:
        result.append(full[len(result)] if len(result) < len(full) else default)
    return tuple(result)


def complete(node: Node, shape: Dims, full: Dims) -> None:
    """Extend the node's kernel, strides and paddings to the rank of the input: where the kernel has
    fewer axes, the others are summed over (`full` is the input's shape) or passed by."""
    values = node.attributes
    kernel_rank = len(values["kernelShape"])
    rank = len(shape)
    values["kernelShape"] = extend(values["kernelShape"], kernel_rank, rank, 1, full)
    values["strideShape"] = extend(values["strideShape"], kernel_rank, rank, 1, full)
    values["dimPadding"] = tuple(map(bool, extend(values["dimPadding"], kernel_rank, rank, False)))
    values["dimPadLower"] = extend(values["dimPadLower"], kernel_rank, rank, 0)
    values["dimPadUpper"] = extend(values["dimPadUpper"], kernel_rank, rank, 0)
    if "dimSharing" in values:
        values["dimSharing"] = tuple(
            map(bool, extend(values["dimSharing"], kernel_rank, rank, True))
        )


def _at(values: Sequence[int], axis: int) -> int:
    return values[0] if len(values) == 1 else values[axis]


def _check_ranks(node: Node, rank: int) -> None:
    values = node.attributes
    if len(values["kernelShape"]) != rank:
        raise node.error(f"the kernel {values['kernelShape']} must have rank {rank} as the input")
    for key in (
        "mapCount",
        "strideShape",
        "dimSharing",
        "dimPadding",
        "dimPadLower",
        "dimPadUpper",
    ):
        if key in values and len(values[key]) not in (1, rank):
            raise node.error(f"{key} {values[key]} must have rank 1 or {rank}")


def _maps(node: Node, rank: int) -> list[int]:
    counts = node.attributes.get("mapCount", (1,))
    return [1] * (rank - 1) + [counts[0]] if len(counts) == 1 else list(counts)


class _Axis(NamedTuple):
    """One axis of a sliding kernel; `auto`: padded automatically, whatever `lower` and `upper`."""

    number: int
    dim: int
    maps: int
    kernel: int
    stride: int
    lower: int
    upper: int
    auto: bool


def _axes(node: Node, shape: Dims) -> Iterator[_Axis]:
    values = node.attributes
    rank = len(shape)
    _check_ranks(node, rank)
    maps = _maps(node, rank)
    along = ("strideShape", "dimPadLower", "dimPadUpper", "dimPadding")
    for axis, dim in enumerate(shape):
        kernel = values["kernelShape"][axis]
        stride, lower, upper, auto = (_at(values[key], axis) for key in along)
        yield _Axis(axis + 1, dim, maps[axis], kernel, stride, lower, upper, bool(auto))


def output_shape(node: Node, shape: Dims) -> Dims:
    """Shape of a convolution's or pooling's result over an input of `shape`.

    Raises:
        ShapeError: a kernel is larger than the input, or does not fill the padded input.
    """
    result = []
    for number, dim, maps, kernel, stride, lower, upper, auto in _axes(node, shape):
        if kernel > dim:
            raise node.error(f"kernel of {kernel} over {dim} elements along axis {number}")
        if stride <= 0 or kernel <= 0:
            raise node.error(f"kernels and strides are positive: {kernel} and {stride}")
        padded = dim + kernel - 1 if auto else dim + lower + upper
        steps = (padded - kernel) // stride + 1
        if not auto and (lower or upper) and (steps - 1) * stride + kernel != padded:
            raise node.error(
                f"kernels of {kernel} with stride {stride} do not fill {padded} elements along axis"
                f" {number}"
            )
        result.append(steps * maps)
    return tuple(result)


def input_shape(node: Node, shape: Dims) -> Dims:
    """The shape whose convolution has `shape`: the shape of a transposed convolution's result.

    Raises:
        ShapeError: as `output_shape`.
    """
    result = []
    for number, dim, maps, kernel, stride, lower, upper, auto in _axes(node, shape):
        if maps == 0 or dim % maps:
            raise node.error(f"{dim} elements along axis {number} are not {maps} maps")
        steps = dim // maps
        size = (steps - 1) * stride + (1 if auto else kernel - lower - upper)
        if not auto and (lower or upper) and (size - kernel + lower + upper) // stride + 1 != steps:
            raise node.error(f"kernels do not fill the result along axis {number}")
        if size < 1:
            raise node.error(f"the result has no elements along axis {number}")
        result.append(size)
    return tuple(result)


def _image(node: Node, child: Node, final: bool) -> Dims | None:
    shape = child.shape or ()
    if len(shape) != 3:
        if final or shape:
            raise node.error(f"the input must be an image of rank 3, not [{rules.text(shape)}]")
        return None
    return to_chw(shape, node)


def _convolution_2d(node: Node, final: bool) -> Dims | None:
    values = node.attributes
    weight, data = node.inputs
    image = _image(node, data, final)
    if image is None:
        return None
    width, height = values["kernelShape"][:2]
    channels = image[2]
    values["kernelShape"] = (width, height, channels)
    values["strideShape"] = (*values["strideShape"][:2], channels)
    maps = math.prod(values["mapCount"])
    columns = width * height * channels
    rules.infer(weight, (maps, columns))
    if final and rules.matrix(weight) != (maps, columns):
        raise node.error(
            f"the weight {weight.name} must be [{maps} x {columns}] (output channels x kernel"
            f" elements), not [{rules.text(weight.shape)}]"
        )
    node.shape = from_chw(output_shape(node, image), node)
    return image


def convolution(node: Node, final: bool) -> None:
    """Rule of `Convolution (weight, input)`."""
    rules.common_axis(node)
    values = node.attributes
    weight, data = node.inputs
    if values["convolution2D"]:
        shape = _convolution_2d(node, final)
        if shape is None:
            return
    else:
        shape = data.shape or ()
        if not rules.size(shape):
            return
        if not values["kernelShape"]:  # of CNTK 2.0: the weight is [kernel x maps]
            kernel, maps = (weight.shape or ())[: len(shape)], (weight.shape or ())[len(shape) :]
            values["kernelShape"] = kernel
            values["mapCount"] = (1,) * (len(shape) - len(maps)) + maps
        complete(node, shape, shape)
        result = (input_shape if values["transpose"] else output_shape)(node, shape)
        node.shape = result if is_chw(node) or len(result) != 3 else from_chw(result, node)
    if not rules.size(weight.shape):
        if len(weight.shape or ()) == 2:
            rules.infer(weight, (math.prod(values["mapCount"]), math.prod(values["kernelShape"])))
        else:
            rules.infer(weight, (*values["kernelShape"], *values["mapCount"]))
    if final:
        needed = math.prod(values["kernelShape"]) * kernel_count(node, shape)
        if rules.size(weight.shape) != needed:
            raise node.error(
                f"the weight {weight.name} must have {needed} elements (filter x input channels x"
                f" output channels), not [{rules.text(weight.shape)}]"
            )


def kernel_count(node: Node, shape: Dims) -> int:
    """Number of kernels: the maps, times the places along axes that do not share weights."""
    values = node.attributes
    maps = _maps(node, len(shape))
    places = output_shape(node, input_shape(node, shape) if values["transpose"] else shape)
    return math.prod(
        maps[axis] if _at(values["dimSharing"], axis) else places[axis]
        for axis in range(len(shape))
    )


def lower_padding(node: Node, axis: int, shape: Dims, result: Dims) -> int:
    """Elements of padding before the first one along `axis` of an input of `shape`."""
    values = node.attributes
    if not _at(values["dimPadding"], axis):
        return _at(values["dimPadLower"], axis)
    cells = (result[axis] - 1) * _at(values["strideShape"], axis) + 1
    center = (shape[axis] - cells) // 2
    return (values["kernelShape"][axis] - 1) // 2 - center


def _need_chw(node: Node) -> None:
    if not is_chw(node):
        raise node.error('only the layout imageLayout="CHW" is possible')


def pooling(node: Node, final: bool) -> None:
    """Rule of `Pooling (input)`."""
    rules.common_axis(node)
    _need_chw(node)
    shape = node.inputs[0].shape or ()
    if not rules.size(shape):
        return
    complete(node, shape, ())
    node.shape = output_shape(node, shape)


def unpooling(node: Node, final: bool) -> None:
    """Rule of `MaxUnpooling (input, poolInput)`: the shape of what was pooled."""
    rules.common_axis(node)
    _need_chw(node)
    pooled, whole = (child.shape or () for child in node.inputs)
    if not (rules.size(pooled) and rules.size(whole)):
        return
    complete(node, pooled, ())
    inferred = output_shape(node, whole)
    if inferred != pooled:
        raise node.error(
            f"the input is [{rules.text(pooled)}], but pooling [{rules.text(whole)}] gives"
            f" [{rules.text(inferred)}]"
        )
    node.shape = whole


def window_pooling(node: Node, final: bool) -> None:
    """Rule of `MaxPooling` and `AveragePooling (input)`: two axes, no padding."""
    rules.common_axis(node)
    values = node.attributes
    image = _image(node, node.inputs[0], final)
    if image is None:
        return
    result = []
    for axis, (window, step) in enumerate(
        (("windowWidth", "horizontalSubsample"), ("windowHeight", "verticalSubsample"))
    ):
        if values[step] <= 0:
            raise node.error(f"{step} must be positive")
        if image[axis] < values[window]:
            if final:
                raise node.error(f"{window} {values[window]} is more than {image[axis]} elements")
            return
        result.append((image[axis] - values[window]) // values[step] + 1)
    node.shape = from_chw((*result, image[2]), node)


def region_pooling(node: Node, final: bool) -> None:
    """Rule of `ROIPooling (input, regions)`: [W x H x C x regions]."""
    rules.common_axis(node)
    size = node.attributes["roiOutputShape"]
    shape, regions = (child.shape or () for child in node.inputs)
    if not final and (len(shape) != 3 or len(regions) != 2 or len(size) != 2):
        return
    if len(size) != 2:
        raise node.error(f"roiOutputShape must be [W x H], not [{rules.text(size)}]")
    if len(shape) != 3 or shape[0] < size[0] or shape[1] < size[1]:
        raise node.error(f"input [{rules.text(shape)}] is smaller than [{rules.text(size)}]")
    if len(regions) != 2 or regions[0] != 4 or regions[1] < 1:
        raise node.error(f"regions must be [4 x number], not [{rules.text(regions)}]")
    node.shape = (*size, shape[2], regions[1])
