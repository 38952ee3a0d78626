"""Convolution, pooling and batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..nodes import geometry, rules
from ..nodes.attributes import AttributeSpec, Dims, FileField
from ..nodes.kind import register, standard
from ..nodes.node import Kind, NdlFunction, Node
from .parameters import IMAGE_LAYOUT, NDL_IMAGE_LAYOUT

_GEOMETRY = {
    "kernelShape": AttributeSpec("dims"),
    "strideShape": AttributeSpec("dims", (1,)),
    "dimPadding": AttributeSpec("bools", (True,)),
    "dimPadLower": AttributeSpec("dims", (0,)),
    "dimPadUpper": AttributeSpec("dims", (0,)),
    "imageLayout": IMAGE_LAYOUT,
}
_GEOMETRY_OPTIONS = {
    "stride": AttributeSpec("dims", (1,)),
    "autoPadding": AttributeSpec("bools", (True,)),
    "lowerPad": AttributeSpec("dims", (0,)),
    "upperPad": AttributeSpec("dims", (0,)),
    "imageLayout": IMAGE_LAYOUT,
}
_RENAMED = {
    "mapCount": "mapCount",
    "stride": "strideShape",
    "sharing": "dimSharing",
    "autoPadding": "dimPadding",
    "lowerPad": "dimPadLower",
    "upperPad": "dimPadUpper",
    "imageLayout": "imageLayout",
    "transpose": "transpose",
    "maxTempMemSizeInSamples": "maxTempMemSizeInSamples",
}


def _geometry(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {_RENAMED[key]: value for key, value in options.items() if key in _RENAMED}
    return {"kernelShape": values[-1], **renamed}


def _convolution(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    if len(values) == 1:
        return _geometry(values, options)
    width, height, maps, horizontal, vertical = (int(v) for v in values)
    return {
        "kernelShape": (width, height, 1),  # the depth is that of the input
        "mapCount": (1, 1, maps),
        "strideShape": (horizontal, vertical, 1),
        "dimSharing": (True,),
        "dimPadding": (options.get("zeroPadding", False),),
        "imageLayout": options.get("imageLayout", "HWC"),
        "maxTempMemSizeInSamples": options.get("maxTempMemSizeInSamples", 0),
        "convolution2D": True,
    }


register(
    Kind(
        "Convolution",
        (2, 2),
        geometry.convolution,
        {
            **_GEOMETRY,
            "mapCount": AttributeSpec("dims", (0,)),
            "dimSharing": AttributeSpec("bools", (True,)),
            "transpose": AttributeSpec("bool", False),
            "maxTempMemSizeInSamples": AttributeSpec("int", 0),
            "convolution2D": AttributeSpec("bool", False),
        },
        ndl=(
            NdlFunction(
                ("Convolution", "Convolve"),
                "Convolution",
                (3, 7),
                nodes=lambda numbers: range(2),
                options={
                    **_GEOMETRY_OPTIONS,
                    "mapCount": AttributeSpec("dims", (0,)),
                    "sharing": AttributeSpec("bools", (True,)),
                    "transpose": AttributeSpec("bool", False),
                    "maxTempMemSizeInSamples": AttributeSpec("int", 0),
                    "zeroPadding": AttributeSpec("bool", False),
                },
                attributes=_convolution,
                usage="Convolution(weight, input, kernelShape, mapCount=, stride=, autoPadding=) or"
                " Convolution(weight, input, kernelWidth, kernelHeight, outputChannels,"
                " horizontalSubsample, verticalSubsample, zeroPadding=false)",
            ),
        ),
    )
)


def _pooling(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"pool": values[0], **_geometry(values, options)}


register(
    Kind(
        "Pooling",
        (1, 1),
        geometry.pooling,
        {"pool": AttributeSpec("string", choices=("max", "average")), **_GEOMETRY},
        ndl=(
            NdlFunction(
                ("Pooling",),
                "Pooling",
                (3,),
                nodes=lambda numbers: range(1),
                options=_GEOMETRY_OPTIONS,
                attributes=_pooling,
                usage="Pooling(input, max, kernelShape, stride=, autoPadding=)",
            ),
        ),
    )
)
register(
    Kind(
        "MaxUnpooling",
        (2, 2),
        geometry.unpooling,
        _GEOMETRY,
        ndl=(
            NdlFunction(
                ("MaxUnpooling",),
                "MaxUnpooling",
                (3,),
                nodes=lambda numbers: range(2),
                options=_GEOMETRY_OPTIONS,
                attributes=_geometry,
                usage="MaxUnpooling(input, poolInput, kernelShape, stride=, autoPadding=)",
            ),
        ),
    )
)

_WINDOW = ("windowWidth", "windowHeight", "horizontalSubsample", "verticalSubsample")


def _window(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **dict(zip(_WINDOW, values, strict=True)),
        "imageLayout": options.get("imageLayout", "HWC"),
    }


for _name in ("MaxPooling", "AveragePooling"):
    register(
        Kind(
            _name,
            (1, 1),
            geometry.window_pooling,
            {**{key: AttributeSpec("int") for key in _WINDOW}, "imageLayout": IMAGE_LAYOUT},
            file_fields=(
                FileField("windowWidth", "uint32"),
                FileField("imageLayout", "layout"),
                FileField("windowHeight", "uint64"),
                FileField("horizontalSubsample", "uint64"),
                FileField("verticalSubsample", "uint64"),
            ),
            ndl=(
                NdlFunction(
                    (_name,),
                    _name,
                    (5,),
                    nodes=lambda numbers: range(1),
                    options={"imageLayout": NDL_IMAGE_LAYOUT},
                    attributes=_window,
                    usage=f"{_name}(input, {', '.join(_WINDOW)})",
                ),
            ),
        )
    )

standard(
    "ROIPooling",
    2,
    geometry.region_pooling,
    ndl=None,
    attributes={"roiOutputShape": AttributeSpec("dims")},
    file_fields=(FileField("roiOutputShape", "shape"),),
)


def _normalised(node: Node, final: bool) -> None:
    rules.common_axis(node)
    data, *parameters = node.inputs
    shape: Dims = data.shape or ()
    node.shape = shape
    for child in parameters:
        if child.shape == (0, 1) and shape and rules.size(shape):
            rules.infer(child, (shape[-1] if node.attributes["spatial"] else rules.size(shape), 1))
    if not final:
        return
    for child in parameters:
        if child.axis is not None:
            raise node.error(f"the parameter {child.name} must not have a dynamic axis")
        if child.shape != parameters[0].shape:
            raise rules.incompatible(node, parameters[0], child)
    if node.attributes["spatial"] and not geometry.is_chw(node):
        raise node.error('spatial normalisation needs the layout imageLayout="CHW"')
    if node.attributes["blendTimeConstant"] < 0:
        raise node.error("blendTimeConstant must not be negative")


_NORMALISATION = {
    "spatial": AttributeSpec("bool", False),
    "normalizationTimeConstant": AttributeSpec("float", 0.0),
    "blendTimeConstant": AttributeSpec("float", 0.0),
    "epsilon": AttributeSpec("float", 0.00001),
}


def _batch_normalization(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {key: options[key] for key in _NORMALISATION if key in options}
    attributes["useCntkEngine"] = options.get("engine", "cntk") == "cntk"
    attributes["imageLayout"] = options.get("imageLayout", "CHW")
    return attributes


register(
    Kind(
        "BatchNormalization",
        (5, 5),
        _normalised,
        {
            **_NORMALISATION,
            "useCntkEngine": AttributeSpec("bool", True),
            "samplesSeen": AttributeSpec("int", 0),
            "imageLayout": IMAGE_LAYOUT,
        },
        whole=True,
        ndl=(
            NdlFunction(
                ("BatchNormalization",),
                "BatchNormalization",
                (5,),
                options={
                    **_NORMALISATION,
                    "engine": AttributeSpec("string", "cntk", ("cntk", "cudnn")),
                    "imageLayout": IMAGE_LAYOUT,
                },
                attributes=_batch_normalization,
                usage="BatchNormalization(input, scale, bias, runMean, runVariance, spatial=false)",
            ),
        ),
    )
)
