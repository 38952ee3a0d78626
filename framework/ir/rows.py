"""Rules that decide whether an operator is row-wise; registrations of operators use them.

An operator is row-wise where row i of its outputs depends on row i of its row inputs alone. Applied
once to the rows of many steps, it gives the same numbers as applied step by step. `row_kinds.py`
applies the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..base.sizes.shape import ArraySpec, OperatorView

ArraySpecs = Mapping[str, ArraySpec]
RowsRule = Callable[[OperatorView, ArraySpecs, Collection[str]], bool]
"""(operator, shapes, variables whose first axis counts rows) -> whether the operator is row-wise.

A rule uses the operator's inputs and attributes alone, since it is applied to the gradient, too.
"""


def elementwise(op: OperatorView, specs: ArraySpecs, rows: Collection[str]) -> bool:
    """Rule of operators that broadcast as NumPy does: the rows are the first axis of the result."""
    shapes = {}
    for slot, names in op.inputs.items():
        if slot in op.entry.input_slots and not slot.endswith("_grad"):
            shapes.update((name, specs[name][0]) for name in names)
    rank = max((len(shape) for shape in shapes.values()), default=0)
    return rank > 0 and all(
        # Of fewer axes, or of size 1 in front, it is broadcast over the rows: the same for each.
        len(shape) == rank if name in rows else len(shape) < rank or shape[0] == 1
        for name, shape in shapes.items()
    )


def rows_of(*slots: str, but: tuple[str, ...] = (), rank: int = 1) -> RowsRule:
    """Rule: row by row in these slots, whose arrays have at least `rank` axes, if not in `but`."""

    def rule(op: OperatorView, specs: ArraySpecs, rows: Collection[str]) -> bool:
        mine = [name for slot in slots for name in op.inputs.get(slot, ())]
        others = [name for slot in but for name in op.inputs.get(slot, ())]
        return (
            all(name in rows and len(specs[name][0]) >= rank for name in mine)
            and not any(name in rows for name in others)
            and bool(mine)
        )

    return rule


def beside(attr: str, *, but: tuple[str, ...] = (), added: int = 0) -> RowsRule:
    """Rule of operators that work along the axes which `attr` names: row by row if not the first.

    `added`: axes that the result has more than x, if `attr` counts the result's axes.
    """
    by_rows = rows_of("x", but=but)

    def rule(op: OperatorView, specs: ArraySpecs, rows: Collection[str]) -> bool:
        if not by_rows(op, specs, rows):
            return False
        axes = op.attrs[attr]
        rank = len(specs[op.inputs["x"][0]][0]) + added
        axes = axes if isinstance(axes, tuple) else (axes,)
        return bool(axes) and all(axis % rank != 0 for axis in axes)

    return rule
