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
from typing import Any, Final

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.ir import desc
from ...framework.ir.desc import PARAMETER, STATE, NetDesc, make_op, make_var
from ...framework.ir.messages import FORMAT_VERSION, as_op_list, attr_value, undamaged
from ...framework.ir.op_list import OpList, OpNode, SlotNames
from ..components import Component, new_component
from ..components.base.fields import Field
from ..language.descriptor_parse import parse_descriptor
from ..language.nodes import COMPONENT, DESCRIPTOR, DIM_RANGE, INPUT, NetworkNode

DIALECT: Final = "nnet3"
_ARRAYS: Final = ("vector", "matrix")


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
                name = _attr(op, "name")
                if name in components:
                    raise FormatError(f"two components are called {name!r}")
                components[name] = _component(op, values)
            elif op.type in _NODES:
                nodes.append(_NODES[op.type](op))
            else:
                raise FormatError("it is not of the nnet3 dialect")
        except OpscopeError as error:
            raise FormatError(f"operator {number} ({op.type}): {error}") from error
    return nodes, components


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


def _component(op: OpNode, values: Mapping[str, np.ndarray]) -> Component:
    component = new_component(_attr(op, "type"))
    slots = op.inputs
    for field, attr in _settings(component):
        if field.kind.name in _ARRAYS:
            if attr not in slots or slots[attr][0] not in values:
                raise FormatError(f"the array {attr!r} is missing")
            setattr(component, attr, np.array(values[slots[attr][0]]))
        elif field.kind.name == "components":
            parts = _attr(op, attr).ops
            setattr(component, attr, [_component(part, values) for part in parts])
        else:
            value = _attr(op, attr)
            if field.kind.name == "pairs":
                value = zip(value[::2], value[1::2], strict=True)
            setattr(component, attr, list(value) if _TYPES[field.kind.name] == "ints" else value)
    component.after_read()
    try:
        component.check()
    except ValueError as error:
        raise FormatError(f"{component.type}: {error}") from error
    return component


def _attr(op: OpNode, name: str) -> Any:
    if name not in op.attrs:
        raise FormatError(f"the attribute {name!r} is missing")
    value = op.attrs[name]
    return undamaged(value)


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
    return _slot(op.outputs, "out")


def _slot(slots: SlotNames, name: str) -> str:
    if len(slots.get(name, ())) != 1:
        raise FormatError(f"the slot {name!r} must hold one variable")
    return slots[name][0]


def _descriptor_node(op: OpNode) -> NetworkNode:
    descriptor = parse_descriptor(_attr(op, "descriptor"))
    objective = _attr(op, "objective") if op.type == "nnet3.output" else "linear"
    return NetworkNode(_out(op), DESCRIPTOR, descriptor=descriptor, objective=objective)


def _dim_range_node(op: OpNode) -> NetworkNode:
    source = _slot(op.inputs, "x")
    offset, dim = _attr(op, "dim_offset"), _attr(op, "dim")
    return NetworkNode(_out(op), DIM_RANGE, dim=dim, source=source, dim_offset=offset)


_NODES: Final[dict[str, Callable[[OpNode], NetworkNode]]] = {
    "nnet3.input": lambda op: NetworkNode(_out(op), INPUT, dim=_attr(op, "dim")),
    "nnet3.descriptor": _descriptor_node,
    "nnet3.output": _descriptor_node,
    "nnet3.component_node": lambda op: NetworkNode(
        _out(op), COMPONENT, component=_attr(op, "component")
    ),
    "nnet3.dim_range": _dim_range_node,
}
