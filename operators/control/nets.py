"""Helpers of operators that hold a net: their links, and gradients with respect to them."""

from __future__ import annotations

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.names import EMPTY
from ...framework.ir.registry import Slot

LINKS = ("x", "static", "boot")
"""Input slots: arrays that a net sees step by step, arrays that it sees whole, and the initial
values of its memories."""

LINK_GRADS = tuple(
    Slot(f"{slot}_grad", f"gradients of {slot}", duplicable=True, optional=True) for slot in LINKS
)


def check_links(s: ShapeArgs, title: str, **links: int) -> None:
    """Refuse slots that have not as many variables as the net has links there."""
    for slot, wanted in links.items():
        variables = s.op.inputs.get(slot) or s.op.outputs.get(slot, ())
        if len(variables) != wanted:
            s.fail(
                f"{title}: {wanted} links want as many variables in {slot!r}, not {len(variables)}"
            )


def link_grad_shapes(s: ShapeArgs) -> None:
    """Shape rule: each gradient is like the variable that it belongs to."""
    for slot in LINKS:
        # Not strict: a slot of gradients is empty where none of them is wanted.
        for source, name in zip(
            s.op.inputs.get(slot, ()), s.op.outputs.get(f"{slot}_grad", ()), strict=False
        ):
            if name != EMPTY:
                s.results[name] = s.input_spec(source)
                levels = s.input_offsets(source)
                if levels is not None:
                    s.result_offsets[name] = levels
