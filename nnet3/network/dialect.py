"""A network as an op list in the `nnet3.*` dialect, and back.

One operator for each component, then one for each node, both in the network's order:

| operator | inputs | output | attributes |
|---|---|---|---|
| `nnet3.component` | a slot for each array | | `name`, `type`, one for each setting |
| `nnet3.input` | | the node | `dim` |
| `nnet3.descriptor` | `nodes`: those it may read | the node | `descriptor` |
| `nnet3.output` | `nodes` | the node | `descriptor`, `objective` |
| `nnet3.component_node` | `x`: its descriptor node | the node | `component` |
| `nnet3.dim_range` | `x`: the source node | the node | `dim_offset`, `dim` |

Arrays are variables `COMPONENT/ATTRIBUTE`: parameters if they are trained, states if not. The parts
of a CompositeComponent `NAME` are operators of a nested net, called `NAME/1`, `NAME/2` ...
These operators only describe; they do not run. `lower` the network to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.untrusted.values import INT32, plain, shown
from ...framework.ir import desc
from ...framework.ir.attributes.checked import attribute, only_variable
from ...framework.ir.desc import PARAMETER, STATE, make_op, make_var
from ...framework.ir.messages import FORMAT_VERSION, as_op_list, attr_value
from ...framework.ir.op_list import OpList, OpNode
from ..components import Component, new_component
from ..components.base.fields import Field
from ..language.config import ConfigLine
from ..language.descriptor_parse import parse_descriptor
from ..language.nodes import (
    COMPONENT,
    DESCRIPTOR,
    DIM_RANGE,
    INPUT,
    NetworkNode,
    drop_replaced,
    input_name,
    lines_of,
    nodes_from_lines,
)

if TYPE_CHECKING:
    from ...framework.ir.desc import NetDesc

DIALECT: Final = "nnet3"
_ARRAYS: Final = {"vector": 1, "matrix": 2}  # the rank of each kind


def to_desc(
    nodes: Iterable[NetworkNode],
    components: Mapping[str, Component],
    dims: Mapping[str, int],
    outputs: Iterable[str],
    name: str = "nnet3",
) -> OpList:
    """The description of a network; `dims` are the columns of its nodes."""
    metadata = {"dialect": DIALECT}
    net = OpList(name, metadata=metadata, format_version=FORMAT_VERSION)
    for component_name, component in components.items():
        _add_component(net.ops, component_name, component)
        for array_name, array, trained in _arrays(component_name, component):
            kind = PARAMETER if trained else STATE
            net.vars.append(make_var(array_name, array.shape, array.dtype, kind))
    outputs = set(outputs)
    for before, node in _with_previous(nodes):
        is_output = node.name in outputs
        kind = desc.OUTPUT if is_output else desc.TEMPORARY
        if node.kind == INPUT:
            kind = desc.INPUT
        net.vars.append(make_var(node.name, (-1, dims[node.name]), "float32", kind))
        net.ops.append(_node_op(node, before, is_output))
    return net


def arrays(components: Mapping[str, Component]) -> dict[str, np.ndarray]:
    """The arrays of all components by the names that `to_desc` gives them."""
    return {
        array_name: array
        for name, component in components.items()
        for array_name, array, _ in _arrays(name, component)
    }


def from_desc(
    net: OpList | NetDesc, values: Mapping[str, np.ndarray]
) -> tuple[list[NetworkNode], dict[str, Component]]:
    """Nodes and components of a description.

    Args:
        net: what `to_desc` made.
        values: the arrays by name.

    Raises:
        FormatError: an operator that is not of the dialect, or something that is missing.
    """
    net = as_op_list(net)
    nodes: list[NetworkNode] = []
    components: dict[str, Component] = {}
    for number, op in enumerate(net.ops):
        try:
            if op.type == "nnet3.component":
                name = attribute(op, "name", "string")
                if name in components:
                    raise FormatError(f"two components are called {name!r}")
                components[name] = _component(op, values)
            elif op.type in _NODES:
                nodes.append(_NODES[op.type](op))
                if op.type == "nnet3.component_node":
                    _check_fed(op, nodes)
            else:
                raise FormatError("it is not of the nnet3 dialect")
        except OpscopeError as error:
            raise FormatError(f"operator {number} ({plain(op.type)}): {error}") from error
    _check_nodes(nodes)
    return nodes, components


def _check_fed(op: OpNode, nodes: list[NetworkNode]) -> None:
    """Refuse a component node that does not stand after the descriptor that it reads."""
    before = nodes[-2] if len(nodes) > 1 else None
    wanted = input_name(nodes[-1].name)
    is_fed = before is not None and before.kind == DESCRIPTOR and before.name == wanted
    if not is_fed or only_variable(op.inputs, "x") != wanted:
        raise FormatError(f"the descriptor {shown(wanted)}, which it reads, must stand before it")


def _check_nodes(nodes: list[NetworkNode]) -> None:
    """Refuse nodes that no config describes, by describing them in a config."""
    lines = [ConfigLine(line, "nodes") for line in lines_of(nodes)]
    try:
        same = nodes_from_lines(drop_replaced([], lines)) == nodes
    except ShapeError as error:
        raise FormatError(str(error)) from error
    if not same:
        raise FormatError("its nodes do not match a config: names, texts or their order differ")


# Components


def _settings(component: Component) -> Iterator[tuple[Field, str]]:
    """The persistent attributes, each once, with the field that holds it."""
    seen: set[str] = set()
    for field in component.fields:
        for attr in field.attrs:
            if attr not in seen:
                seen.add(attr)
                yield field, attr


def _arrays(name: str, component: Component) -> Iterator[tuple[str, np.ndarray, bool]]:
    """(variable, array, whether it is trained) of a component and its parts."""
    for field, attr in _settings(component):
        value = getattr(component, attr)
        if field.kind.name in _ARRAYS:
            trained = component.is_updatable and attr in component.trained
            yield f"{name}/{attr}", value, trained
        elif field.kind.name == "components":
            for number, part in enumerate(value, 1):
                yield from _arrays(f"{name}/{number}", part)


def _add_component(ops: Any, name: str, component: Component) -> None:
    attrs: dict[str, Any] = {"name": name, "type": component.type}
    inputs: dict[str, str] = {}
    for field, attr in _settings(component):
        value = getattr(component, attr)
        if field.kind.name in _ARRAYS:
            inputs[attr] = f"{name}/{attr}"
        elif field.kind.name == "components":
            parts = OpList(name)
            for number, part in enumerate(value, 1):
                _add_component(parts.ops, f"{name}/{number}", part)
            attrs[attr] = parts
        else:
            value = [i for pair in value for i in pair] if field.kind.name == "pairs" else value
            attrs[attr] = attr_value(value, _TYPES[field.kind.name])
    ops.append(make_op("nnet3.component", inputs, {}, attrs))


# The type of attribute that holds a setting of each kind.
_TYPES: Final = {
    "int": "int",
    "float": "float",
    "double": "float",
    "bool": "bool",
    "flag": "bool",
    "ints": "ints",
    "pairs": "ints",
}


def _component(op: OpNode, values: Mapping[str, np.ndarray], is_part: bool = False) -> Component:
    component = new_component(attribute(op, "type", "string"))
    for field, attr in _settings(component):
        kind = field.kind.name
        if kind in _ARRAYS:
            setattr(component, attr, _array(op, attr, values, _ARRAYS[kind]))
        elif kind == "components":
            if is_part:
                raise FormatError(f"a {component.type} within a {component.type}")
            parts = attribute(op, attr, "net").ops
            setattr(component, attr, [_component(part, values, True) for part in parts])
        else:
            setattr(component, attr, _setting(op, attr, kind))
    try:
        component.after_read()
        component.check()
        component.check_settings()
    except (ValueError, ShapeError) as error:
        raise FormatError(f"{component.type}: {error}") from error
    return component


def _setting(op: OpNode, attr: str, kind: str) -> Any:
    value = attribute(op, attr, _TYPES[kind], *INT32)
    if kind == "pairs":
        if len(value) % 2:
            raise FormatError(f"the attribute {attr!r} holds {len(value)} numbers, not pairs")
        return list(zip(value[::2], value[1::2], strict=True))
    return list(value) if kind == "ints" else value


def _array(op: OpNode, attr: str, values: Mapping[str, np.ndarray], rank: int) -> np.ndarray:
    name = only_variable(op.inputs, attr)
    if name not in values:
        raise FormatError(f"the array {attr!r} is missing")
    array = np.asarray(values[name])
    if array.ndim != rank or array.dtype not in (np.float32, np.float64):
        raise FormatError(
            f"the array {attr!r} should be float32 or float64 with {rank} dimensions, not"
            f" {array.dtype} {list(array.shape)}"
        )
    return array.copy()


# Nodes


def _with_previous(
    nodes: Iterable[NetworkNode],
) -> Iterator[tuple[NetworkNode | None, NetworkNode]]:
    before = None
    for node in nodes:
        yield before, node
        before = node


def _node_op(node: NetworkNode, before: NetworkNode | None, is_output: bool) -> OpNode:
    out = {"out": node.name}
    if node.kind == INPUT:
        return make_op("nnet3.input", {}, out, {"dim": node.dim})
    if node.kind == DIM_RANGE:
        attrs: dict[str, Any] = {"dim_offset": node.dim_offset, "dim": node.dim}
        return make_op("nnet3.dim_range", {"x": node.source}, out, attrs)
    if node.kind == COMPONENT:
        assert before is not None
        attrs = {"component": node.component}
        return make_op("nnet3.component_node", {"x": before.name}, out, attrs)
    assert node.descriptor is not None
    inputs = {"nodes": list(dict.fromkeys(node.descriptor.node_names()))}
    attrs = {"descriptor": str(node.descriptor)}
    if is_output:
        return make_op("nnet3.output", inputs, out, attrs | {"objective": node.objective})
    return make_op("nnet3.descriptor", inputs, out, attrs)


def _out(op: OpNode) -> str:
    return only_variable(op.outputs, "out")


def _input_node(op: OpNode) -> NetworkNode:
    return NetworkNode(_out(op), INPUT, dim=attribute(op, "dim", "int", 1))


def _component_node(op: OpNode) -> NetworkNode:
    return NetworkNode(_out(op), COMPONENT, component=attribute(op, "component", "string"))


def _descriptor_node(op: OpNode) -> NetworkNode:
    descriptor = parse_descriptor(attribute(op, "descriptor", "string"))
    is_output = op.type == "nnet3.output"
    objective = attribute(op, "objective", "string") if is_output else "linear"
    return NetworkNode(_out(op), DESCRIPTOR, descriptor=descriptor, objective=objective)


def _dim_range_node(op: OpNode) -> NetworkNode:
    source = only_variable(op.inputs, "x")
    offset, dim = attribute(op, "dim_offset", "int", 0), attribute(op, "dim", "int", 1)
    return NetworkNode(_out(op), DIM_RANGE, dim=dim, source=source, dim_offset=offset)


_NODES: Final[dict[str, Callable[[OpNode], NetworkNode]]] = {
    "nnet3.input": _input_node,
    "nnet3.descriptor": _descriptor_node,
    "nnet3.output": _descriptor_node,
    "nnet3.component_node": _component_node,
    "nnet3.dim_range": _dim_range_node,
}
