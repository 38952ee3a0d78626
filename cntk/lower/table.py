"""Which function lowers which operation. Modules of this package fill the table; so do users.

    @lowers("Sigmoid")
    def lower_sigmoid(e: Emitter, node: Node) -> str:
        return e.op("sigmoid", x=e.value(node.inputs[0]))

A function emits operators for one node and returns the variable that holds its value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..network.nodes.node import Node

if TYPE_CHECKING:
    from .emitter import Emitter

Lowering: TypeAlias = "Callable[[Emitter, Node], str]"

TABLE: dict[str, Lowering] = {}


def lowers(*operations: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the function lowers nodes of these operations (`Kind.operation`)."""

    def register(function: Lowering) -> Lowering:
        for operation in operations:
            TABLE[operation] = function
        return function

    return register
