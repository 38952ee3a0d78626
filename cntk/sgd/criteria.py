"""The nodes that a training minimizes and shows."""

from __future__ import annotations

from ...framework.base.errors import VariableError, nearest
from ..network.network import Network
from ..network.nodes import rules
from ..network.nodes.node import Node
from .options import SgdOptions


def criteria_of(network: Network, options: SgdOptions) -> tuple[list[Node], list[Node]]:
    """The training criteria, of which the first is minimized, and the other nodes to evaluate.

    Raises:
        VariableError: there is no criterion, a name is unknown, or a node is no number.
    """
    criteria = _named(network, "trainCriterionNodeName", options.criterion)
    criteria = criteria or network.groups["criterion"]
    evaluations = _named(network, "evalCriterionNodeName", options.evaluation)
    evaluations = evaluations or network.groups["evaluation"]
    if not criteria:
        raise VariableError("TrainOrAdaptModel: No criterion node was specified.")
    return criteria, list(dict.fromkeys(n for n in evaluations if n not in criteria))


def _named(network: Network, parameter: str, name: str) -> list[Node]:
    """The node that a parameter names, if it names one."""
    if not name:
        return []
    if name not in network:
        known = [node.name for node in network.nodes.values()]
        raise VariableError(f"{parameter}: no node is called {name!r}{nearest(name, known)}")
    return [_number(network.find(name))]


def _number(node: Node) -> Node:
    if node.axis is not None or rules.size(node.shape) != 1:
        raise node.error("it is not a valid training or eval criterion node", VariableError)
    return node
