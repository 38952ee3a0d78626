"""Optimisation of compiled computations: one ordered list of passes, each with its switch.

Source: Kaldi's nnet-optimize.cc. Every pass takes and leaves a computation that computes the same;
with `check`, or OPSCOPE_VERIFY=1, the checker runs before the first and after each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...framework.base.errors import OpscopeError
from ...framework.base.settings import is_on
from ..compile.computation import Computation
from .additions import convert_additions
from .checker import check_computation
from .compression import compress_memory
from .consolidate import consolidate_model_update
from .deriv_times import limit_derivative_times
from .matrix_extension import extend_matrices
from .memory_placement import gather_memory, place_memory
from .merge import merge_variables
from .options import OptimizeOptions
from .renumber import consolidate_io, renumber
from .row_ops import replace_row_ops, snip_row_ops, split_row_ops

__all__ = ["PASSES", "OptimizeOptions", "Pass", "optimize"]


@dataclass(frozen=True)
class Pass:
    """A pass.

    Attributes:
        name: of the pass.
        apply: the pass itself; the given computation stays as it is.
        switches: options of which one must be on; none: the pass always runs, and asks for options
            itself.
        rewrites: behind it something may be written to after it was read.
    """

    name: str
    apply: Callable[[Computation, OptimizeOptions], Computation]
    switches: tuple[str, ...] = ()
    rewrites: bool = False


PASSES: tuple[Pass, ...] = (
    # Up to `place_memory` no matrix has commands of its own for its memory.
    Pass("gather_memory", gather_memory),
    # Before anything may rely on values that are not zero.
    Pass("limit_derivative_times", limit_derivative_times),
    # Its copies want merging.
    Pass("consolidate_model_update", consolidate_model_update, ("consolidate_model_update",)),
    # Before the row operations: these cut what is written whole.
    Pass("convert_addition", convert_additions, ("convert_addition",)),
    # Before splitting, which takes no list with gaps.
    Pass("snip_row_ops", snip_row_ops, ("snip_row_ops",)),
    Pass("split_row_ops", split_row_ops, ("split_row_ops",)),
    Pass("optimize_row_ops", replace_row_ops, ("optimize_row_ops",)),
    # Makes copies of whole matrices, for merging.
    Pass("extend_matrices", extend_matrices, ("extend_matrices",)),
    Pass(
        "merge_variables",
        merge_variables,
        ("remove_assignments", "propagate_in_place", "backprop_in_place"),
        rewrites=True,
    ),
    # Behind merging, which must see the first real write of everything. Asks for the switches
    # initialize_undefined, move_sizing_commands and allocate_from_other.
    Pass("place_memory", place_memory),
    Pass("consolidate_io", consolidate_io),
    # Behind whatever moves commands: the two sides of the marker must stay.
    Pass("compress_memory", compress_memory, ("memory_compression_level",), rewrites=True),
    Pass("renumber", renumber),
)


def optimize(
    computation: Computation, options: OptimizeOptions | None = None, check: bool | None = None
) -> Computation:
    """The computation after all passes that are switched on; the given one is not changed.

    Args:
        check: whether the checker runs between the passes; by default as the environment says.

    Raises:
        OpscopeError: the checker found something; the pass is named.
    """
    options = options or OptimizeOptions()
    if check is None:
        check = is_on("OPSCOPE_VERIFY")
    if check:
        check_computation(computation, rewrites=False)
    rewrites = False
    for step in PASSES:
        if step.switches and not options.has(*step.switches):
            continue
        computation = step.apply(computation, options)
        rewrites |= step.rewrites
        if check:
            try:
                check_computation(computation, rewrites=rewrites)
            except OpscopeError as error:
                raise type(error)(f"behind the pass {step.name}: {error}") from None
    return computation
