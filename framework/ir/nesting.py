"""How deep nets lie inside one another: a limit, as walks over them call themselves for each."""

from __future__ import annotations

from ..base.untrusted.values import check_nesting
from .op_list import OpList


def check_inner_nets(net: OpList) -> OpList:
    """The net itself.

    Raises:
        FormatError: nets lie inside one another beyond the limit `nesting`.
    """
    # Level by level and without calls: it is what makes the recursive walks elsewhere safe.
    level = [net]
    depth = 0
    while level:
        check_nesting(depth, f"net {net.name!r}: nets inside one another")
        inner = [one for each in level for op in each.ops for _, one in op.inner_nets()]
        for step in (step for each in level for step in each.steps):
            inner += [step.net] if step.child_net is None else [step.net, step.child_net]
        level = list({id(one): one for one in inner}.values())  # one net may stand in many places
        depth += 1
    return net
