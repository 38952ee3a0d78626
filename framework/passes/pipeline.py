"""Passes: functions from NetDesc to NetDesc, and the ordered lists that pipelines run.

A pass takes and leaves a valid net. `run_passes` is the only runner: it can verify and print
between passes, and leave single ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...proto import net_pb2 as pb
from ..base import settings
from ..ir.desc import clone
from ..ir.operation import Operator
from ..ir.registry import lookup


class Pass(Protocol):
    """A rewrite of nets: a small frozen dataclass; its fields are its options."""

    name: str

    def apply(self, net: pb.NetDesc) -> pb.NetDesc:
        """The rewritten net; `net` itself stays as it is."""
        ...


def run_passes(
    net: pb.NetDesc,
    passes: Sequence[Pass],
    *,
    skip: Iterable[str] = (),
    after_each: Callable[[str, pb.NetDesc], None] | None = None,
) -> pb.NetDesc:
    """Apply `passes` in order.

    Args:
        skip: names of passes to leave out.
        after_each: called with (pass name, net) after every pass: to print, dump or check.

    Raises:
        VariableError, OpscopeError: with OPSCOPE_VERIFY=1, a pass left an invalid net; it is named.
    """
    left_out = set(skip)
    for one in passes:
        if one.name in left_out:
            continue
        net = one.apply(net)
        if settings.is_on("OPSCOPE_VERIFY"):
            from .verify.verifier import verify

            verify(net, f"after pass {one.name}")
        if after_each is not None:
            after_each(one.name, net)
    return net


def expand_op(op: pb.OpDesc) -> list[pb.OpDesc]:
    """The operators that a composite one stands for, all the way down; a plain one itself.

    Raises:
        SlotError, AttributeTypeError: a composite one is wrongly used.
    """
    expand = lookup(op.type).expand
    if expand is None:
        return [op]
    Operator(op)  # checks slots and attributes, which errors then name as the caller wrote them
    made = []
    for inner in expand(op):
        inner.role = op.role
        if not inner.source.file:
            inner.source.CopyFrom(op.source)
        made += expand_op(inner)
    return made


@dataclass(frozen=True)
class ExpandComposites:
    """Composite operators (`fc`, nested plain nets) become the operators they stand for."""

    name: str = "expand-composites"

    def apply(self, net: pb.NetDesc) -> pb.NetDesc:
        if all(lookup(op.type).expand is None for op in net.ops):
            return net
        out = clone(net)
        del out.ops[:]
        for op in net.ops:
            out.ops.extend(expand_op(op))
        return out


LOWERING: tuple[Pass, ...] = (
    ExpandComposites(),  # first and only: later passes, backward among them, see a flat list
)
"""What every net goes through before it is sealed."""


def lower(net: pb.NetDesc) -> pb.NetDesc:
    """The net in plain operators only."""
    return run_passes(net, LOWERING)
