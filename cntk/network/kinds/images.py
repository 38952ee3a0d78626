"""Convolution, pooling and batch normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..nodes import geometry, rules
from ..nodes.attributes import AttributeSpec, Dims, FileField
from ..nodes.kind import register
from ..nodes.node import Kind, NdlFunction, Node
from .parameters import IMAGE_LAYOUT, NDL_IMAGE_LAYOUT

_GEOMETRY = {
    "kernelShape": AttributeSpec(
        "dims", doc=("of the kernel, fastest axis first; what an older form leaves out is inferred")
    ),
    "strideShape": AttributeSpec(
        "dims", (1,), doc="steps between windows along each axis; one value counts for all"
    ),
    "dimPadding": AttributeSpec(
        "bools",
        (True,),
        doc=("whether each axis is padded so that the result has ceil (input / stride) elements"),
    ),
    "dimPadLower": AttributeSpec(
        "dims", (0,), doc="padding in front of each axis, where dimPadding is false"
    ),
    "dimPadUpper": AttributeSpec(
        "dims", (0,), doc="padding at the end of each axis, where dimPadding is false"
    ),
    "imageLayout": IMAGE_LAYOUT,
}
_GEOMETRY_OPTIONS = {
    "stride": AttributeSpec("dims", (1,), doc="strideShape"),
    "autoPadding": AttributeSpec("bools", (True,), doc="dimPadding"),
    "lowerPad": AttributeSpec("dims", (0,), doc="dimPadLower"),
    "upperPad": AttributeSpec("dims", (0,), doc="dimPadUpper"),
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
        "kernelShape": (width, height, 1),  # the depth is the input's
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
            "mapCount": AttributeSpec(
                "dims", (0,), doc="output maps; 0: as many as the weight says"
            ),
            "dimSharing": AttributeSpec(
                "bools", (True,), doc="whether all places of an axis share one kernel"
            ),
            "transpose": AttributeSpec(
                "bool", False, doc="compute the gradient of a convolution: deconvolution"
            ),
            "maxTempMemSizeInSamples": AttributeSpec(
                "int", 0, doc="bounds CNTK's memory; it changes nothing here"
            ),
            "convolution2D": AttributeSpec(
                "bool", False, doc="the older form, on images with a matrix of weights"
            ),
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
                    "sharing": AttributeSpec("bools", (True,), doc="dimSharing"),
                    "transpose": AttributeSpec("bool", False),
                    "maxTempMemSizeInSamples": AttributeSpec("int", 0),
                    "zeroPadding": AttributeSpec("bool", False, doc="dimPadding of the older form"),
                },
                attributes=_convolution,
                usage="Convolution(weight, input, kernelShape, mapCount=, stride=, autoPadding=) or"
                " Convolution(weight, input, kernelWidth, kernelHeight, outputChannels,"
                " horizontalSubsample, verticalSubsample, zeroPadding=false)",
            ),
        ),
        reads=("weight", "x"),
        doc=(
            "Convolution with kernels over any axes, or with `transpose` its gradient"
            " (deconvolution). `weight` has an axis for the maps after the axes of the"
            " kernel; the older form takes a matrix [maps x kernel] and images [W x H"
            " x C]."
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
        {
            "pool": AttributeSpec("string", choices=("max", "average"), doc="what a window gives"),
            **_GEOMETRY,
        },
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
        reads=("x",),
        doc="The largest element, or the mean, of windows of x.",
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
        reads=("x", "pooled"),
        doc=(
            "Max pooling undone: each element of x where the largest element of its"
            " window of `pooled` stands, 0 elsewhere."
        ),
    )
)

_WINDOW = {
    "windowWidth": AttributeSpec("int", doc="of the window"),
    "windowHeight": AttributeSpec("int", doc="of the window"),
    "horizontalSubsample": AttributeSpec("int", doc="steps between windows along the width"),
    "verticalSubsample": AttributeSpec("int", doc="steps between windows along the height"),
}


def _window(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **dict(zip(_WINDOW, values, strict=True)),
        "imageLayout": options.get("imageLayout", "HWC"),
    }


for _name, _doc in (
    (
        "MaxPooling",
        (
            "The largest element of windows of images, without padding: windows that"
            " reach over the edge are left out."
        ),
    ),
    ("AveragePooling", "The mean of windows of images, without padding."),
):
    register(
        Kind(
            _name,
            (1, 1),
            geometry.window_pooling,
            {**_WINDOW, "imageLayout": IMAGE_LAYOUT},
            reads=("x",),
            doc=_doc,
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

register(
    Kind(
        "ROIPooling",
        (2, 2),
        geometry.region_pooling,
        {"roiOutputShape": AttributeSpec("dims", doc="parts of a region along width and height")},
        # CNTK's NDL takes the name, and cannot say the grid: the two numbers are of this package.
        ndl=(
            NdlFunction(
                ("ROIPooling",),
                "ROIPooling",
                (4,),
                nodes=lambda numbers: range(2),
                attributes=lambda values, options: {"roiOutputShape": tuple(values)},
                usage="ROIPooling(input, regions, width, height)",
            ),
        ),
        file_fields=(FileField("roiOutputShape", "shape"),),
        reads=("x", "regions"),
        doc=(
            "Each region of an image cut into a grid, and the largest element of each"
            " part taken; a region is (x, y, width, height) as fractions of the image."
        ),
    )
)


def _normalized(node: Node, final: bool) -> None:
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
        raise node.error('spatial normalization needs the layout imageLayout="CHW"')
    if node.attributes["blendTimeConstant"] < 0:
        raise node.error("blendTimeConstant must not be negative")


_NORMALIZATION = {
    "spatial": AttributeSpec(
        "bool",
        False,
        doc=(
            "one mean and variance for each channel, over all its places; else one for each element"
        ),
    ),
    "normalizationTimeConstant": AttributeSpec(
        "float",
        0.0,
        doc=(
            "samples over which the running statistics forget; SGD's"
            " batchNormalizationTimeConstant sets it"
        ),
    ),
    "blendTimeConstant": AttributeSpec(
        "float",
        0.0,
        doc=(
            "weight of the running statistics while training, in samples; SGD's"
            " batchNormalizationBlendTimeConstant sets it"
        ),
    ),
    "epsilon": AttributeSpec("float", 0.00001, doc="added to the variance"),
}


def _batch_normalization(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {key: options[key] for key in _NORMALIZATION if key in options}
    attributes["useCntkEngine"] = options.get("engine", "cntk") == "cntk"
    attributes["imageLayout"] = options.get("imageLayout", "CHW")
    return attributes


register(
    Kind(
        "BatchNormalization",
        (5, 5),
        _normalized,
        {
            **_NORMALIZATION,
            "useCntkEngine": AttributeSpec(
                "bool", True, doc="CNTK's formula; false: cuDNN's, which computes the same here"
            ),
            "samplesSeen": AttributeSpec(
                "int", 0, doc="samples that the running statistics hold, as a model keeps it"
            ),
            "imageLayout": IMAGE_LAYOUT,
        },
        whole=True,
        ndl=(
            NdlFunction(
                ("BatchNormalization",),
                "BatchNormalization",
                (5,),
                options={
                    **_NORMALIZATION,
                    "engine": AttributeSpec(
                        "string", "cntk", ("cntk", "cudnn"), doc="useCntkEngine"
                    ),
                    "imageLayout": IMAGE_LAYOUT,
                },
                attributes=_batch_normalization,
                usage="BatchNormalization(input, scale, bias, runMean, runVariance, spatial=false)",
            ),
        ),
        reads=("x", "scale", "bias", "mean", "variance"),
        doc=(
            "scale (x - m) / sqrt (v + epsilon) + bias. While training m and v are"
            " the minibatch's, and `mean` and `variance`, parameters that do"
            " not learn, follow them; else they are these two."
        ),
    )
)
