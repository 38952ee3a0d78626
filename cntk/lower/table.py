"""The table of lowering functions: which function lowers which operation.

    @lowers("Sigmoid")
    def lower_sigmoid(e: Emitter, node: Node) -> str:
        return e.op("sigmoid", {"x": e.value(node.inputs[0])})

A function emits operators for one node and returns the variable that holds its value. The modules
of `kinds/` fill the table; modules of other packages add to it the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from ...framework.base.errors import OpscopeError, UnknownOperatorError, nearest
from ..network.nodes.node import Node
from .emitter import Emitter, Lowering

TABLE: dict[str, Lowering] = {}


def lowers(*operations: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the function lowers nodes of these operations (`Kind.operation`).

    Raises:
        OpscopeError: another one does, which `TABLE` holds.
    """

    def register(function: Lowering) -> Lowering:
        for operation in operations:
            if operation in TABLE:
                raise OpscopeError(f"there is a function that lowers {operation!r} already")
            TABLE[operation] = function
        return function

    return register


def is_criterion(node: Node) -> bool:
    """Whether a node's operation is lowered with the criteria of `kinds/criteria.py`."""
    lowering = TABLE.get(node.operation)
    return lowering is not None and lowering.__module__.endswith("criteria")


def lower_node(e: Emitter, node: Node) -> str:
    """Emit the operators of a node whose inputs have been emitted.

    Raises:
        UnknownOperatorError: no function lowers its operation.
    """
    function = TABLE.get(node.kind.operation)
    if function is None:
        hint = nearest(node.operation, TABLE)
        raise node.error(f"nothing is known of how to run it{hint}", UnknownOperatorError)
    return node.run("the lowering", e.emit, node, function)
