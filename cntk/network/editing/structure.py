"""Edits of what a network of CNTK's is made of: nodes that go, come, or read something else."""

from __future__ import annotations

from collections.abc import Mapping

from ....framework.base.errors import VariableError
from ....framework.editing.operations import (
    Connect,
    Cut,
    Given,
    Insert,
    Remove,
    RemoveOrphans,
    Replace,
)
from ..catalog import kind as find_kind
from ..network import Network
from ..nodes.node import Node
from .names import new_parameter, nodes_of

_GOALS = ("output", "criterion", "evaluation")


def remove(network: Network, edit: Remove) -> str:
    """Remove nodes; inputs that read them are left unconnected unless they are bypassed."""
    nodes = nodes_of(network, edit, edit.names)
    if edit.outputs_only:
        outputs = network.groups["output"]
        chosen = [node for node in nodes if node in outputs]
        if not chosen and edit.must_match:
            raise VariableError(f"no output is called {', '.join(edit.names)}")
        if chosen and len(chosen) == len(outputs):
            raise VariableError("this would remove all outputs")
        for node in chosen:
            network.remove_from_group("output", node)
        return f"Removed {len(chosen)} outputs; their nodes stay while others read them."
    for node in nodes if edit.bypass else ():
        source = _only_input(node)
        network.replace_inputs(node, source)
        for group, members in network.groups.items():
            if node in members and group == "output":
                network.add_to_group(group, source)
    network.delete(*nodes)
    return f"Removed {len(nodes)} nodes."


def _only_input(node: Node) -> Node:
    """The one input of a node that is no parameter.

    Raises:
        OpscopeError: there are several, or none.
    """
    values = [child for child in node.inputs if child is not None and not child.is_parameter]
    if len(values) != 1:
        names = ", ".join(child.name for child in values) or "none"
        raise node.error(f"one input is wanted that is no parameter; it has {names}", VariableError)
    return values[0]


def remove_orphans(network: Network, edit: RemoveOrphans) -> str:
    """Remove what neither outputs nor criteria need."""
    goals = [node for group in _GOALS for node in network.groups[group]]
    if not goals:
        raise VariableError("the network has neither outputs nor criteria, so all would go")
    needed = set(network.below(goals))
    gone = [
        node
        for node in network.nodes.values()
        if node not in needed
        and (edit.inputs or not node.is_input)
        and (edit.parameters if node.is_parameter else edit.nodes)
    ]
    network.delete(*gone)
    return f"Removed {len(gone)} orphan nodes."


def replace(network: Network, edit: Replace) -> str:
    """Put a node of another operation in the place of one, with the same inputs."""
    old = network.find(edit.name)
    kind = find_kind(edit.type)
    new = Node(old.name, kind, old.inputs, kind.complete(edit.settings), old.location, old.tags)
    network.check_count(new)
    before = old.operation
    network.replace(old, new)
    return f"Replaced node {old.name}: {before} to {new.operation}."


def insert(network: Network, edit: Insert) -> str:
    """Put a node after a node or before one; before a node it is in front of the one input that is
    no parameter."""
    if bool(edit.after) == bool(edit.before):
        raise VariableError("one of after= and before= says where the node is put")
    place = network.find(edit.after or edit.before)
    source = place if edit.after else _only_input(place)
    if isinstance(edit.inputs, Mapping):
        raise VariableError("inputs= of a node of CNTK is a list, in the order of its inputs")
    readers = [node for node in network.nodes.values() if source in node.inputs]
    inputs = [_given(network, edit.name, i, one) for i, one in enumerate(edit.inputs)] or [source]
    added = network.add(edit.type, edit.name, inputs, attributes=edit.settings)
    for reader in readers if edit.after else [place]:
        reader.connect([added if child is source else child for child in reader.inputs])
    if edit.after and place in network.groups["output"]:
        network.remove_from_group("output", place)
        network.add_to_group("output", added)
    where = f"after {edit.after}" if edit.after else f"before {edit.before}"
    return f"Inserted node {edit.name} ({added.operation}) {where}."


def _given(network: Network, name: str, number: int, one: Given) -> Node:
    """A node by its name, or a new parameter NAME.NUMBER."""
    if isinstance(one, str):
        return network.find(one)
    return new_parameter(network, f"{name}.{number}", one.astype(_dtype(network)))


def _dtype(network: Network) -> str:
    return "float64" if network.precision == "double" else "float32"


def connect(network: Network, edit: Connect) -> str:
    """Connect one input of a node, or all of them."""
    inputs = [network.find(name) for name in edit.inputs]
    nodes = nodes_of(network, edit, [edit.name])
    for node in nodes:
        if edit.number >= 0 or len(inputs) == len(node.inputs) == 1:
            network.set_input(node, max(edit.number, 0), inputs[0])
        else:
            network.connect(node, inputs)
    return f"Connected {len(nodes)} nodes to {', '.join(edit.inputs)}."


def cut(network: Network, edit: Cut) -> str:
    """Keep what lies between some nodes; criteria go where outputs are named."""
    before = len(network)
    network.validate()
    for name, origin in edit.inputs.items():
        node = network.find(origin)
        shape = node.shape or ()
        if node.axis is None:
            raise node.error("it has no samples, so it cannot become an input", VariableError)
        kind = find_kind("InputValue")
        source = Node(node.name, kind, (), kind.complete({"shape": shape}), node.location)
        axis = node.axis.origin
        if axis is not None:
            source.attributes["dynamicAxis"] = axis.name
        network.replace(node, source, keep_inputs=False)
        network.replace_in_groups(lambda group, it=source: [one for one in group if one is not it])
        network.add_to_group("feature", source)
        if name != origin:
            network.rename(source, name)
    if edit.outputs:
        nodes = [network.find(origin) for origin in edit.outputs.values()]
        for group in _GOALS:
            network.groups[group] = []
        for node in nodes:
            network.add_to_group("output", node)
        for name, node in zip(edit.outputs, nodes, strict=True):
            if name != node.name:
                network.rename(node, name)
    remove_orphans(network, RemoveOrphans(inputs=True))
    lost = [name for name in edit.inputs if name not in network]
    if lost:
        raise VariableError(
            f"no output depends on {edit.inputs[lost[0]]!r}, which was to be an input"
        )
    return f"Cut out {len(network)} of {before} nodes."
