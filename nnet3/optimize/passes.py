"""Compiling with optimization: the passes over a computation, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ...framework.base.errors import AttributeTypeError, OpscopeError, nearest
from ...framework.base.options.settings import read_options
from ...framework.base.python.bounded_cache import BoundedCache
from ..compiler.compiler import Compiler
from ..compiler.computation import Computation
from ..compiler.reports import report_compiled, report_compressed, report_optimized
from ..compiler.shortcut import decompose, expand
from ..compiler.verbose import VERBOSE
from ..graph.request import ComputationRequest
from ..graph.topology import Topology
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


@dataclass(frozen=True)
class Pass:
    """A step from a computation to one that computes the same.

    Attributes:
        name: unique; `OptimizeOptions.skip` takes it.
        apply: gives the changed computation, or the given one if there is nothing to change. It
            must not change the given one, except for commands that this one owns.
        switches: the options of which one must be on. Without any, the pass runs unless all
            optimization is off.
        needed: the pass always runs: later stages rely on it. It looks at the options itself.
        rewrites: after it a matrix may be written to that was read before.
        applies: whether there is anything for it to do; None: that shows when it runs.
    """

    name: str
    apply: Callable[[Computation, OptimizeOptions], Computation]
    switches: tuple[str, ...] = ()
    needed: bool = False
    rewrites: bool = False
    applies: Callable[[Computation, OptimizeOptions], bool] | None = None

    def runs(self, options: OptimizeOptions) -> bool:
        """Whether the options let it run."""
        if self.needed:
            return True
        switches = self.switches or ("optimize",)
        return options.has(*switches) and self.name not in options.skip


PASSES: tuple[Pass, ...] = (
    # First: up to `place_memory` all memory is taken and given back in single commands for many
    # matrices.
    Pass("gather_memory", gather_memory, needed=True),
    # Early: what it removes, no other pass has to look at.
    Pass(
        "limit_derivative_times",
        limit_derivative_times,
        needed=True,
        applies=lambda _, options: options.limits_derivative_times,
    ),
    # Before a pass relies on values that are not zero, and before merging, for which it makes
    # copies.
    Pass(
        "consolidate_model_update",
        consolidate_model_update,
        ("consolidate_model_update",),
        applies=lambda computation, _: computation.need_model_derivative,
    ),
    # Before the passes on rows, as these cut what is written as a whole.
    Pass("convert_addition", convert_additions, ("convert_addition",)),
    # Before splitting, which takes no list with gaps.
    Pass("snip_row_ops", snip_row_ops, ("snip_row_ops",)),
    Pass("split_row_ops", split_row_ops, ("split_row_ops",)),
    Pass("optimize_row_ops", replace_row_ops, ("optimize_row_ops",)),
    # Before merging, for which it makes copies of whole matrices.
    Pass("extend_matrices", extend_matrices, ("extend_matrices",)),
    Pass(
        "merge_variables",
        merge_variables,
        ("remove_assignments", "propagate_in_place", "backprop_in_place"),
        rewrites=True,
    ),
    # After merging, which must see the first real write of every matrix. It looks at the options
    # initialize_undefined, move_sizing_commands and allocate_from_other.
    Pass("place_memory", place_memory, needed=True),
    Pass("consolidate_io", consolidate_io, needed=True),
    # After all passes that move commands across the marker between forward and backward.
    Pass(
        "compress_memory",
        compress_memory,
        ("memory_compression_level",),
        rewrites=True,
        applies=lambda computation, _: computation.takes_derivatives,
    ),
    # Last: it removes the matrices and sub-matrices that no command uses any more.
    Pass("renumber", renumber, needed=True),
)


def optimize(
    computation: Computation, options: OptimizeOptions | None = None, check: bool | None = None
) -> Computation:
    """The computation after all passes that are switched on.

    The given one is not changed, except for commands that it owns.

    Args:
        check: whether the checker runs before the first pass and after each; by default where
            OPSCOPE_VERIFY=1.

    Raises:
        AttributeTypeError: `options.skip` names a pass that there is not, or that is needed.
        OpscopeError: the checker found a mistake; the pass is named.
    """
    options = options or OptimizeOptions()
    optional = [step.name for step in PASSES if not step.needed]
    for name in options.skip:
        if name not in optional:
            raise AttributeTypeError(f"no pass to skip is called '{name}'{nearest(name, optional)}")
    if check is None:
        check = read_options().verify
    if check:
        check_computation(computation, rewrites=False)
    rewrites = False
    listener = VERBOSE.get()
    for step in PASSES:
        if not step.runs(options):
            continue
        if step.applies is not None and not step.applies(computation, options):
            continue
        before = computation
        computation = step.apply(computation, options)
        if listener is not None and step.name == "compress_memory":
            report_compressed(listener, before, computation)
        rewrites |= step.rewrites
        if check:
            try:
                check_computation(computation, rewrites=rewrites)
            except OpscopeError as error:
                raise type(error)(f"after the pass {step.name}: {error}") from None
    return computation


def compile_optimized(
    topology: Topology,
    request: ComputationRequest,
    options: OptimizeOptions | None,
    shortcut: bool = True,
    for_two: BoundedCache[Hashable, Computation] | None = None,
) -> Computation:
    """The computation of a request, after the passes.

    Args:
        options: of the passes; None: none of them run.
        shortcut: a request for many equal sequences is compiled for two of them and the
            computation expanded; the result is the same.
        for_two: a cache of the computations for two sequences.

    Raises:
        NotComputableError: an output needs rows that the request does not give.
        FormatError, ShapeError: the request does not fit the network.
    """

    def compile_whole(wanted: ComputationRequest) -> Computation:
        compiler = Compiler(topology, wanted)
        listener = VERBOSE.get()
        computation = compiler.compile()
        if listener is not None:
            report_compiled(listener, compiler, computation)
        computation.owns = True
        optimized = computation.explicit() if options is None else optimize(computation, options)
        optimized.owns = False  # a cache may hold it
        if listener is not None:
            report_optimized(listener, optimized)
        return optimized

    parts = decompose(request) if shortcut else None
    if parts is not None:
        few, count = parts
        if for_two is None:
            optimized = compile_whole(few)
        else:
            optimized = for_two.get_or_make(few.key(), lambda: compile_whole(few))
        expanded = expand(optimized, count)
        if expanded is not None:
            return expanded
    return compile_whole(request)
