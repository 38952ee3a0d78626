"""Parameters, inputs and axes: the nodes without inputs, and the look-up table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.kind import register, standard
from ..nodes.node import DynamicAxis, Kind, NdlFunction, Node

LAYOUTS = ("CHW", "HWC", "cudnn", "legacy")
IMAGE_LAYOUT = AttributeSpec(
    "string", "CHW", LAYOUTS, doc="CHW: [W x H x C], fastest first; HWC: [C x W x H]"
)
NDL_IMAGE_LAYOUT = AttributeSpec(
    "string", "HWC", LAYOUTS, doc="CHW: [W x H x C], fastest first; HWC: [C x W x H]"
)


def image_shape(width: int, height: int, channels: int, layout: str) -> tuple[int, int, int]:
    """The tensor of an image: [W x H x C] in the layout "CHW" (or "cudnn"), [C x W x H] in "HWC"
    (or "legacy"); CNTK names layouts from the slowest axis to the fastest."""
    if layout.lower() in ("chw", "cudnn"):
        return (width, height, channels)
    return (channels, width, height)


def _input(node: Node, final: bool) -> None:
    """The shape is given; the axis was set before the first pass."""


def _parameter_rule(node: Node, final: bool) -> None:
    node.axis = None


def _axis_rule(node: Node, final: bool) -> None:
    node.shape = (1, 1)
    if node.axis is None:
        node.axis = DynamicAxis(node.name, node)


def _environment(node: Node, final: bool) -> None:
    if node.attributes["propertyName"] != "isTraining":
        raise node.error(
            f"there is no property {node.attributes['propertyName']!r}, only isTraining"
        )
    node.axis = None
    node.shape = (1,)


def _look_up(node: Node, final: bool) -> None:
    rules.common_axis(node)
    table, words = node.inputs
    rows, columns = rules.matrix(table)
    wide = rules.size(words.shape)
    if final and node.axis is None:
        raise node.error("the words must be samples of a minibatch")
    if columns == 0 or (final and wide % columns):
        raise node.error(
            f"a sample of [{rules.text(words.shape)}] is not made of words of {columns} elements"
        )
    node.shape = (rows * (wide // columns),)


def _no_nodes(numbers: Sequence[bool]) -> range:
    return range(0)


_INPUT_ATTRIBUTES = {
    "shape": AttributeSpec("dims", (), doc="of a sample, fastest axis first"),
    "dynamicAxis": AttributeSpec(
        "any", "", doc="the name of a DynamicAxis, or that node; empty: the common one"
    ),
    "isImage": AttributeSpec(
        "bool", False, doc="whether width, height and channels give the shape"
    ),
    "imageWidth": AttributeSpec("int", 0, doc="of the image"),
    "imageHeight": AttributeSpec("int", 0, doc="of the image"),
    "imageChannels": AttributeSpec("int", 0, doc="of the image"),
    "imageLayout": IMAGE_LAYOUT,
}


def _finish_input(values: dict[str, Any]) -> None:
    width, height, channels = (
        values.pop(key) for key in ("imageWidth", "imageHeight", "imageChannels")
    )
    layout = values.pop("imageLayout")
    if values.pop("isImage"):
        values["shape"] = image_shape(width, height, channels, layout)


def _vector(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"shape": tuple(values), "dynamicAxis": options.get("dynamicAxis", "")}


def _image(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    width, height, channels = (int(v) for v in values[:3])  # a fourth, numImages, means nothing
    layout = options.get("imageLayout", "HWC")
    return {
        "shape": image_shape(width, height, channels, layout),
        "dynamicAxis": options.get("dynamicAxis", ""),
    }


_AXIS_OPTION = {"dynamicAxis": AttributeSpec("string", "")}
_IMAGE_OPTIONS = {**_AXIS_OPTION, "imageLayout": NDL_IMAGE_LAYOUT}

for _operation, _short, _doc in (
    ("InputValue", "Input", "An input that the reader fills, dense: a stream of its name."),
    (
        "SparseInputValue",
        "SparseInput",
        (
            "An input whose samples are sparse; `Times` and `LookupTable` read them"
            " without a dense copy."
        ),
    ),
):
    _image_names = (
        ("ImageInput", "Image") if _short == "Input" else ("SparseImageInput", "SparseImage")
    )
    register(
        Kind(
            _operation,
            (0, 0),
            _input,
            _INPUT_ATTRIBUTES,
            finish=_finish_input,
            doc=_doc,
            ndl=(
                NdlFunction(
                    (_operation, _short),
                    _operation,
                    at_least=1,
                    nodes=_no_nodes,
                    options=_AXIS_OPTION,
                    attributes=_vector,
                    usage=f"{_short}(dimension, ...)",
                ),
                NdlFunction(
                    _image_names,
                    _operation,
                    (3, 4),
                    nodes=_no_nodes,
                    options=_IMAGE_OPTIONS,
                    attributes=_image,
                    usage=f"{_image_names[0]}(width, height, channels)",
                ),
            ),
        )
    )

_PARAMETER_ATTRIBUTES = {
    "shape": AttributeSpec("dims", doc="fastest axis first; 0: inferred"),
    "learningRateMultiplier": AttributeSpec(
        "float", 1.0, doc="factor of SGD's learning rate; 0: constant"
    ),
    "init": AttributeSpec(
        "string",
        "",
        doc=(
            "fixedValue, fromFile, fromLiteral, zero, bilinear, or random: uniform,"
            " gaussian, glorotUniform, glorotNormal, heUniform, heNormal"
        ),
    ),
    "initValueScale": AttributeSpec("float", 1.0, doc="factor of the random numbers"),
    "value": AttributeSpec("float", 0.0, doc="with init = fixedValue"),
    "initValue": AttributeSpec("any", "", doc="a number for all elements; the same as value"),
    "initFilterRank": AttributeSpec(
        "int",
        0,
        doc=(
            "axes of a kernel, which count as inputs of each output for the spread of"
            " random numbers"
        ),
    ),
    "initOutputRank": AttributeSpec(
        "int", 1, doc="axes that are outputs; below 0: counted from the end"
    ),
    "initFromFilePath": AttributeSpec("string", "", doc="a text file, a row of the matrix a line"),
    "initFromLiteral": AttributeSpec("string", "", doc="such a text itself"),
    "initOnCPUOnly": AttributeSpec(
        "bool", True, doc="draw CNTK's numbers for the CPU; both give these here"
    ),
    "randomSeed": AttributeSpec("int", -1, doc="of this parameter; -1: its number in the run"),
    "kernelWidth": AttributeSpec("int", 0, doc="of init = bilinear"),
    "kernelHeight": AttributeSpec("int", 0, doc="of init = bilinear"),
}

_PARAMETER_OPTIONS = {
    "needGradient": AttributeSpec("bool", True, doc="false: learningRateMultiplier = 0"),
    "needsGradient": AttributeSpec("bool", True, doc="as needGradient"),
    "computeGradient": AttributeSpec("bool", True, doc="as needGradient"),
    "learningRateMultiplier": AttributeSpec("float", 1.0),
    "init": AttributeSpec("string", "uniform"),
    "initValueScale": AttributeSpec("float", 1.0),
    "value": AttributeSpec("float", 0.0),
    "initOnCPUOnly": AttributeSpec("bool", False),
    "randomSeed": AttributeSpec("int", -1),
    "kernelWidth": AttributeSpec("int", 0),
    "kernelHeight": AttributeSpec("int", 0),
    "initFromFilePath": AttributeSpec("string", ""),
}


def _parameter(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {"shape": tuple(values), "init": "uniform"}
    rate = options.get("learningRateMultiplier", 1.0)
    for key, value in options.items():
        if key in ("needGradient", "needsGradient", "computeGradient"):
            rate = rate if value else 0.0
        elif key in _PARAMETER_ATTRIBUTES:
            attributes[key] = value
    attributes["learningRateMultiplier"] = rate
    return attributes


def _image_parameter(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    *others, width, height, channels = (int(v) for v in values)
    image = image_shape(width, height, channels, options.get("imageLayout", "HWC"))
    return _parameter([*others, *image], options)


def _constant(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "shape": (options.get("rows", 1), options.get("cols", 1)),
        "init": "fixedValue",
        "value": values[0],
        "learningRateMultiplier": 0.0,
    }


register(
    Kind(
        "LearnableParameter",
        (0, 0),
        _parameter_rule,
        _PARAMETER_ATTRIBUTES,
        ndl=(
            NdlFunction(
                ("LearnableParameter", "Parameter"),
                "LearnableParameter",
                at_least=1,
                nodes=_no_nodes,
                options=_PARAMETER_OPTIONS,
                attributes=_parameter,
                usage="Parameter(rows, cols, init=uniform, initValueScale=1, value=0)",
            ),
            NdlFunction(
                ("ImageParameter",),
                "LearnableParameter",
                at_least=3,
                nodes=_no_nodes,
                options={**_PARAMETER_OPTIONS, "imageLayout": NDL_IMAGE_LAYOUT},
                attributes=_image_parameter,
                usage="ImageParameter(width, height, channels, init=uniform)",
            ),
            NdlFunction(
                ("Constant", "Const"),
                "LearnableParameter",
                (1,),
                nodes=_no_nodes,
                options={
                    "rows": AttributeSpec("int", 1, doc="of the constant"),
                    "cols": AttributeSpec("int", 1, doc="of the constant"),
                },
                attributes=_constant,
                usage="Constant(value, rows=1, cols=1)",
            ),
        ),
        reads=(),
        doc=(
            "A tensor that training changes, unless its `learningRateMultiplier` is"
            " 0. In BrainScript `ParameterTensor {dims, init = ...}`."
        ),
    )
)

standard(
    "DynamicAxis",
    0,
    _axis_rule,
    ndl=None,
    reads="",
    doc=(
        "A dynamic axis of its own: inputs that name it may have sequences of"
        " other lengths than other inputs."
    ),
)
standard(
    "EnvironmentInput",
    0,
    _environment,
    ndl=None,
    attributes={"propertyName": AttributeSpec("string", doc="isTraining")},
    file_fields=(FileField("propertyName", "wide"),),
    reads="",
    doc="A number that depends on the run: 1 while it trains, else 0.",
)
standard(
    "LookupTable",
    2,
    _look_up,
    reads="table words",
    doc=(
        "The columns of the table for one-hot words: a sample of several words"
        " gives their columns one below the other."
    ),
)
