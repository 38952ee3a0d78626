"""From a network and a request to an op list: the whole pipeline in one call."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.base.errors import ShapeError, check_kind
from ...framework.base.python.gc_disabled import gc_disabled
from ...framework.ir.op_list import OpList
from ..compiler.compiler import Compiler
from ..compiler.computation import Computation
from ..graph.request import ComputationRequest
from ..lower.commands import lower_computation
from ..lower.requests import lower_request
from ..network.for_inference import Model, for_inference, for_request, nnet_of
from ..optimize import OptimizeOptions, compile_optimized
from ..optimize import optimize as run_passes


def compile_computation(nnet: Model, request: ComputationRequest) -> Computation:
    """The commands that compute a request, as Kaldi's compiler makes them.

    Args:
        nnet: a network, an acoustic model, or the path of a file; components compute in the mode
            that they are in.

    Raises:
        NotComputableError: an output needs rows that the request does not give; named in the text.
        FormatError, ShapeError: the request does not fit the network.
    """
    return Compiler(nnet_of(nnet).topology(), request).compile().explicit()


@gc_disabled()
def compile_request(
    nnet: Model,
    request: ComputationRequest,
    optimize: bool | OptimizeOptions = True,
    natural_gradient: bool = False,
    shortcut: bool = True,
    test_mode: bool | None = None,
) -> OpList:
    """The op list that computes a request: see `lower_commands` for its variables.

    Args:
        nnet: a network, an acoustic model, or the path of a file; it is not changed.
        optimize: True: all passes; False: none; or the options that choose them.
        natural_gradient: components that have natural gradient make their gradients by it.
        shortcut: a request for many like sequences is compiled for two of them and expanded, which
            gives the same and is quicker.
        test_mode: True: batch normalization takes its statistics, and nothing is random; False:
            each component computes in the mode that it is in; None: test mode where the request
            wants neither derivatives nor statistics.

    Example:
        request = ComputationRequest.parse(open("request.txt").read())
        desc = compile_request("final.mdl", request)

    Raises:
        FormatError: as `for_inference`.
        OpscopeError: as `compile_computation`.
    """
    for name, value, kind in (
        ("optimize", optimize, bool | OptimizeOptions),
        ("natural_gradient", natural_gradient, bool),
        ("shortcut", shortcut, bool),
    ):
        check_kind(value, kind, name)
    nnet = for_request(nnet, request, test_mode)
    options = OptimizeOptions.chosen(optimize)
    topology = nnet.topology()

    def compiled() -> Computation:
        return compile_optimized(topology, request, options, shortcut)

    return lower_request(topology, request, options, compiled, natural_gradient)


@gc_disabled()
def compile_segments(
    nnet: Model,
    requests: Sequence[ComputationRequest],
    optimize: bool | OptimizeOptions = True,
    test_mode: bool = True,
) -> OpList:
    """The op list of several requests in turn, for `SegmentComputer`.

    Each may read what those before it computed, and gives only what these have not got.

    Args:
        nnet, test_mode: as `compile_request` takes them.

    Raises:
        FormatError: as `for_inference`.
        ShapeError: a request wants derivatives, or lists rows of an earlier one.
        OpscopeError: as `compile_computation`.
    """
    check_kind(requests, list | tuple, "the requests")
    for request in requests:
        check_kind(request, ComputationRequest, "each request")
    if not requests:
        raise ShapeError("the list of requests is empty")
    nnet = for_inference(nnet, test_mode, collapse=False)
    computation = Compiler(nnet.topology(), *requests).compile()
    if optimize:
        options = optimize if isinstance(optimize, OptimizeOptions) else None
        computation = run_passes(computation, options)
    return lower_computation(computation)
