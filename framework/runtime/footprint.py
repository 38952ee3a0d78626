"""What a run of a net takes in memory, as its plan lays it out; nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.backend import CPUPlace
from ..base.errors import OpscopeError
from ..base.options.settings import read_options
from ..draw.summary import assumed_inputs
from ..ir.desc import PARAMETER, PLAIN, STATE
from ..ir.op_list import OpList, VarDecl
from ..ir.operation import Operator
from ..passes.lowering import lower
from .executor import Frame
from .plain_net import grouping
from .plans.plan import analyze, make_plan, plan_options


@dataclass(frozen=True)
class Footprint:
    """Bytes of a run on the CPU.

    Attributes:
        parameters: and states, which are there before and afterwards.
        results: what outlives the run beside them. temporaries: memory that these share.
    """

    parameters: int
    results: int
    temporaries: int


def footprint(net: OpList, batch: int = 1) -> Footprint | None:
    """What a run of all operators takes; None where that depends on data.

    Args:
        batch: what unknown dimensions of inputs are taken as.
    """
    if net.type != PLAIN:
        return None
    place = CPUPlace()
    try:
        options = plan_options(read_options(), place)
        lowered = lower(net)
        declared = {var.name: var for var in lowered.vars}
        known, offsets = assumed_inputs(declared, {}, batch)
        operators = [Operator(op, index) for index, op in enumerate(lowered.ops)]
        span = analyze(operators, (), declared, None)
        plan = make_plan(span, known, declared, options, grouping(place, options), offsets)
    # Shapes that only data decide: no number is better than a guess.
    except OpscopeError:
        return None
    kept = {name for name, var in declared.items() if _is_kept(var)}
    outliving = plan.outliving()
    return Footprint(
        sum(plan.nbytes(name) for name in kept & plan.specs.keys()),
        sum(size for name, size in outliving.items() if name not in kept),
        plan.temporaries,
    )


def run_bytes(frame: Frame) -> int:
    """What a bound run takes beside parameters and states, which are there before it."""
    kept = {name for name, var in frame.plan.declared.items() if _is_kept(var)}
    outliving = frame.plan.outliving()
    return frame.plan.temporaries + sum(outliving[name] for name in outliving.keys() - kept)


def _is_kept(var: VarDecl) -> bool:
    return var.kind in (PARAMETER, STATE) and var.view is None
