"""Reads and writes the attributes of a node in a binary model file of version 1 to 18.

Most kinds list their fields in file order (`Kind.file_fields`). The format of a few kinds changed
more between versions than a list can say: these have functions here. Source: the Load and Save
functions of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..network.nodes.attributes import FileField
from ..network.nodes.node import Kind, Node
from .stream import BinaryReader, BinaryWriter

CURRENT_VERSION = 18
OLDEST_WRITTEN = 14  # since then only random states and a reserved shape have come in
_LAYOUTS = ("HWC", "CHW")
_POOLS = ("none", "max", "average")
_DELAYS = ("PastValue", "FutureValue")
Values = dict[str, Any]


def image_layout(reader: BinaryReader) -> str:
    """An image layout stored as a number.

    Raises:
        FormatError: there is no such layout.
    """
    number = reader.number("int32")
    if number not in (0, 1):
        raise reader.error(f"image layout {number}", reader.offset - 4)
    return _LAYOUTS[number]


def put_image_layout(writer: BinaryWriter, layout: str) -> None:
    writer.number("int32", 1 if layout.lower() in ("chw", "cudnn") else 0)


def read_field(reader: BinaryReader, kind: str) -> Any:
    match kind:
        case "wide":
            return reader.wide()
        case "narrow":
            return reader.narrow()
        case "shape":
            return reader.shape()
        case "legacy shape":
            return reader.shape(legacy=True)
        case "bools":
            return reader.bools()
        case "layout":
            return image_layout(reader)
    return reader.number(kind)


def write_field(writer: BinaryWriter, kind: str, value: Any) -> None:
    match kind:
        case "wide":
            writer.wide(value)
        case "narrow":
            writer.narrow(value)
        case "shape" | "legacy shape":
            writer.shape(value)
        case "bools":
            writer.bools(value)
        case "layout":
            put_image_layout(writer, value)
        case _:
            writer.number(kind, value)


def _read_slice(reader: BinaryReader, version: int) -> Values:
    begin, height = reader.number("int64"), reader.number("int64")
    axis = reader.number("int32") if version >= 3 else 1
    return {"beginIndex": begin, "endIndex": begin + height, "axis": axis}


def _write_slice(writer: BinaryWriter, node: Node) -> None:
    values = node.attributes
    writer.number("int64", values["beginIndex"])
    writer.number("int64", values["endIndex"] - values["beginIndex"])
    writer.number("int32", values["axis"])


def _read_random(reader: BinaryReader, version: int) -> Values:
    values = {}
    if version >= 16:
        values["rngSeed"] = reader.number(
            "uint64"
        )  # unsigned long: 8 bytes where CNTK ran on Linux
        values["rngOffset"] = reader.number("uint64")
    return values


def _read_delay(reader: BinaryReader, version: int, element: str) -> Values:
    steps = reader.number("int32")
    if version > 3:
        shape = reader.shape()
    else:
        shape = (reader.number("uint64"),)
        reader.number("uint64")
    values = {"timeStep": steps, "shape": shape}
    if version >= 2:
        values["defaultHiddenActivation"] = reader.number(element)
    return values


def _write_delay(writer: BinaryWriter, node: Node, element: str) -> None:
    values = node.attributes
    writer.number("int32", values["timeStep"])
    writer.shape(node.shape or values["shape"] or (0,))
    writer.number(element, values["defaultHiddenActivation"])


def _read_legacy_reshape(reader: BinaryReader, version: int) -> Values:
    rows = reader.number("uint64")
    shape = reader.shape(legacy=True)
    if len(shape) != 3:
        raise reader.error(f"an image of rank {len(shape)}, not 3")
    channels, width, height = shape  # stored in the layout HWC, fastest axis first
    return {
        "numRows": rows,
        "imageWidth": width,
        "imageHeight": height,
        "imageChannels": channels,
        "imageLayout": "HWC",
    }


def _write_legacy_reshape(writer: BinaryWriter, node: Node) -> None:
    values = node.attributes
    image = [values[key] for key in ("imageChannels", "imageWidth", "imageHeight")]
    if values["imageLayout"].lower() in ("chw", "cudnn"):
        image = image[1:] + image[:1]
    stored = tuple(image) if any(image) else (1, values["numRows"], 1)
    if stored.count(0) == 1:
        known = 1
        for dim in stored:
            known *= dim or 1
        stored = tuple(dim or values["numRows"] // known for dim in stored)
    writer.number("uint64", values["numRows"])
    writer.shape(stored)


def _read_geometry(reader: BinaryReader, version: int, operation: str) -> Values:
    values: Values = {}
    if version >= 5:
        values["kernelShape"] = reader.shape()
        maps = reader.shape()
        values["strideShape"] = reader.shape()
        sharing = reader.bools()
        values["dimPadding"] = reader.bools()
        values["dimPadLower"] = reader.shape()
        values["dimPadUpper"] = reader.shape()
        start = reader.offset
        pool = reader.number("int32")
        if pool not in (0, 1, 2):
            raise reader.error(f"pooling {pool}", start)
        values["imageLayout"] = image_layout(reader)
        memory = reader.number("uint64")
        transpose = reader.number("bool") if version >= 9 else False
        if operation == "Convolution":
            values |= {"mapCount": maps, "dimSharing": sharing, "transpose": transpose}
            values["maxTempMemSizeInSamples"] = memory
        elif operation == "Pooling":
            values["pool"] = _POOLS[pool]
    return values


def _read_convolution(reader: BinaryReader, version: int) -> Values:
    values = _read_geometry(reader, version, "Convolution")
    if version >= 5:
        values["convolution2D"] = reader.number("bool")
        if version >= 18:
            reader.shape()  # reserved for dilation
        return values
    width, height, horizontal, vertical = (reader.number("uint64") for _ in range(4))
    maps = reader.number("uint32")
    return {
        "kernelShape": (width, height, 1),
        "mapCount": (maps,),
        "strideShape": (horizontal, vertical, 1),
        "dimSharing": (True,),
        "dimPadLower": (0,),
        "dimPadUpper": (0,),
        "imageLayout": image_layout(reader),
        "dimPadding": (reader.number("bool"),),
        "maxTempMemSizeInSamples": reader.number("uint64"),
        "convolution2D": True,
    }


def _write_geometry(writer: BinaryWriter, node: Node) -> None:
    values = node.attributes
    rank = len(values["kernelShape"])
    writer.shape(values["kernelShape"])
    writer.shape(values.get("mapCount", (1,)))
    writer.shape(values["strideShape"])
    writer.bools(values.get("dimSharing", (True,) * rank))
    writer.bools(values["dimPadding"])
    writer.shape(values["dimPadLower"])
    writer.shape(values["dimPadUpper"])
    writer.number("int32", _POOLS.index(values.get("pool", _pool_of(node))))
    put_image_layout(writer, values["imageLayout"])
    writer.number("uint64", values.get("maxTempMemSizeInSamples", 0))
    writer.number("bool", values.get("transpose", node.operation == "MaxUnpooling"))


def _pool_of(node: Node) -> str:
    return "max" if node.operation == "MaxUnpooling" else "none"


def _write_convolution(writer: BinaryWriter, node: Node, version: int) -> None:
    _write_geometry(writer, node)
    writer.number("bool", node.attributes["convolution2D"])
    if version >= 18:
        writer.shape((1,))


def _read_normalization(reader: BinaryReader, version: int) -> Values:
    values: Values = {}
    batches = 0
    if version >= 6:
        values["spatial"] = reader.number("bool")
        values["normalizationTimeConstant"] = reader.number("double")
        values["blendTimeConstant"] = reader.number("double")
        values["imageLayout"] = image_layout(reader)
        if version >= 13:
            values["samplesSeen"] = reader.number("uint64")
        else:
            batches = reader.number("uint64")
        values["epsilon"] = reader.number("double")
        values["useCntkEngine"] = reader.number("bool")
    else:
        start = reader.offset
        written, readable = reader.number("int32"), reader.number("int32")
        if readable > written or not 0x00010001 <= written or readable > 0x00010004:
            raise reader.error(f"batch normalization of version {written:#x}", start)
        reader.number("bool")  # whether it was for evaluation only
        values["spatial"] = reader.number("bool")
        constant = reader.number("double")  # before 1.4 an averaging factor, which is not used
        if written >= 0x00010004:
            values["normalizationTimeConstant"] = constant
        if written >= 0x00010002:
            values["imageLayout"] = image_layout(reader)
            batches = reader.number("uint64")
        if written >= 0x00010003:
            values["epsilon"] = reader.number("double")
            values["useCntkEngine"] = reader.number("bool")
    if version < 13:
        values["samplesSeen"] = 16 * batches  # CNTK's own guess of the size of minibatches
    return values


def _write_normalization(writer: BinaryWriter, node: Node) -> None:
    values = node.attributes
    writer.number("bool", values["spatial"])
    writer.number("double", values["normalizationTimeConstant"])
    writer.number("double", values["blendTimeConstant"])
    put_image_layout(writer, values["imageLayout"])
    writer.number("uint64", values["samplesSeen"])
    writer.number("double", values["epsilon"])
    writer.number("bool", values["useCntkEngine"])


def _read_noise_contrastive(reader: BinaryReader, version: int) -> Values:
    mode = reader.number("int32")
    if not 0 <= mode <= 2:  # files of before the mode was stored
        reader.offset -= 4
        mode = 2
    return {"evalMode": mode}


_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_RELU": "rnnReLU", "RNN_TANH": "rnnTanh"}


def _write_noise_contrastive(writer: BinaryWriter, node: Node) -> None:
    writer.number("int32", node.attributes["evalMode"])


def _read_rnn(reader: BinaryReader, version: int) -> Values:
    values = {
        "bidirectional": reader.number("uint64") != 0,
        "numLayers": reader.number("uint64"),
        "hiddenDims": reader.number("uint64"),
    }
    cell = reader.wide()
    values["recurrentOp"] = _CELLS.get(cell, cell)
    values["axis"] = reader.number("int32") if version >= 14 else -1
    return values


def _write_rnn(writer: BinaryWriter, node: Node) -> None:
    values = node.attributes
    writer.number("uint64", int(values["bidirectional"]))
    writer.number("uint64", values["numLayers"])
    writer.number("uint64", values["hiddenDims"])
    writer.wide(values["recurrentOp"])
    writer.number("int32", values["axis"])


FORMAT_FIELDS = (  # of Trace, as `write` has them
    FileField("isCategoryLabel", "bool", 1, False),
    FileField("labelMappingFile", "wide", 1, ""),
    FileField("isSparse", "bool", 1, False),
    FileField("transpose", "bool", 1, True),
    FileField("prologue", "narrow", 1, ""),
    FileField("epilogue", "narrow", 1, ""),
    FileField("sequenceSeparator", "narrow", 1, ""),
    FileField("sequencePrologue", "narrow", 1, ""),
    FileField("sequenceEpilogue", "narrow", 1, "\n"),
    FileField("elementSeparator", "narrow", 1, " "),
    FileField("sampleSeparator", "narrow", 1, "\n"),
    FileField("precisionFormat", "narrow", 1, ""),
)


def _read_trace(reader: BinaryReader, version: int) -> Values:
    values: Values = {"say": reader.wide()}
    values["logFirst"] = reader.number("uint64")
    values["logFrequency"] = reader.number("uint64")
    values["logGradientToo"] = reader.number("bool")
    values["format"] = {f.attribute: read_field(reader, f.type) for f in FORMAT_FIELDS}
    values["onlyUpToRow"] = reader.number("uint64")
    values["onlyUpToT"] = reader.number("uint64")
    return values


def _write_trace(writer: BinaryWriter, node: Node) -> None:
    values = node.attributes
    writer.wide(values["say"])
    writer.number("uint64", values["logFirst"])
    writer.number("uint64", values["logFrequency"])
    writer.number("bool", values["logGradientToo"])
    given = dict(values["format"] or {})
    if "type" in given:  # as configs say it
        given["isCategoryLabel"] = given["type"] == "category"
        given["isSparse"] = given["type"] == "sparse"
    for field in FORMAT_FIELDS:
        write_field(writer, field.type, given.get(field.attribute, field.before))
    writer.number("uint64", values["onlyUpToRow"])
    writer.number("uint64", values["onlyUpToT"])


READ: dict[str, Callable[[BinaryReader, int], Values]] = {
    "Slice": _read_slice,
    "LegacyReshape": _read_legacy_reshape,
    "Convolution": _read_convolution,
    "Pooling": lambda reader, version: _read_geometry(reader, version, "Pooling"),
    "MaxUnpooling": lambda reader, version: _read_geometry(reader, version, "MaxUnpooling"),
    "BatchNormalization": _read_normalization,
    "NCEBasedCrossEntropyWithSoftmax": _read_noise_contrastive,
    "OptimizedRNNStack": _read_rnn,
    "Trace": _read_trace,
    "Dropout": _read_random,
}
WRITE: dict[str, Callable[[BinaryWriter, Node], None]] = {
    "Slice": _write_slice,
    "LegacyReshape": _write_legacy_reshape,
    "Pooling": _write_geometry,
    "MaxUnpooling": _write_geometry,
    "BatchNormalization": _write_normalization,
    "NCEBasedCrossEntropyWithSoftmax": _write_noise_contrastive,
    "OptimizedRNNStack": _write_rnn,
    "Trace": _write_trace,
}


def read_attributes(reader: BinaryReader, kind: Kind, version: int, element: str) -> Values:
    """Read the attributes of a node of a kind; its value is not among them.

    Args:
        reader: at the first field.
        kind: the kind of the node.
        version: the version of the model file.
        element: the type of the file's values, float or double.

    Raises:
        FormatError: the file is cut off or damaged.
    """
    operation = kind.operation
    if operation in _DELAYS:
        return _read_delay(reader, version, element)
    if operation in READ:
        return READ[operation](reader, version)
    values = {}
    for field in kind.file_fields:
        if version >= field.since:
            values[field.attribute] = read_field(reader, field.type)
        else:
            values[field.attribute] = field.before
    return values


def write_attributes(writer: BinaryWriter, node: Node, element: str, version: int) -> None:
    """Store a node's attributes as a version from `OLDEST_WRITTEN` on has them."""
    if node.operation in _DELAYS:
        _write_delay(writer, node, element)
    elif node.operation == "Convolution":
        _write_convolution(writer, node, version)
    elif node.operation in WRITE:
        WRITE[node.operation](writer, node)
    else:
        for field in node.kind.file_fields:
            if field.since <= version:
                write_field(writer, field.type, node.attributes[field.attribute])
