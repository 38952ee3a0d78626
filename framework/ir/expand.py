"""Composite operators (`fc`, nested plain nets) and the plain operators that they stand for."""

from __future__ import annotations

from .op_list import OpNode, SourceLocation
from .operation import Operator
from .registry import lookup


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
