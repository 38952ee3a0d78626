"""A network as an op list in the `cntk` dialect, and back.

Every node is an operator `cntk.OPERATION`, with its inputs in the slot `inputs`, its value in
`output`, and the attributes that differ from their defaults. Operators come in evaluation order,
delays before the nodes that they read. The value is a variable of the node's name: shapes have the
slowest axis first, as everywhere in opscope, so they are CNTK's backwards; a value with a
dynamic axis has the unknown number of samples in front. These operators describe the network;
lowering makes operators of them that run.

Precision and groups are in the metadata, under `cntk.precision` and `cntk.GROUP`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...framework.base.errors import AttributeTypeError, FormatError, OpscopeError
from ...framework.base.untrusted.values import json_value
from ...framework.ir.desc import (
    INPUT,
    OUTPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
    NetDesc,
    make_op,
    make_var,
)
from ...framework.ir.messages import as_op_list, attr_value, undamaged
from ...framework.ir.op_list import OpList, OpNode, SourceLocation, VarDecl
from ..base.text import Location, Source
from .catalog import kind
from .graph import GROUPS
from .network import Network
from .nodes.attributes import AttributeSpec
from .nodes.node import Node

DIALECT: Final = "cntk"
PREFIX: Final = "cntk."
_PRECISION: Final = "cntk.precision"
_TYPES = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "string": "string",
    "dims": "ints",
    "ints": "ints",
    "bools": "bools",
}
_LARGEST = 1 << 63  # sizes above are stored as the negative number of the same 64 bits


def to_desc(network: Network) -> OpList:
    """The network as an op list; shapes are in it if it is validated. Values of parameters are not:
    see `parameter_arrays`."""
    desc = OpList(network.name)
    nodes = list(network.order)
    known = {id(node) for node in nodes}
    nodes += [node for node in network.nodes.values() if id(node) not in known]
    for node in nodes:
        desc.vars.append(_variable(network, node))
        desc.ops.append(_operator(node))
    desc.metadata["dialect"] = DIALECT
    desc.metadata[_PRECISION] = network.precision
    for group, members in network.groups.items():
        if members:
            desc.metadata[PREFIX + group] = json.dumps([node.name for node in members])
    return desc


def _variable(network: Network, node: Node) -> VarDecl:
    kind = TEMPORARY
    if node.is_input:
        kind = INPUT
    elif node.is_parameter:
        kind = PARAMETER if node.learning_rate != 0 else STATE
    elif node.kind.precompute:
        kind = STATE
    elif node in network.groups["output"]:
        kind = OUTPUT
    shape = None
    if node.shape is not None:
        shape = [d or -1 for d in reversed(node.shape)]
        if node.axis is not None:
            shape.insert(0, -1)
    fields: dict[str, Any] = {}
    if node.is_parameter and node.learning_rate not in (0, 1):
        fields["lr_factor"] = node.learning_rate
    if node.axis is not None:
        fields["sequence_levels"] = 1
    dtype = "float64" if network.precision == "double" else "float32"
    return make_var(node.name, shape, dtype, kind, source=_source(node.location), **fields)


def _operator(node: Node) -> OpNode:
    attrs = {}
    for name, value in node.attributes.items():
        spec = node.kind.attributes.get(name)
        encoded = _encode(spec, value)
        is_default = (
            spec is not None and type(spec.default) is type(value) and spec.default == value
        )
        if encoded is not None and not is_default:
            attrs[name] = encoded
    if node.tags:
        attrs["tags"] = attr_value(node.tags, "strings")
    if node.learning_rate != 0:
        attrs["learningRate"] = attr_value(node.learning_rate, "float")
    if node.axis is not None:
        attrs["axisName"] = attr_value(node.axis.name, "string")
    inputs = [child.name for child in node.inputs if child is not None]
    return make_op(
        PREFIX + node.operation,
        {"inputs": inputs},
        {"output": node.name},
        attrs,
        source=_source(node.location),
    )


def _source(location: Location | None) -> SourceLocation | None:
    if location is None:
        return None
    return SourceLocation(location.source.name, location.line, location.column)


def _encode(spec: AttributeSpec | None, value: Any) -> Any:
    """The value as an attribute of an operator; None where there is none."""
    if spec is not None and spec.type in _TYPES:
        if spec.type == "int" and value >= _LARGEST:
            value -= 2 * _LARGEST
        return attr_value(value, _TYPES[spec.type])
    if value is None:
        return None
    if isinstance(value, Node):
        return attr_value(value.name, "string")
    if isinstance(value, Mapping):
        return attr_value(json.dumps(dict(value)), "string")
    return attr_value(value)


def _decode(name: str, spec: AttributeSpec | None, value: Any) -> Any:
    """The inverse of `_encode`."""
    value = undamaged(value)
    if spec is None or spec.type != "any":
        if (
            name in ("rngSeed", "rngOffset", "samplesSeen", "onlyUpToRow", "onlyUpToT")
            and value < 0
        ):
            return value + 2 * _LARGEST
        return value
    if name == "format" and isinstance(value, str):
        return json_value(value, f"attribute {name!r}")
    return value


def from_desc(desc: OpList | NetDesc, values: Mapping[str, np.ndarray] | None = None) -> Network:
    """The network of an op list in this dialect, not validated. `values` holds parameters as
    `parameter_arrays` gives them.

    Raises:
        FormatError: the net is of another dialect, or does not hold together.
    """
    desc = as_op_list(desc)
    if desc.metadata.get("dialect") != DIALECT:
        raise FormatError(f"net {desc.name!r} is not in the {DIALECT} dialect")
    network = Network(desc.name)
    network.precision = desc.metadata.get(_PRECISION, "float")
    try:
        _add_nodes(network, desc)
        for group in GROUPS:
            for name in json_value(desc.metadata.get(PREFIX + group, "[]"), f"the {group} nodes"):
                network.add_to_group(group, network.find(name))
    except (OpscopeError, AttributeError, TypeError, ValueError) as error:
        raise FormatError(f"net {desc.name!r}: {error}") from None
    for name, value in (values or {}).items():
        if name in network:
            network.find(name).value = np.asfortranarray(np.transpose(value))
    return network


def _add_nodes(network: Network, desc: OpList) -> None:
    sources: dict[str, Source] = {}
    inputs: dict[str, tuple[str, ...]] = {}
    for index, op in enumerate(desc.ops):
        outputs = op.outputs.get("output", ())
        if not op.type.startswith(PREFIX) or len(outputs) != 1:
            raise FormatError(f"operator %{index} ({op.type}) is not of the {DIALECT} dialect")
        attrs = dict(op.attrs)
        tags = attrs.pop("tags", ())
        rate = attrs.pop("learningRate", 0.0)
        attrs.pop("axisName", None)
        operation = op.type[len(PREFIX) :]
        node = _add_node(network, operation, outputs[0], attrs, _location(op.source, sources))
        node.tags = [str(tag) for tag in tags]
        node.learning_rate = rate
        inputs[node.name] = op.inputs.get("inputs", ())
    for name, names in inputs.items():
        if names:
            network.connect(network.find(name), [network.find(child) for child in names])


def _add_node(
    network: Network,
    operation: str,
    name: str,
    attrs: Mapping[str, Any],
    location: Location | None,
) -> Node:
    known = kind(operation)
    given = {}
    for key, attr in attrs.items():
        spec = known.attributes.get(key)
        if spec is None:
            raise AttributeTypeError(f"{name}: {operation} has no attribute {key!r}")
        given[key] = _decode(key, spec, attr)
    return network.add(operation, name, attributes=given, location=location)


def _location(source: SourceLocation | None, sources: dict[str, Source]) -> Location | None:
    if source is None or not source.file:
        return None
    text = sources.setdefault(source.file, Source(source.file, ""))
    return Location(text, source.line, source.column)


def parameter_arrays(network: Network) -> dict[str, np.ndarray]:
    """Values of parameters and statistics by node name, slowest axis first (C order), as opscope
    keeps arrays."""
    return {
        node.name: np.ascontiguousarray(np.transpose(node.value))
        for node in network.nodes.values()
        if node.value is not None
    }
