"""CNTK's own binary models (`.dnn`, `.cmf`), versions 1 to 18 read, 14 to 18 written.

Source: ComputationNetwork::SaveToFileImpl and Read.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    FormatError,
    OpscopeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
)
from ...framework.base.files.atomic import PathLike, atomic_file
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import stem_of
from ..network.catalog import kind
from ..network.network import Network
from ..network.nodes import rules
from ..network.nodes.node import Node
from .file_fields import CURRENT_VERSION, OLDEST_WRITTEN, read_attributes, write_attributes
from .stream import BinaryReader, BinaryWriter

MARKER = "BCN"
_SECTIONS = (
    ("feature", "FeatureNodes"),
    ("label", "LabelNodes"),
    ("criterion", "CriterionNodes"),
    ("evaluation", "EvalNodes"),
    ("output", "OutputNodes"),
)
_PRECISIONS = ("float", "double")
_STATISTICS = ("Mean", "InvStdDev")


def is_model(data: bytes) -> bool:
    """Whether a file begins as a binary model of CNTK."""
    return data.startswith(MARKER.encode("utf-16-le") + b"\0\0")


def read_model(path: PathLike, precision: str = "float", validate: bool = True) -> Network:
    """The network of a model file.

    `precision` holds for files from before version 7, which do not state it. With `validate`
    shapes and axes of all nodes are set.

    Raises:
        FormatError: the file is missing, cut off, damaged or of a newer version; the byte offset is
            named.
        ShapeError: the network in it does not fit together.
    """
    data = read_file(path)
    network = parse_model(data, str(path), precision)
    if validate:
        validated(network, path)
    return network


def validated(network: Network, path: PathLike) -> None:
    """Set shapes and axes of all nodes of a model file; errors name the file."""
    try:
        network.validate()
    except OpscopeError as error:
        raise type(error)(f"{path}: {error}") from error


def parse_model(data: bytes, name: str = "model", precision: str = "float") -> Network:
    """The network of a model file's bytes, not validated.

    Raises:
        FormatError: as `read_model`.
    """
    reader = BinaryReader(data, name)
    reader.marker(MARKER)
    version = 1
    if reader.try_marker("BVersion"):
        version = reader.number("uint64")
        reader.marker("EVersion")
    if not 1 <= version <= CURRENT_VERSION:
        raise reader.error(f"model version {version}; versions 1 to {CURRENT_VERSION} can be read")
    network = Network(stem_of(name))
    network.precision = precision
    count = reader.count(4, "nodes")
    reader.marker("BNodeList")
    for _ in range(count):
        _read_node(reader, network, version)
    reader.marker("ENodeList")
    reader.marker("BRelation")
    for _ in range(count):
        _read_inputs(reader, network)
    reader.marker("ERelation")
    _read_groups(reader, network)
    reader.marker("ECN")
    _update_old(network, version)
    return network


def _read_node(reader: BinaryReader, network: Network, version: int) -> None:
    start = reader.offset
    if version >= 7:
        element = reader.wide() or network.precision
        if element not in _PRECISIONS:
            raise reader.error(f"precision {element!r}, not float or double", start)
        network.precision = element
    operation, name = reader.wide(), reader.wide()
    try:
        node = _make_node(reader, network, operation, name, version)
    except (AttributeTypeError, UnknownOperatorError, VariableError, SlotError) as error:
        raise reader.error(f"node {name!r}: {error}", start) from None
    _read_value(reader, node)


def _make_node(
    reader: BinaryReader, network: Network, operation: str, name: str, version: int
) -> Node:
    if operation == "LearnableParameter":
        rate, shape = _read_parameter(reader, version)
        node = network.add(operation, name, attributes={"shape": shape})
        node.learning_rate = node.attributes["learningRateMultiplier"] = rate
        return node
    if operation in ("InputValue", "SparseInputValue"):
        return _read_input(reader, network, operation, name, version)
    values = read_attributes(reader, kind(operation), version, network.precision)
    return network.add(operation, name, attributes=values)


def _read_parameter(reader: BinaryReader, version: int) -> tuple[float, tuple[int, ...]]:
    if version >= 3:
        rate = reader.number("float")
        return rate, reader.shape()
    rate = float(reader.number("bool"))
    rows, columns = reader.number("uint64"), reader.number("uint64")
    if rows:
        return rate, (rows, columns)
    shape = reader.shape(legacy=True)
    return rate, (*shape, columns) if columns > 1 else shape


def _read_input(
    reader: BinaryReader, network: Network, operation: str, name: str, version: int
) -> Node:
    rows = reader.number("uint64")
    reader.number("uint64")
    shape = reader.shape(legacy=True)
    if rows and rows != rules.size(shape):
        shape = (rows,)  # older files hold tensor shapes that mean nothing
    axis = ""
    if version >= 8:
        start = reader.offset
        axes = reader.number("uint32")
        if axes > 1:
            raise reader.error(f"an input with {axes} dynamic axes", start)
        axis = reader.wide() if axes else ""
    node = network.add(operation, name, attributes={"shape": shape, "dynamicAxis": axis})
    node.learning_rate = reader.number("float") if version >= 10 else 0.0
    return node


def _read_value(reader: BinaryReader, node: Node) -> None:
    start = reader.offset
    if node.operation in _STATISTICS:
        node.attributes["hasComputed"] = reader.number("bool")
        value = reader.matrix()
        node.value = value[:, 0] if value.shape[1] == 1 else value
    elif node.is_parameter:
        value = reader.matrix()
        shape = node.attributes["shape"]
        if value.size != rules.size(shape):
            raise reader.error(
                f"parameter {node.name!r}: a matrix of {value.shape[0]} x {value.shape[1]} for"
                f" [{rules.text(shape)}]",
                start,
            )
        node.value = value.reshape(shape, order="F")


def _read_inputs(reader: BinaryReader, network: Network) -> None:
    start = reader.offset
    name = reader.wide()
    names = [reader.wide() for _ in range(reader.count(2, "inputs"))]
    try:
        node = network.find(name)
        if names:
            network.connect(node, [network.find(child) for child in names])
    except (VariableError, SlotError) as error:
        raise reader.error(str(error), start) from None


def _read_names(reader: BinaryReader) -> list[tuple[int, str]]:
    return [(reader.offset, reader.wide()) for _ in range(reader.count(2, "names"))]


def _read_groups(reader: BinaryReader, network: Network) -> None:
    reader.marker("BRootNodes")
    while not reader.try_marker("ERootNodes"):
        for group, section in _SECTIONS:
            older = "CriteriaNodes" if group == "criterion" else section
            if reader.try_marker(f"B{section}") or reader.try_marker(f"B{older}"):
                for offset, name in _read_names(reader):
                    if name not in network:
                        raise reader.error(f"{group} node {name!r} is not in the network", offset)
                    network.add_to_group(group, network.find(name))
                reader.marker(f"E{section}", f"E{older}")
                break
        else:
            section = reader.marker("BNodesReqMultiSeqHandling", "BPairNodes")[1:]
            if _read_names(reader) and section == "PairNodes":
                raise reader.error("pair nodes are not supported")
            reader.marker(f"E{section}")


def _update_old(network: Network, version: int) -> None:
    """Bring the attributes of an older version to their present meaning."""
    for node in network.nodes.values():
        if node.operation == "OptimizedRNNStack" and version < 14 and len(node.inputs) == 2:
            node.inputs.reverse()
        if node.operation == "BatchNormalization" and version < 13 and len(node.inputs) == 5:
            deviation = node.inputs[4]
            if deviation is not None and deviation.value is not None:
                with np.errstate(divide="ignore"):  # it was kept as inverse standard deviation
                    variance = 1 / deviation.value**2
                deviation.value = variance + np.float32(node.attributes["epsilon"])


def write_model(network: Network, path: PathLike, version: int = CURRENT_VERSION) -> None:
    """Write a validated network as a model of `version`, 14 (which CNTK 1.7 reads) to 18.

    Raises:
        SaveError: the file cannot be written.
        VariableError: a parameter has no value yet.
    """
    parts = model_parts(network, version)
    with atomic_file(path) as file:
        file.writelines(parts)


def model_parts(network: Network, version: int = CURRENT_VERSION) -> list[bytes | memoryview]:
    """The bytes of a model file in pieces, which large parameters share their memory with.

    Raises:
        VariableError: a parameter has no value yet.
        FormatError: this version cannot be written.
    """
    return _written(network, version).parts


def format_model(network: Network, version: int = CURRENT_VERSION) -> bytes:
    """The bytes of a model file.

    Raises:
        VariableError: a parameter has no value yet.
        FormatError: this version cannot be written.
    """
    return _written(network, version).bytes()


def _written(network: Network, version: int) -> BinaryWriter:
    if not OLDEST_WRITTEN <= version <= CURRENT_VERSION:
        raise FormatError(
            f"models of version {version} are not written, only {OLDEST_WRITTEN} to"
            f" {CURRENT_VERSION}"
        )
    writer = BinaryWriter()
    writer.marker(MARKER)
    writer.marker("BVersion")
    writer.number("uint64", version)
    writer.marker("EVersion")
    nodes = network.sorted_nodes()
    writer.number("uint64", len(nodes))
    writer.marker("BNodeList")
    for node in nodes:
        writer.wide(network.precision)
        writer.wide(node.operation)
        writer.wide(node.name)
        _write_node(writer, node, network.precision, version)
    writer.marker("ENodeList")
    writer.marker("BRelation")
    for node in nodes:
        writer.wide(node.name)
        writer.number("uint64", len(node.inputs))
        for child in node.inputs:
            if child is not None:
                writer.wide(child.name)
    writer.marker("ERelation")
    writer.marker("BRootNodes")
    for group, section in _SECTIONS:
        writer.marker(f"B{section}")
        writer.number("uint64", len(network.groups[group]))
        for node in network.groups[group]:
            writer.wide(node.name)
        writer.marker(f"E{section}")
    writer.marker("ERootNodes")
    writer.marker("ECN")
    return writer


def _write_node(writer: BinaryWriter, node: Node, element: str, version: int) -> None:
    if node.is_parameter:
        writer.number("float", node.learning_rate)
        writer.shape(node.shape or node.attributes["shape"])
        writer.matrix(_typed(node, element))
    elif node.is_input:
        axis = node.attributes["dynamicAxis"]
        writer.number("uint64", 0)
        writer.number("uint64", 0)
        writer.shape(node.shape or node.attributes["shape"])
        writer.number("uint32", 1)
        writer.wide(axis.name if isinstance(axis, Node) else axis)
        writer.number("float", node.learning_rate)
    elif node.operation in _STATISTICS:
        writer.number("bool", node.attributes["hasComputed"])
        writer.matrix(_typed(node, element))
    else:
        write_attributes(writer, node, element, version)


def _typed(node: Node, element: str) -> np.ndarray:
    value = node.value
    if value is None:
        if node.is_parameter:
            raise node.error("the parameter has no value yet", VariableError)
        value = np.zeros(node.shape or (0,))
    return np.asarray(value, dtype=np.float64 if element == "double" else np.float32)
