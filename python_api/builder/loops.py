"""Recurrent and recursive nets as operators of a NetBuilder's net."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.base.errors import VariableError
from ...framework.ir.desc import NetDesc, caller_location
from ...framework.ir.names import steps_name
from ...framework.ir.op_list import OpList, OpNode, SourceLocation
from ...framework.loops.recurrent.net import recurrent_op
from ...framework.loops.trees.net import recursive_op
from .methods import builder_method
from .net_builder import NetBuilder
from .var import Var


@builder_method
def recurrent_net(builder: NetBuilder, desc: OpList | NetDesc) -> tuple[Var, ...]:
    """Append a recurrent net over the outer names of its links.

    Args:
        desc: of type RECURRENT; its name, or a free one, tells this use from others.

    Returns:
        Handles of the out-links, then of final states, then of sums.

    Raises:
        OpscopeError: what the description holds is wrong, it reads a variable that is not
            there, or it writes one that is.
    """
    title = desc.name or "recurrent"
    op = recurrent_op(desc, builder.unique_name(steps_name(title)))
    return append_loop(builder, op, title, ("out", "final", "sum"), caller_location())


@builder_method
def recursive_net(builder: NetBuilder, desc: OpList | NetDesc) -> tuple[Var, ...]:
    """Append a recursive net over the outer names of its links.

    Args:
        desc: of type RECURSIVE; its name, or a free one, tells this use from others.

    Returns:
        Handles of the out-links, then of the states of roots.

    Raises:
        OpscopeError: what the description holds is wrong, it reads a variable that is not
            there, or it writes one that is.
    """
    title = desc.name or "recursive"
    op = recursive_op(desc, builder.unique_name(steps_name(title)))
    return append_loop(builder, op, title, ("out", "final"), caller_location())


def append_loop(
    builder: NetBuilder, op: OpNode, title: str, slots: Sequence[str], source: SourceLocation
) -> tuple[Var, ...]:
    """Append the operator of a recurrent or recursive net.

    Args:
        title: begins messages.
        slots: of the outputs to return.
        source: the user's line.

    Returns:
        Handles of the variables in `slots`.

    Raises:
        VariableError: the operator reads a variable that is not there, or writes one that is.
    """
    for name in op.input_names():
        builder.declared(name)
    for name in op.output_names():
        if name in builder.forward_net.vars:
            raise VariableError(f"{title}: variable {name!r} is defined already")
    builder.append_desc(op.changed(source=source))
    return tuple(Var(builder, name) for slot in slots for name in op.outputs.get(slot, ()))
