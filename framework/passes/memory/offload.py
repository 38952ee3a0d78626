"""Offloading: variables wait in the host's memory between two of their uses.

A copy to the host begins after the last use before the gap, and what follows may take the memory
some operators later; the copy back begins some operators before the next use, so that copies and
other work overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from ...ir.desc import BACKWARD, FORWARD, OPTIMIZE, make_op, make_var
from ...ir.names import (
    FROM_HOST_START_OP,
    FROM_HOST_WAIT_OP,
    TO_HOST_START_OP,
    TO_HOST_WAIT_OP,
    again_name,
    host_name,
)
from ...ir.op_list import OpList, OpNode
from ...ir.operation import Operator
from .recompute import Rewritten

_AHEAD = 6
"""Operators for which a copy has time: about a layer."""


def moved(given: Rewritten, chosen: Mapping[str, int]) -> Rewritten:
    """A net in which some variables wait on the host.

    Args:
        chosen: variables, each with the number of the first operator that reads it after the gap.
            One without such a gap stays.
    """
    if not chosen:
        return given
    net, origins, opens = given
    places = [index for index, here in enumerate(opens) if here]
    uses: dict[str, list[int]] = {name: [] for name in chosen}
    for index, node in enumerate(net.ops):
        op = Operator(node, index)
        for name in dict.fromkeys((*op.value_reads(), *op.output_vars())):
            if name in uses:
                uses[name].append(index)
    declared = {var.name: var for var in net.vars}
    before: dict[int, list[OpNode]] = {}  # operator -> what comes before it
    begins: dict[str, int] = {}  # variable -> the operator from which it is the one that came back
    added = []
    for name, own in uses.items():
        last = max((p for p in own if origins[p] < chosen[name]), default=-1)
        first = min((p for p in own if origins[p] >= chosen[name]), default=-1)
        # What updates read may lie in another run of the net.
        if last < 0 or first < 0 or net.ops[first].role == OPTIMIZE:
            continue
        # Places between the two uses, where operators may be put.
        gap = places[bisect_right(places, last) : bisect_right(places, first)]
        if len(gap) < 3:
            continue
        begins[name] = first = gap[-1]
        away = gap[min(_AHEAD, len(gap) // 2)]
        back = max(gap[-1 - min(_AHEAD, len(gap) - 1)], away)
        ticket, lent = host_name(name, "ticket"), host_name(name, "lent")
        here = make_op(TO_HOST_START_OP, {"x": name}, {"ticket": ticket})
        _put(net, before, gap[0], here)
        waited = {"waited": host_name(name, "waited")}
        _put(net, before, away, make_op(TO_HOST_WAIT_OP, {"x": name, "ticket": ticket}, waited))
        reads = {"like": name, "ticket": ticket}
        _put(net, before, back, make_op(FROM_HOST_START_OP, reads, {"lent": lent}))
        reads = {"x": lent, "ticket": ticket}
        out = {"out": again_name(name)}
        _put(net, before, first, make_op(FROM_HOST_WAIT_OP, reads, out))
        added += [make_var(n, (), "int64") for n in (ticket, waited["waited"])]
        if name in declared:
            added += [declared[name].changed(name=n) for n in (lent, again_name(name))]
    ops: list[OpNode] = []
    numbers: list[int] = []
    more: list[bool] = []
    renames: dict[str, str] = {}
    starts: dict[int, list[str]] = {}
    for name, first in begins.items():
        starts.setdefault(first, []).append(name)
    for index, node in enumerate(net.ops):
        for one in before.get(index, ()):
            ops.append(one)
            numbers.append(origins[index])
            more.append(True)
        renames.update((name, again_name(name)) for name in starts.get(index, ()))
        ops.append(node.renamed(renames))
        numbers.append(origins[index])
        more.append(opens[index])
    result = net.copy()
    result.ops = ops
    result.vars = [*net.vars, *added]
    return Rewritten(result, numbers, more)


def _put(net: OpList, before: dict[int, list[OpNode]], index: int, op: OpNode) -> None:
    role = BACKWARD if net.ops[index].role == BACKWARD else FORWARD
    before.setdefault(index, []).append(op.changed(role=role))
