"""Expands composite operators (`fc`, nested plain nets) into plain operators."""

from __future__ import annotations

from .op_list import OpNode, SourceLocation
from .operation import Operator
from .registry import lookup


def expand_op(op: OpNode) -> list[OpNode]:
    """The plain operators that a composite one expands to, at all depths; a plain one itself.

    Raises:
        SlotError, AttributeTypeError: a composite operator is wrongly used.
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
