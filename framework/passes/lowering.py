"""The pipeline of every net before it is sealed: composite operators are expanded."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.op_list import OpList
from ..ir.operation import expand_op
from ..ir.registry import lookup
from .pipeline import Pass, run_passes


@dataclass(frozen=True)
class ExpandComposites:
    """Composite operators (`fc`, nested plain nets) become plain operators.

    Attributes:
        keep_whole: but not those that nets keep whole (`lstm`).
    """

    keep_whole: bool = False
    name: str = "expand-composites"

    def apply(self, net: OpList) -> OpList:
        if all(lookup(op.type).expand is None for op in net.ops):
            return net
        out = net.copy()
        out.ops = [one for op in net.ops for one in expand_op(op, keep_whole=self.keep_whole)]
        return out


LOWERING: tuple[Pass, ...] = (
    ExpandComposites(),  # first and only: later passes, backward among them, see a flat list
)
"""The passes that every net goes through before it is sealed."""
_KEEPING: tuple[Pass, ...] = (ExpandComposites(keep_whole=True),)


def lower(net: OpList, *, keep_whole: bool = False) -> OpList:
    """The net in plain operators only; with `keep_whole` also in those that nets keep whole."""
    return run_passes(net, _KEEPING if keep_whole else LOWERING)
