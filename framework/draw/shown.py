"""What nets, builders and loaded nets show of themselves: a summary, a picture in a notebook."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir.desc import FORWARD
from ..ir.op_list import OpList

if TYPE_CHECKING:
    from .summary import Summary

MOST_DRAWN = 150
"""Forward operators up to which a notebook draws a net."""

_SMALLEST = 0.6
"""Scale down to which a picture shrinks to the width of a notebook; below, it is scrolled."""


class Shown(abc.ABC):
    """Something with an op list that can show itself."""

    @property
    @abc.abstractmethod
    def op_list(self) -> OpList:
        """What is shown."""

    def summary(
        self, shapes: Mapping[str, Sequence[int]] | None = None, *, batch: int | None = None
    ) -> Summary:
        """Operators, shapes, parameters and what they take in memory; `print` it.

        Args:
            shapes: of inputs, by name, in place of the declared ones.
            batch: what other unknown dimensions of inputs are taken as.

        Raises:
            VariableError: `shapes` names no input.
            ShapeError: shapes that do not fit.
        """
        from .summary import summarize  # programs that show nothing start without it

        return summarize(self.op_list, shapes, batch)

    def _repr_svg_(self) -> str | None:
        """The forward operators as a picture, for notebooks; None where they are too many."""
        return picture(self.op_list)

    def _repr_html_(self) -> str:
        """A picture and the summary, for notebooks."""
        return page(self.op_list)


def picture(net: OpList) -> str | None:
    """The forward operators of a net as SVG; None where they are too many to look at."""
    from .pictures import to_svg  # as above

    forward = net.copy()
    forward.ops = [op for op in net.ops if op.role == FORWARD]
    used = {name for op in forward.ops for name in (*op.input_names(), *op.output_names())}
    forward.vars = [var for var in net.vars if var.name in used]
    inside = sum(len(inner.ops) for op in forward.ops for _, inner in op.inner_nets())
    return to_svg(forward, _SMALLEST) if len(forward.ops) + inside <= MOST_DRAWN else None


def page(net: OpList) -> str:
    """HTML of a net: its picture where it is small enough, and its summary."""
    from .summary import summarize  # as above

    drawn = picture(net)
    if drawn is None:
        above = (
            f"<p>More than {MOST_DRAWN} operators: no picture here."
            " <code>opscope.view(net)</code> shows them on a page;"
            " <code>opscope show FILE --svg OUT</code> draws a saved net.</p>"
        )
    else:
        above = f'<div style="overflow:auto;max-width:100%;max-height:90em">{drawn}</div>'
    return f"<div>{above}{summarize(net)._repr_html_()}</div>"
