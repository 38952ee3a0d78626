"""Which nodes the names and patterns of an edit mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....framework.base.errors import VariableError
from ....framework.editing.operations import Edit
from ....framework.editing.patterns import name_matches, no_match
from ..network import Network
from ..nodes.node import Node


def nodes_of(network: Network, edit: Edit, names: Sequence[str]) -> list[Node]:
    """The nodes of names (in any case) and of patterns (which mind case), each once.

    Raises:
        VariableError: a name or pattern means none.
    """
    nodes: dict[int, Node] = {}
    for name in names:
        some = [network.find(name)] if name in network else []
        if not some and "*" in name:
            some = [node for node in network.sorted_nodes() if name_matches(node.name, name)]
        if not some and edit.must_match:
            raise VariableError(no_match(name, network.nodes, "node"))
        nodes.update((id(node), node) for node in some)
    return list(nodes.values())


def parameters_of(network: Network, edit: Edit, names: Sequence[str]) -> list[Node]:
    """The parameters among these nodes.

    Raises:
        VariableError: a name or pattern means no node, or there are no parameters among them.
    """
    parameters = [node for node in nodes_of(network, edit, names) if node.is_parameter]
    if not parameters and edit.must_match:
        known = (node.name for node in network.nodes.values() if node.is_parameter)
        raise VariableError(no_match(names[0] if names else "", known, "parameter"))
    return parameters


def new_parameter(network: Network, name: str, value: np.ndarray, rate: float = 1.0) -> Node:
    """Add a parameter with a value of any shape."""
    attributes = {"shape": value.shape, "init": "fixedValue", "value": 0.0}
    node = network.add("LearnableParameter", name, attributes=attributes)
    node.learning_rate = node.attributes["learningRateMultiplier"] = rate
    node.value = np.asfortranarray(value)
    return node
