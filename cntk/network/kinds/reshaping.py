"""Reshaping, slicing, stacking and reducing within a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.crop import crop_offsets
from ..nodes.kind import register, standard
from ..nodes.node import DynamicAxis, Kind, NdlFunction, Node
from .parameters import LAYOUTS, NDL_IMAGE_LAYOUT, image_shape


def _reshape(node: Node, final: bool) -> None:
    """Replace axes [beginAxis, endAxis), counted from 1, 0 for the end; one new dimension may be 0
    and is inferred."""
    rules.common_axis(node)
    shape = node.inputs[0].shape or ()
    new = list(node.attributes["shape"])
    begin = max(node.attributes["beginAxis"] - 1, 0)
    end = node.attributes["endAxis"] - 1 if node.attributes["endAxis"] > 0 else len(shape)
    if not final:
        end = min(end, len(shape))
        begin = min(begin, end)
    elif not 0 <= begin <= end <= len(shape):
        raise node.error(f"axes {begin + 1} to {end} are not in [{rules.text(shape)}]")
    unknown = [k for k, dim in enumerate(new) if dim == 0]
    if len(unknown) > 1:
        raise node.error(f"more than one dimension of [{rules.text(tuple(new))}] is 0")
    old = math.prod(shape[begin:end])
    if unknown:
        new[unknown[0]] = old // math.prod(d for d in new if d)
    result = (*shape[:begin], *new, *shape[end:])
    if final and rules.size(result) != rules.size(shape):
        wanted = rules.text(node.attributes["shape"])
        why = "is no multiple of what is given of" if unknown else "differs from the number in"
        raise node.error(
            f"the number of elements of [{rules.text(shape[begin:end])}] {why} [{wanted}]"
        )
    node.shape = result


_HWC = ("HWC", "legacy")
_IMAGE_SIZE = ("imageWidth", "imageHeight", "imageChannels")


def _complete_image(node: Node, rows: int) -> tuple[int, ...]:
    """The image tensor of a legacy Reshape: of three dimensions one may be 0, or all."""
    width, height, channels = (node.attributes[key] for key in _IMAGE_SIZE)
    shape = list(image_shape(width, height, channels, node.attributes["imageLayout"]))
    known = [d for d in shape if d > 0]
    if not known:
        return (1, rows, 1)
    if len(known) == 1:
        raise node.error("at least two of width, height and channels must be given")
    if len(known) == 2:
        shape[shape.index(0)] = rows // math.prod(known)
    if math.prod(shape) != rows:
        raise node.error(f"an image of [{rules.text(tuple(shape))}] does not have {rows} elements")
    return tuple(shape)


def _legacy_reshape_rule(node: Node, final: bool) -> None:
    """`numRows` rows; samples become more or fewer where that is not their size."""
    child = node.inputs[0]
    rows = node.attributes["numRows"]
    size = rules.size(child.shape)
    if rows <= 0:
        raise node.error("the number of rows must be positive")
    columns = 1
    if not size:
        node.axis = child.axis
    elif max(rows, size) // min(rows, size) == 1:
        node.axis = child.axis
    elif child.axis is not None and (node.axis is None or node.axis.origin is not node):
        node.axis = DynamicAxis(node.name, node)
    if node.axis is None and size:
        own, width = rules.matrix(child)
        columns = own * width // rows
        if final and max(rows, own) % min(rows, own):
            raise node.error(f"{rows} rows are no multiple or divisor of {own}")
    image = _complete_image(node, rows)
    size = (image[1], image[2], image[0]) if node.attributes["imageLayout"] in _HWC else image
    node.attributes |= dict(zip(_IMAGE_SIZE, size, strict=True))
    node.shape = image if node.axis is not None or columns == 1 else (rows, columns)


def _slice(node: Node, final: bool) -> None:
    rules.common_axis(node)
    shape = list(node.inputs[0].shape or ())
    axis = node.attributes["axis"]
    first, last = node.attributes["beginIndex"], node.attributes["endIndex"]
    if axis < 1 or (final and axis > len(shape)):
        raise node.error(f"axis {axis} is not in [{rules.text(tuple(shape))}]")
    if axis <= len(shape):
        length = shape[axis - 1]
        begin = first if first >= 0 else first + length
        end = last if last > 0 else last + length
        if 0 <= begin <= end <= length:
            shape[axis - 1] = end - begin
        elif final:
            raise node.error(
                f"the range [{first}, {last}), that is [{begin}, {end}), is not in axis {axis} of"
                f" [{rules.text(tuple(shape))}]"
            )
    node.shape = tuple(shape)


def _repeat(node: Node, final: bool) -> None:
    rules.common_axis(node)
    shape = node.inputs[0].shape or ()
    node.shape = (*shape[:-1], shape[-1] * node.attributes["numRepeats"]) if shape else ()


def _stack(node: Node, final: bool) -> None:
    """Concatenate along `axis`, counted from 1; it may be a new one."""
    rules.common_axis(node)
    axis = node.attributes["axis"] - 1
    if axis < 0:
        raise node.error(f"the axis counts from 1, not {axis + 1}")
    rules.check_rank(node, axis + 1)
    shapes = [i.shape or () for i in node.inputs]
    rank = max(axis + 1, *map(len, shapes))
    result = list(shapes[0]) + [1] * (rank - len(shapes[0]))
    result[axis] = 0
    for child, shape in zip(node.inputs, shapes, strict=True):
        for k in range(rank):
            dim = shape[k] if k < len(shape) else 1
            if k == axis:
                result[k] += dim
                continue
            if final and dim != result[k] and dim != 1 and result[k] != 1:
                raise node.error(
                    f"axis {k + 1} of {child.name} has {dim} elements, the others have {result[k]}"
                )
            if result[k] == 1:
                result[k] = dim
    node.shape = tuple(result)


def _reduce(node: Node, final: bool) -> None:
    rules.common_axis(node)
    shape = node.inputs[0].shape or ()
    axis = node.attributes["axis"]
    if axis == 0:
        node.shape = (1,)
    elif 1 <= axis <= len(shape):
        node.shape = (*shape[: axis - 1], 1, *shape[axis:])
    elif final:
        raise node.error(f"[{rules.text(shape)}] has no axis {axis}")
    else:
        node.shape = shape


def _crop_rule(node: Node, final: bool) -> None:
    rules.common_axis(node)
    whole, like = (child.shape or () for child in node.inputs[:2])
    if len(whole) < 2 or len(like) < 2:
        if final:
            raise node.error("inputs must have at least two dimensions")
        return
    node.shape = (*like[:2], *whole[2:])
    if final:
        crop_offsets(node)
        for axis, key in enumerate(("xOffset", "yOffset")):
            offset = node.attributes[key]
            if whole[axis] < like[axis] + offset:
                raise node.error(
                    f"{like[axis]} elements from {offset:g} on are not in {whole[axis]} along"
                    f" axis {axis + 1}"
                )


standard(
    "Reshape",
    1,
    _reshape,
    ndl=None,
    attributes={
        "shape": AttributeSpec("dims", (), doc="the new axes"),
        "beginAxis": AttributeSpec(
            "int", 0, doc="first axis that is replaced, from 1; 0: the first"
        ),
        "endAxis": AttributeSpec(
            "int", 0, doc="the axis after the last that is replaced; 0: the end"
        ),
    },
    file_fields=(
        FileField("beginAxis", "int32"),
        FileField("endAxis", "int32"),
        FileField("shape", "shape"),
    ),
    reads="x",
    doc=(
        "x with its axes `beginAxis` to `endAxis` (not included; 0 includes the"
        " last) replaced by the axes of `shape`; one of them may be 0 and is"
        " inferred."
    ),
)

_IMAGE = {
    "imageWidth": AttributeSpec("int", 0, doc="of the image"),
    "imageHeight": AttributeSpec("int", 0, doc="of the image"),
    "imageChannels": AttributeSpec("int", 0, doc="of the image"),
    "imageLayout": NDL_IMAGE_LAYOUT,
}


def _legacy_reshape(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"numRows": values[0], **{k: v for k, v in options.items() if k in _IMAGE}}


register(
    Kind(
        "LegacyReshape",
        (1, 1),
        _legacy_reshape_rule,
        {
            "numRows": AttributeSpec("int", doc="of the result"),
            **_IMAGE,
            "imageLayout": AttributeSpec(
                "string", "HWC", LAYOUTS, doc="CHW: [W x H x C], fastest first; HWC: [C x W x H]"
            ),
        },
        ndl=(
            NdlFunction(
                ("Reshape",),
                "LegacyReshape",
                (2,),
                nodes=lambda numbers: range(1),
                options=_IMAGE,
                attributes=_legacy_reshape,
                usage="Reshape(input, numRows, imageWidth=, imageHeight=, imageChannels=)",
            ),
        ),
        reads=("x",),
        doc=(
            "x as columns of `numRows`: samples become more or fewer where a sample"
            " has another size. It is what NDL's `Reshape` was before tensors."
        ),
    )
)


def _row_slice(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    start, count = int(values[0]), int(values[1])
    return {"beginIndex": start, "endIndex": start + count, "axis": 1}


register(
    Kind(
        "Slice",
        (1, 1),
        _slice,
        {
            "beginIndex": AttributeSpec(
                "int", doc="first element, from 0; below 0: counted from the end"
            ),
            "endIndex": AttributeSpec(
                "int", doc="after the last element; 0 and below: counted from the end"
            ),
            "axis": AttributeSpec("int", 1, doc="from 1 on"),
        },
        aliases=("RowSlice",),
        ndl=(
            NdlFunction(
                ("RowSlice",),
                "Slice",
                (3,),
                nodes=lambda numbers: range(2, 3),
                attributes=_row_slice,
                usage="RowSlice(startRowIndex, numRows, input)",
            ),
        ),
        reads=("x",),
        doc=("The elements `beginIndex` to `endIndex` (not included) along an axis of the sample."),
    )
)

register(
    Kind(
        "RowRepeat",
        (1, 1),
        _repeat,
        {"numRepeats": AttributeSpec("int", 1, doc="how often")},
        file_fields=(FileField("numRepeats", "uint64"),),
        ndl=(
            NdlFunction(
                ("RowRepeat",),
                "RowRepeat",
                (2,),
                nodes=lambda numbers: range(1),
                attributes=lambda values, options: {"numRepeats": values[0]},
                usage="RowRepeat(input, numRepeats)",
            ),
        ),
        reads=("x",),
        doc="x repeated so often, one below the other.",
    )
)
standard(
    "RowStack",
    (1, None),
    _stack,
    attributes={"axis": AttributeSpec("int", 1, doc="from 1 on")},
    file_fields=(FileField("axis", "int32", 3, 1),),
    reads="x ...",
    doc="All inputs one after the other along an axis; `Splice` in BrainScript.",
)
standard(
    "ReduceElements",
    1,
    _reduce,
    ndl=None,
    attributes={
        "axis": AttributeSpec("int", 0, doc="from 1 on; 0: all elements"),
        "reductionOp": AttributeSpec(
            "string",
            choices=("Sum", "Mean", "LogSum", "Max", "Min", "Argmax", "Argmin"),
            doc="what is computed",
        ),
    },
    file_fields=(FileField("axis", "int32"), FileField("reductionOp", "wide")),
    reads="x",
    doc=(
        "The sum, mean, log of summed exponentials, largest, smallest, or the"
        " place of the largest or smallest element, along an axis or over all"
        " elements of the sample."
    ),
)


UNKNOWN = AttributeSpec(
    "float", float("inf"), doc="of the first element that is kept; found where it is not given"
)  # an offset that validation finds


def _crop_nodes(numbers: Sequence[bool]) -> range:
    return range(2) if len(numbers) == 4 and numbers[2] else range(len(numbers))


def _crop(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"xOffset": values[0], "yOffset": values[1]} if len(values) == 2 else {}


register(
    Kind(
        "Crop",
        (2, 4),
        _crop_rule,
        {"xOffset": UNKNOWN, "yOffset": UNKNOWN},
        file_fields=(FileField("xOffset", "double"), FileField("yOffset", "double")),
        ndl=(
            NdlFunction(
                ("Crop",),
                "Crop",
                (2, 4),
                nodes=_crop_nodes,
                attributes=_crop,
                usage="Crop(input, like), with offsets or with two equivalent nodes at the end",
            ),
        ),
        reads=("x", "like", "equivalent", "equivalentOfLike"),
        doc=(
            "x cut to the width and height of `like`, from offsets on; without"
            " offsets these are found from the convolutions and poolings between both"
            " and a common ancestor, or the two nodes of the third and fourth input."
        ),
    )
)
