"""What of a CNTK network a module computes: its outputs and all that they read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....cntk.lower.table import TABLE
from ....cntk.network.network import Network
from ....cntk.network.nodes.analysis import Loop
from ....cntk.network.nodes.node import Node
from ....framework.base.errors import OpscopeError, VariableError, nearest
from ..folder import NotInTorchError


@dataclass
class Pruned:
    """A network in inference form.

    Attributes:
        outputs: the nodes whose values are wanted. inputs: those that they need.
        order: all nodes that they need, in the order of evaluation.
        loops: by node, the loop that it is in.
        timed: whether samples are steps of sequences, [N, T, ...]; else they are [N, ...].
    """

    outputs: list[Node]
    inputs: list[Node]
    order: list[Node]
    loops: dict[Node, Loop]
    timed: bool


def pruned(network: Network, outputs: Iterable[str] | None) -> Pruned:
    """The nodes that outputs need; criteria, labels and all else are left out.

    Args:
        network: validated.
        outputs: names of nodes; None: the output nodes of the network.

    Raises:
        VariableError: there is no such node, or no output node.
        NotInTorchError: inputs of several dynamic axes.
    """
    wanted = _outputs(network, outputs)
    needed: set[Node] = set()
    waiting = list(wanted)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [] if node.kind.precompute else node.inputs
    order = [node for node in network.order if node in needed]
    loops = {node: loop for loop in network.loops for node in loop.nodes if node in needed}
    inputs = [node for node in order if node.is_input]
    axes = {node.axis for node in inputs}
    if len(axes) > 1:
        names = ", ".join(node.name for node in inputs)
        raise NotInTorchError(f"the inputs {names} have sequences of different lengths")
    timed = any(node.kind.can_delay for node in order)
    return Pruned(wanted, inputs, order, loops, timed)


def _outputs(network: Network, names: Iterable[str] | None) -> list[Node]:
    if names is None:
        found = [node for node in network.groups["output"] if not _is_criterion(node)]
        if not found:
            raise VariableError("the network has no output nodes: name those that are wanted")
        return found
    if isinstance(names, str):
        raise OpscopeError("outputs is a list of names")
    found = []
    for name in names:
        node = network.nodes.get(name)
        if node is None:
            raise VariableError(f"there is no node {name!r}{nearest(name, network.nodes)}")
        found.append(node)
    if not found or len(set(found)) != len(found):
        raise OpscopeError("outputs wants at least one name, each once")
    return found


def _is_criterion(node: Node) -> bool:
    lowering = TABLE.get(node.operation)
    return lowering is not None and lowering.__module__.endswith("criteria")
