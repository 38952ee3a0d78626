"""Operators that touch the world outside: a pass leaves them, and their order, as they are.

Ranks that drop or exchange two of them would wait for each other for ever.
"""

from __future__ import annotations

from ...base.errors import OpscopeError
from ...ir.op_list import OpList
from ...ir.registry import lookup


def world_types(net: OpList) -> list[str]:
    """The types of the operators that touch the world outside, in order, inner nets included."""
    types = []
    for op in net.ops:
        if lookup(op.type).world:
            types.append(op.type)
        for _, inner in op.inner_nets():
            types += world_types(inner)
    for step in net.steps:
        types += world_types(step.net)
        if step.child_net is not None:
            types += world_types(step.child_net)
    return types


def check_world(before: OpList, after: OpList, where: str) -> None:
    """Refuse a rewritten net in which such an operator is gone or stands elsewhere.

    A pass may add some.

    Raises:
        OpscopeError: that is so; it is named.
    """
    # One pass over both lists: `in` on an iterator goes on after the last hit, so order counts.
    rest = iter(world_types(after))
    for number, op_type in enumerate(world_types(before)):
        if op_type not in rest:  # reads on to the next of this type
            raise OpscopeError(
                f"{where}: {op_type}, number {number} of the operators that touch the world"
                " outside, is gone or stands elsewhere"
            )
