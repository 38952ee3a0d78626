"""The part of a net that given outputs depend on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...proto import net_pb2 as pb
from ..base.errors import VariableError, nearest
from ..base.python.gc_disabled import gc_disabled
from ..ir.desc import FORWARD, INPUT
from ..ir.messages import as_op_list
from ..ir.op_list import OpList, OpNode


@gc_disabled()
def prune(net: OpList | pb.NetDesc, outputs: Iterable[str], given: Collection[str] = ()) -> OpList:
    """A net with just the forward operators and variables that `outputs` need.

    Operators that write PARAMETER or STATE variables go too, unless an output depends on them.

    Args:
        given: variables that are inputs from now on: what computes them is left out.

    Raises:
        VariableError: the net has no such output, or what computes a given variable is needed for
            another one.
    """
    net = as_op_list(net)
    names = {var.name for var in net.vars}
    wanted = set(outputs)
    for name in wanted:
        if name not in names:
            raise VariableError(f"the net has no variable {name!r}{nearest(name, names)}")
    bases = {var.name: var.view.base for var in net.vars if var.view is not None}
    wanted |= {bases[name] for name in wanted if name in bases}
    remaining: list[OpNode] = []
    used: set[str] = set()
    # Backwards: what an operator reads is wanted only if the operator itself is.
    for op in reversed(net.ops):
        if op.role != FORWARD:
            continue
        written = op.output_names()
        writes = [bases.get(name, name) for name in written] if bases else written
        needed = () if wanted.isdisjoint(writes) else wanted.intersection(writes).difference(given)
        if not needed:
            continue
        for name in set(writes).intersection(given) if given else ():
            raise VariableError(
                f"{name!r} cannot be given: {op.type} computes it beside {min(needed)!r}, which"
                " is wanted"
            )
        remaining.append(op)
        used.update(written)
        reads = op.input_names()
        wanted.update(reads)
        # A view is read through its base, which other operators write.
        if bases:
            wanted.update([bases.get(name, name) for name in reads])
    used |= wanted
    out = net.copy()
    out.ops = remaining[::-1]
    out.vars = [
        var.changed(kind=INPUT) if var.name in given else var
        for var in net.vars
        if var.name in used
    ]
    return out
