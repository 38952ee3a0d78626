"""Weights that several products of one run read, and that nothing in the run writes.

Such a factor is packed once, before the first step, as in the loop of a recurrent net. The loops of
nnet3 are laid out step by step in the list of operators, so that their weights are among these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...fusion.prepared import Prepared
from .plan import Plan

_USES = 4
"""Products that must share a factor: packing takes as long as some 50 rows of a product save."""


def constant_factors(plan: Plan, arrays: Mapping[str, Any]) -> Prepared | None:
    """The memory for packed factors of a plan's products; None where packing does not pay.

    Args:
        arrays: of the variables that the plan reads from outside.
    """
    names = plan.steps.fact("constant factors", lambda: _constant_factors(plan))
    if not names:
        return None
    prepared = Prepared(in_loop=False)
    prepared.declare([arrays[name] for name in names])
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
