"""From a network and a request to an op list: the whole pipeline in one call."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.base.gc_disabled import gc_disabled
from ...framework.ir.op_list import OpList
from ..compile.compiler import Compiler
from ..compile.computation import Computation
from ..graph.request import ComputationRequest
from ..lower.commands import lower_computation
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions, compile_optimized
from ..optimize import optimize as run_passes


def compile_computation(nnet: Nnet, request: ComputationRequest) -> Computation:
    """The commands that compute a request, as Kaldi's compiler makes them.

    Raises:
        NotComputableError: an output needs rows that the request does not give; named in the text.
        FormatError, ShapeError: the request does not fit the network.
    """
    return Compiler(nnet.topology(), request).compile().explicit()


@gc_disabled()
def compile_request(
    nnet: Nnet,
    request: ComputationRequest,
    optimize: bool | OptimizeOptions = True,
    natural_gradient: bool = False,
    shortcut: bool = True,
) -> OpList:
    """The op list that computes a request: see `lower_commands` for its variables.

    Args:
        optimize: True: all passes; False: none; or the options that choose them.
        natural_gradient: components that have natural gradient make their gradients by it.
        shortcut: a request for many like sequences is compiled for two of them and expanded, which
            gives the same and is quicker.

    Example:
        request = ComputationRequest.parse(open("request.txt").read())
        desc = compile_request(Nnet.read("model.raw"), request)

    Raises:
        OpscopeError: as `compile_computation`.
    """
    options = OptimizeOptions.chosen(optimize)
    computation = compile_optimized(nnet.topology(), request, options, shortcut)
    return lower_computation(computation, natural_gradient=natural_gradient)


@gc_disabled()
def compile_segments(
    nnet: Nnet, requests: Sequence[ComputationRequest], optimize: bool | OptimizeOptions = True
) -> OpList:
    """The op list of several requests in turn, for `SegmentComputer`.

    Each may read what those before it computed, and gives only what these have not got.

    Raises:
        ShapeError: a request wants derivatives, or lists rows of an earlier one.
        OpscopeError: as `compile_computation`.
    """
    computation = Compiler(nnet.topology(), *requests).compile()
    if optimize:
        options = optimize if isinstance(optimize, OptimizeOptions) else None
        computation = run_passes(computation, options)
    return lower_computation(computation)
