"""Another number of outputs: replaces the last affine layer of a CNTK network."""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import ShapeError, VariableError, nearest
from ....framework.editing.operations import NewOutput
from ..network import Network
from ..nodes.node import Node

_ALONG = ("Softmax", "LogSoftmax", "Pass", "Sigmoid", "Hardmax")
"""Operations between the affine layer and the output that any dimension suits."""


def new_output(network: Network, edit: NewOutput) -> str:
    """Replace the weights and bias that the output is computed with, and give labels of the old
    size the new one.

    Raises:
        VariableError: the output is no affine layer, or others also read its parameters.
    """
    output = _output(network, edit.output)
    if edit.size < 1:
        raise ShapeError(f"size={edit.size}: an output has at least one element")
    network.validate()
    times, bias = _affine(network, output)
    weights = times.inputs[0]
    before = (weights.shape or (0,))[0]
    fan_in = int(np.prod((weights.shape or ())[1:]))
    for parameter in [weights] if bias is None else [weights, bias]:
        readers = [node for node in network.nodes.values() if parameter in node.inputs]
        if len(readers) > 1:
            raise VariableError(f"{parameter.name} is read by {', '.join(n.name for n in readers)}")
    rng = np.random.default_rng(edit.seed)
    dtype = np.float64 if network.precision == "double" else np.float32
    shape = (edit.size, *(weights.shape or ())[1:])
    values = rng.normal(0.0, fan_in**-0.5, shape) if edit.random else np.zeros(shape)
    _set(weights, values.astype(dtype))
    if bias is not None:
        _set(bias, np.zeros((edit.size, *(1,) * (len(bias.shape or ()) - 1)), dtype))
    changed = _change_labels(network, times, before, edit.size)
    more = f"; labels {', '.join(changed)} too" if changed else ""
    return f"Replaced {weights.name}: {output.name} has {edit.size} rows, not {before}{more}."


def _set(parameter: Node, value: np.ndarray) -> None:
    parameter.value = np.asfortranarray(value)
    parameter.shape = value.shape
    parameter.attributes["shape"] = value.shape


def _output(network: Network, name: str) -> Node:
    outputs = {node.name: node for node in network.groups["output"]}
    if name:
        if name not in network:
            raise VariableError(f"no node is called {name!r}{nearest(name, network.nodes)}")
        return network.find(name)
    if len(outputs) != 1:
        raise VariableError(f"say which output: {', '.join(outputs) or 'none is marked as one'}")
    return next(iter(outputs.values()))


def _affine(network: Network, output: Node) -> tuple[Node, Node | None]:
    """The product that an output is computed with, and the bias, if there is one."""
    node = output
    bias = None
    while node.operation in _ALONG:
        node = node.inputs[0]
    if node.operation == "Plus":
        parameters = [child for child in node.inputs if child.is_parameter]
        if len(parameters) == 1:
            bias = parameters[0]
            node = next(child for child in node.inputs if child is not bias)
    if node.operation != "Times" or not node.inputs[0].is_parameter:
        raise VariableError(
            f"{output.name} is no affine layer, W * x or W * x + b with perhaps a softmax:"
            f" {node.name} is {node.operation}"
        )
    return node, bias


def _change_labels(network: Network, times: Node, before: int, size: int) -> list[str]:
    """Give the inputs that criteria compare with the output its new size; their names."""
    goals = [*network.groups["criterion"], *network.groups["evaluation"]]
    changed = []
    for goal in goals:
        nodes = network.below([goal])
        if times not in nodes:
            continue
        mine = set(network.below([times]))
        for node in nodes:
            shape = node.attributes.get("shape")
            if node.is_input and node not in mine and shape and shape[0] == before:
                node.attributes["shape"] = (size, *shape[1:])
                changed.append(node.name)
            elif node.kind.precompute and node not in mine and node.value is not None:
                node.value = None
                node.attributes["hasComputed"] = False
    return changed
