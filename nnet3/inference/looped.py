"""Looped computations: a network compiled for a stream, of which every frame is computed once.

The requests of a few successive chunks are segments of one computation; `looped_optimize` finds
where these repeat and closes the loop. Source: Kaldi's nnet-compile-looped.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.python.gc_disabled import gc_disabled
from ...framework.base.sequence import repeated
from ...framework.ir.op_list import OpList
from ..cache.on_disk import kept
from ..compiler.compiler import Compiler
from ..compiler.computation import Computation
from ..compiler.reports import report_compiled, report_optimized
from ..compiler.verbose import VERBOSE
from ..graph.request import ComputationRequest, IoSpecification
from ..graph.topology import Topology
from ..index.indexes import distinct
from ..language.descriptor import ReplaceIndexForwardingDescriptor, RoundingForwardingDescriptor
from ..lower.commands import lower_computation
from ..optimize import OptimizeOptions
from ..optimize import optimize as run_passes
from ..optimize.looped import form_loop

_FEWEST, _MOST = 5, 100  # requests that are compiled to find a loop


def looped_requests(
    chunk: int,
    left_context: int,
    right_context: int,
    subsampling: int = 1,
    ivector_period: int = 0,
    sequences: int = 1,
) -> list[ComputationRequest]:
    """The requests of the first three chunks of a stream; those after follow the third.

    Args:
        chunk: frames of a chunk: output frames before subsampling. A multiple of the subsampling
            factor, of the network's modulus and of the iVector period.
        left_context, right_context: input frames before the first and after the last output frame.
        subsampling: one output frame is computed for so many frames.
        ivector_period: frames between two iVectors; 0: the network takes none.
        sequences: how many streams are computed at once; those are the values of n.

    Raises:
        OpscopeError: the chunk is no such multiple.
    """
    if chunk < 1 or chunk % subsampling or (ivector_period and chunk % ivector_period):
        raise OpscopeError(
            f"a chunk of {chunk} frames; it must be a multiple of the subsampling factor"
            f" {subsampling} and of the iVector period {ivector_period}"
        )
    requests = []
    begin = -left_context
    last_ivector = None
    for number in range(3):
        end = (number + 1) * chunk + right_context
        inputs = [_io("input", np.arange(begin, end), sequences)]
        if ivector_period:
            times = np.arange(begin // ivector_period, -(-end // ivector_period)) * ivector_period
            if last_ivector is not None:
                times = times[times > last_ivector]
            if len(times):
                last_ivector = times[-1]
                inputs.append(_io("ivector", times, sequences))
        frames = np.arange(number * chunk, (number + 1) * chunk, subsampling)
        requests.append(ComputationRequest(inputs, [_io("output", frames, sequences)]))
        begin = end
    return requests


def _io(name: str, times: np.ndarray, sequences: int) -> IoSpecification:
    n = repeated(np.arange(sequences), len(times))
    t = np.tile(times, sequences)
    return IoSpecification(name, np.stack((n, t, np.zeros_like(t)), axis=1))


def following(before: ComputationRequest, last: ComputationRequest) -> ComputationRequest:
    """The request that follows `last` as `last` follows `before`.

    Raises:
        OpscopeError: these differ in more than their time.
    """
    shift = int(last.inputs[0].indexes[0, 1]) - int(before.inputs[0].indexes[0, 1])
    if _shifted(before, shift).key() != last.key():
        raise OpscopeError("the last two requests must differ in their time alone")
    return _shifted(last, shift)


def _shifted(request: ComputationRequest, shift: int) -> ComputationRequest:
    offset = np.array([0, shift, 0], np.int32)

    def moved(ios: list[IoSpecification]) -> list[IoSpecification]:
        return [replace(io, indexes=io.indexes + offset) for io in ios]

    return replace(request, inputs=moved(request.inputs), outputs=moved(request.outputs))


def loop_computation(
    topology: Topology,
    requests: list[ComputationRequest],
    options: OptimizeOptions | None = None,
) -> Computation:
    """The looped computation of requests of which the last two repeat for ever.

    Raises:
        OpscopeError: the requests do not follow each other regularly, or no loop was found.
        As `Compiler`.
    """
    options = options or OptimizeOptions()
    # What is handed on must have memory, shape and storage of its own. And memory must be taken
    # within the loop where it is used there.
    options = replace(
        options,
        allocate_from_other=False,
        extend_matrices=False,
        memory_compression_level=0,
        move_sizing_commands=True,
    )
    reach = _reach(topology, requests)
    count = max(_FEWEST, 2 * reach + 1)
    most = max(_MOST, 2 * count)
    listener = VERBOSE.get()
    while count <= most:
        listed = list(requests)
        while len(listed) < count:
            listed.append(following(*listed[-2:]))
        compiler = Compiler(topology, *listed)
        computation = compiler.compile()
        if listener is not None:
            report_compiled(listener, compiler, computation)
        computation = run_passes(computation, options)
        looped = form_loop(computation, reach)
        if listener is not None:
            report_optimized(listener, looped or computation, count, looped is not None)
        if looped is not None:
            return looped
        count *= 2
    raise OpscopeError(f"{count // 2} chunks of this network in turn do not repeat each other")


def _reach(topology: Topology, requests: list[ComputationRequest]) -> int:
    """How many chunks further a row may still be read, at most."""
    chunk = len(distinct(requests[1].inputs[0].indexes[:, 1]))
    first = len(distinct(requests[0].inputs[0].indexes[:, 1]))
    return 1 - (chunk - first - topology.reach) // chunk


def compile_looped(
    topology: Topology,
    requests: list[ComputationRequest],
    optimize: bool | OptimizeOptions = True,
    structure: Callable[[], str] | None = None,
) -> OpList:
    """The op list of `looped_computation`, for `SegmentComputer`; arguments as there."""
    return lower_computation(looped_computation(topology, requests, optimize, structure))


@gc_disabled()
def looped_computation(
    topology: Topology,
    requests: list[ComputationRequest],
    optimize: bool | OptimizeOptions = True,
    structure: Callable[[], str] | None = None,
) -> Computation:
    """The computation of `loop_computation`, kept on disk.

    Args:
        optimize: True: all passes; False: none; or the options that choose them.
        structure: a text of all that the topology stands for, by which the computation is kept on
            disk; None: it is compiled again.
    """
    passes = looped_passes(optimize)

    def compiled() -> Computation:
        return loop_computation(topology, requests, passes)

    if structure is None:
        return compiled()
    settings = f"looped {passes} {sorted(passes.skip)}"
    return kept(structure, requests, settings, topology, compiled)


def looped_passes(optimize: bool | OptimizeOptions) -> OptimizeOptions:
    """What callers of `compile_looped` say by True, False or options, for `loop_computation`."""
    return OptimizeOptions.chosen(optimize) or OptimizeOptions.none()


def with_ivector_period(topology: Topology, period: int) -> Topology:
    """The nodes with one iVector for every `period` frames in place of one for all.

    `ReplaceIndex(ivector, t, 0)` becomes `Round(ivector, period)`.

    Raises:
        FormatError: t is replaced by something else than 0.
    """
    nodes = [
        replace(node, descriptor=_rounded(node.descriptor, period)) if node.descriptor else node
        for node in topology.nodes
    ]
    return Topology(nodes)


def _rounded(part: Any, period: int) -> Any:
    """A descriptor, or part of one, with `Round` in place of `ReplaceIndex`."""
    if isinstance(part, tuple):
        return tuple(_rounded(item, period) for item in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    if isinstance(part, ReplaceIndexForwardingDescriptor) and part.variable == "t":
        if part.value:
            raise FormatError(f"'{part}' cannot be computed chunk by chunk")
        return RoundingForwardingDescriptor(part.src, period)
    changed = {field.name: _rounded(getattr(part, field.name), period) for field in fields(part)}
    return replace(part, **changed)
