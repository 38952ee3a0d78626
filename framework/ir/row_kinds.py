"""Which outputs of an operator are computed row by row, and which are sums over rows.

The steps of a recurrent net, or the positions of a generated text, can run at once where every
operator is row-wise (see `rows.py`). The gradient of a row-wise operator is row-wise too with
respect to inputs that have rows, and a sum over rows with respect to all others (weights).
"""

from __future__ import annotations

from collections.abc import Collection

from ..base.sizes.shape import OperatorView
from .registry import REGISTERED
from .rows import ArraySpecs, elementwise

EACH, SUM = "each", "sum"


def row_kinds(
    op: OperatorView, specs: ArraySpecs, rows: Collection[str], fixed: Collection[str]
) -> dict[str, str] | None:
    """For each output variable EACH (row by row) or SUM (a sum over rows).

    Args:
        rows: variables whose first axis counts rows. fixed: variables that are one for all rows.

    Returns:
        None where the operator is not known to be row-wise.
    """
    # Numbers drawn for all steps at once are others than those drawn step by step; exchanges would
    # change in number and order.
    if op.entry.random or op.entry.world:
        return None
    if any(name not in rows and name not in fixed for name in op.input_vars()):
        return None
    forward = REGISTERED.get(op.type.removesuffix("_grad")) if op.type.endswith("_grad") else None
    entry = forward or op.entry
    rule = entry.rows or (elementwise if entry.expressions else None)
    if rule is None or not any(name in rows for name in op.input_vars()):
        return None
    if not rule(op, specs, rows):
        return None
    if forward is None:
        return dict.fromkeys(op.output_vars(), EACH)
    # A gradient that arrives without rows belongs to all of them at once.
    arriving = [f"{slot.name}_grad" for slot in forward.outputs]
    if any(name not in rows for slot in arriving for name in op.inputs.get(slot, ())):
        return None
    kinds = {}
    for slot, names in op.outputs.items():
        sources = op.inputs[slot.removesuffix("_grad")]
        for name, source in zip(names, sources, strict=True):
            kinds[name] = EACH if source in rows else SUM
    return kinds
