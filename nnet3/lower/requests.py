"""From a request to operators: long recurrences as operators that run them, all else as commands.

A computation of Kaldi's has some commands for each step of a recurrent layer. For a request of many
steps these are thousands of equal ones, which take far longer to make than to run. Here the request
is cut where its loops are: what comes before one is computed by a segment of commands, the loop by
a `recurrent` operator (`step_net.py`), and the next segment is given what it has computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.ir.desc import TEMPORARY
from ...framework.ir.op_list import OpList
from ..compiler.command import Command
from ..compiler.compiler import Compiler
from ..compiler.computation import Computation
from ..components import ComponentOps
from ..graph.loop_times import LoopTimes
from ..graph.loops import IrregularError, Loop, Term, find_loops
from ..graph.request import ComputationRequest, IoSpecification
from ..graph.topology import Topology
from ..graph.topology_node import TopologyNode
from ..language.descriptor import (
    Descriptor,
    OffsetForwardingDescriptor,
    OptionalSumDescriptor,
    SimpleForwardingDescriptor,
    SimpleSumDescriptor,
)
from ..optimize import OptimizeOptions
from ..optimize import optimize as run_passes
from .commands import Lowering, lower_computation
from .composite_rows import split_composites
from .splices import read_in_place

LONG = 64
"""Steps from which on a recurrence is one operator. With fewer, wide layers take longer: their
weights are packed once a run."""


def lower_request(
    topology: Topology,
    request: ComputationRequest,
    options: OptimizeOptions | None,
    compiled: Callable[[], Computation],
    natural_gradient: bool = False,
) -> OpList:
    """The net that runs a request; see `commands.py` for its variables.

    Args:
        options: of the passes. Where they are off, each command is an operator.
        compiled: gives the computation, where one is needed.
        natural_gradient: as `lower_computation` takes it.

    Raises:
        OpscopeError: as `compiled`.
    """
    if options and options.optimize and topology.is_recurrent and _is_plain(request):
        try:
            return read_in_place(_lower_with_loops(topology, request, options))
        except (IrregularError, OpscopeError):
            pass  # what is wrong with a request, the compiler says
    net = lower_computation(compiled(), natural_gradient=natural_gradient)
    return read_in_place(net) if options and options.optimize else net


def _is_plain(request: ComputationRequest) -> bool:
    """Whether a request asks for outputs alone, and has rows enough to be long."""
    derivatives = request.need_model_derivative or any(
        io.has_deriv for io in (*request.inputs, *request.outputs)
    )
    rows = max([len(io.indexes) for io in request.inputs], default=0)
    return rows >= LONG and not derivatives and not request.store_component_stats


@dataclass(frozen=True)
class _Run:
    """A loop that runs between two segments.

    Attributes:
        indexes: its rows, sequence after sequence. lengths: of the sequences.
        reads: the output nodes that stand for what it reads, in the order of `Loop.reads`.
        outputs: its components that later segments are given.
    """

    loop: Loop
    indexes: np.ndarray
    lengths: np.ndarray
    reads: list[TopologyNode]
    outputs: list[int]


def _lower_with_loops(
    topology: Topology, request: ComputationRequest, options: OptimizeOptions
) -> OpList:
    """The net of a request whose loops are operators.

    Raises:
        IrregularError: one of them cannot be one, or all of them are short.
        OpscopeError: as `Compiler`.
    """
    loops = find_loops(topology)
    loop_times = LoopTimes(topology, request, loops)
    most = max([len(times) for runs in loop_times.runs for times in runs], default=0)
    if most < LONG:
        raise IrregularError(f"no more than {most} steps")
    listed = zip(loops, loop_times.runs, loop_times.outputs, strict=True)
    runs = [
        _run(topology, number, loop, _rows(loop_times, times), outputs)
        for number, (loop, times, outputs) in enumerate(listed)
        if times
    ]
    cut = Topology([*topology.nodes, *[node for run in runs for node in run.reads]])
    compiler = Compiler(cut, *_segments(topology, request, runs))
    inside = {node for loop in loops for node in loop.members if topology.nodes[node].component}
    for group in compiler.graph.groups:
        for segment in group.segments:
            if not inside.isdisjoint(segment.rows):
                raise IrregularError("rows of a loop are needed at other times")
    computation = compiler.compile()
    computation.owns = True
    return _LoopLowering(run_passes(computation, options), runs).net


def _rows(loop: LoopTimes, runs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a loop, and the lengths of its sequences."""
    times = np.concatenate(runs) if runs else np.zeros(0, np.int32)
    count = len(loop.sequences)
    indexes = np.empty((count, len(times), 3), np.int32)
    indexes[:, :, 0] = loop.sequences[:, None]
    indexes[:, :, 1] = times
    indexes[:, :, 2] = loop.x
    return indexes.reshape(-1, 3), np.tile([len(each) for each in runs], count)


def _run(
    topology: Topology,
    number: int,
    loop: Loop,
    rows: tuple[np.ndarray, np.ndarray],
    outputs: list[int],
) -> _Run:
    reads = []
    for place, term in enumerate(loop.reads):
        dim = topology.nodes[term.node].dim
        descriptor = _descriptor(topology.nodes[term.node].name, term)
        name = f"loop{number}@{place}"  # no name of a node in a config
        reads.append(TopologyNode(name, "descriptor", dim, descriptor=descriptor))
    return _Run(loop, *rows, reads, outputs)


def _descriptor(name: str, term: Term) -> Descriptor:
    """What reads the row of a term."""
    row = SimpleForwardingDescriptor(name)
    part = SimpleSumDescriptor(OffsetForwardingDescriptor(row, term.offset) if term.offset else row)
    return Descriptor((OptionalSumDescriptor(part) if term.optional else part,))


def _segments(
    topology: Topology, request: ComputationRequest, runs: Sequence[_Run]
) -> list[ComputationRequest]:
    """The requests before, between and after the loops."""
    segments = []
    inputs = request.inputs
    for run in runs:
        wanted = [IoSpecification(node.name, run.indexes) for node in run.reads]
        segments.append(ComputationRequest(inputs, wanted))
        names = [topology.nodes[node].name for node in run.outputs]
        inputs = [IoSpecification(name, run.indexes) for name in names]
    return [*segments, ComputationRequest(inputs, request.outputs)]


class _LoopLowering(Lowering):
    """Lowers segments with loops between them."""

    def __init__(self, computation: Computation, runs: Sequence[_Run]) -> None:
        self._runs = list(runs)
        names = [f"output.{node.name}" for run in runs for node in run.reads]
        nodes = computation.topology.nodes
        names += [f"input.{nodes[node].name}" for run in runs for node in run.outputs]
        self._between = frozenset(names)
        super().__init__(split_composites(computation.explicit())[0], "computation")
        self.net.vars = [
            var.changed(kind=TEMPORARY) if var.name in self._between else var
            for var in self.net.vars
        ]

    def _name_io(self) -> dict[int, str]:
        names = super()._name_io()
        return {number: name.partition(":")[0] for number, name in names.items()}

    def _mark(self, c: Command) -> None:
        from .step_net import LoopStep  # nets over sequences are slow to load

        run = self._runs.pop(0)
        nodes = self.nodes
        title = f"loop.{nodes[run.loop.members[0]].name}"
        step = LoopStep(self.computation.topology, run.loop, title, self._ops_of)
        reads = []
        for node in run.reads:
            reads.append(f"{node.name}.sequences")
            attrs = {"lengths": run.lengths.tolist()}
            self._op("nnet3.as_sequences", {"x": f"output.{node.name}"}, reads[-1], attrs)
        outputs = {node: f"{nodes[node].name}.sequences" for node in run.outputs}
        self.appended += 1
        self.ops.append(step.operator(reads, outputs))
        for node, name in outputs.items():
            self._op("nnet3.as_sequences", {"x": name}, f"input.{nodes[node].name}", {})

    def _ops_of(self, node: int) -> ComponentOps:
        return self._component_of(node).ops
