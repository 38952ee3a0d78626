"""Weights that several products of one run read, and that nothing in the run writes.

Such a factor is packed once, before the first step, as in the loop of a recurrent net. The loops of
nnet3 are laid out step by step in the list of operators, so that their weights are among these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...fusion.rows.prepared import Prepared
from .kept_factors import Kept
from .plan import Plan

_USES = 4
"""Products that must share a factor: packing takes as long as some 50 rows of a product save."""


def constant_factors(plan: Plan) -> list[str]:
    """The variables that so many products of a plan read that packing them pays."""
    return plan.steps.fact("constant factors", lambda: _constant_factors(plan))


def prepared_factors(arrays: Iterable[Any], kept: Kept | None) -> Prepared | None:
    """The memory for packed factors of a run; None where there are none.

    Args:
        arrays: of the constant factors. kept: those that stay packed from run to run.
    """
    left = [array for array in arrays if kept is None or not kept.holds(array)]
    if not left:
        return None
    prepared = Prepared(in_loop=False)
    prepared.declare(left)
    return prepared


def _constant_factors(plan: Plan) -> list[str]:
    uses, views = plan.steps.factors, plan.views
    written = plan.steps.written
    written |= {base for name, base in views.items() if name in written}
    given = set(plan.fed)  # may be another array in the next run
    return [
        name
        for name in plan.externals
        if uses[name] >= _USES and not (name in given or name in written or name in views)
    ]
