"""Reshaping, slicing, stacking and reducing within a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import rules
from ..kind import AttributeSpec, Kind, NdlFunction, register
from ._make import standard
from .parameters import LAYOUTS, NDL_IMAGE_LAYOUT

standard(
    "Reshape",
    1,
    rules.unary,
    ndl=None,
    attributes={
        "shape": AttributeSpec("dims", ()),
        "beginAxis": AttributeSpec("int", 0),
        "endAxis": AttributeSpec("int", 0),
    },
)

_IMAGE = {
    "imageWidth": AttributeSpec("int", 0),
    "imageHeight": AttributeSpec("int", 0),
    "imageChannels": AttributeSpec("int", 0),
    "imageLayout": NDL_IMAGE_LAYOUT,
}


def _legacy_reshape(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"numRows": values[0], **{k: v for k, v in options.items() if k in _IMAGE}}


register(
    Kind(
        "LegacyReshape",
        (1, 1),
        rules.unary,
        {
            "numRows": AttributeSpec("int"),
            **_IMAGE,
            "imageLayout": AttributeSpec("string", "HWC", LAYOUTS),
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
    )
)


def _row_slice(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    start, count = int(values[0]), int(values[1])
    return {"beginIndex": start, "endIndex": start + count, "axis": 1}


register(
    Kind(
        "Slice",
        (1, 1),
        rules.unary,
        {
            "beginIndex": AttributeSpec("int"),
            "endIndex": AttributeSpec("int"),
            "axis": AttributeSpec("int", 1),
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
    )
)

register(
    Kind(
        "RowRepeat",
        (1, 1),
        rules.unary,
        {"numRepeats": AttributeSpec("int", 1)},
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
    )
)
standard("RowStack", (1, None), rules.unary, attributes={"axis": AttributeSpec("int", 1)})
standard(
    "ReduceElements",
    1,
    rules.unary,
    ndl=None,
    attributes={
        "axis": AttributeSpec("int", 0),
        "reductionOp": AttributeSpec(
            "string", choices=("Sum", "Mean", "LogSum", "Max", "Min", "Argmax", "Argmin")
        ),
    },
)


def _crop_nodes(numbers: Sequence[bool]) -> range:
    return range(2) if len(numbers) == 4 and numbers[2] else range(len(numbers))


def _crop(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"offsetX": values[0], "offsetY": values[1]} if len(values) == 2 else {}


register(
    Kind(
        "Crop",
        (2, 4),
        rules.unary,
        {"offsetX": AttributeSpec("int", -1), "offsetY": AttributeSpec("int", -1)},
        ndl=(
            NdlFunction(
                ("Crop",),
                "Crop",
                (2, 4),
                nodes=_crop_nodes,
                attributes=_crop,
                usage="Crop(input, like), with offsets or with two equivalent nodes behind",
            ),
        ),
    )
)
