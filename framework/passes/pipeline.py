"""Passes: functions from OpList to OpList, and the ordered lists that pipelines run.

A pass takes and leaves a valid net. `run_passes` is the only runner: it can verify and print
between passes, and leave single ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..base import settings
from ..ir.op_list import OpList, OpNode, SourceLocation
from ..ir.operation import Operator
from ..ir.registry import lookup


class Pass(Protocol):
    """A rewrite of nets: a small frozen dataclass; its fields are its options."""

    @property
    def name(self) -> str:
        """What the pass is called where it is left out, or named in an error."""
        ...

    def apply(self, net: OpList) -> OpList:
        """The rewritten net; `net` itself stays as it is."""
        ...


def run_passes(
    net: OpList,
    passes: Sequence[Pass],
    *,
    skip: Iterable[str] = (),
    after_each: Callable[[str, OpList], None] | None = None,
) -> OpList:
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


def expand_op(op: OpNode) -> list[OpNode]:
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
        written = inner.source if inner.source is not None and inner.source.file else op.source
        made += expand_op(inner.changed(role=op.role, source=written or SourceLocation()))
    return made


@dataclass(frozen=True)
class ExpandComposites:
    """Composite operators (`fc`, nested plain nets) become the operators they stand for."""

    name: str = "expand-composites"

    def apply(self, net: OpList) -> OpList:
        if all(lookup(op.type).expand is None for op in net.ops):
            return net
        out = net.copy()
        out.ops = [made for op in net.ops for made in expand_op(op)]
        return out


LOWERING: tuple[Pass, ...] = (
    ExpandComposites(),  # first and only: later passes, backward among them, see a flat list
)
"""What every net goes through before it is sealed."""


def lower(net: OpList) -> OpList:
    """The net in plain operators only."""
    return run_passes(net, LOWERING)
