"""The phones that an utterance may consist of, and the frames on which each may stand.

Source: Povey et al. 2016, "Purely sequence-trained neural networks for ASR based on lattice-free
MMI"; `ProtoSupervision` in Kaldi's `chain/chain-supervision.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....framework.base.errors import FormatError, ShapeError
from ....framework.base.options.option_fields import option
from ....framework.base.untrusted.limits import check_limit
from ....kaldi.lattices.lattice import CompactLattice, single
from ....kaldi.lattices.operations import state_times

PhoneArc = tuple[int, float, int]
"""Phone, weight, next state."""


@dataclass(frozen=True)
class Tolerances:
    """How far phones may move.

    Raises:
        FormatError: a frame could be left without a phone, or a value is out of its range.
    """

    left: int = option(
        5, "Frames of the alignment that a phone may begin earlier", "left-tolerance"
    )
    right: int = option(5, "Frames of the alignment that a phone may end later", "right-tolerance")
    factor: int = option(
        1, "Frames of the alignment to one of the network's output", "frame-subsampling-factor"
    )
    lm_scale: float = option(0.0, "Factor for the graph costs of lattices")

    def __post_init__(self) -> None:
        if min(self.left, self.right) < 0 or self.factor <= 0:
            raise FormatError("tolerances must not be negative, nor the subsampling below 1")
        if self.left + self.right + 1 < self.factor:
            raise FormatError(
                f"tolerances of {self.left} and {self.right} frames are too small: with one frame"
                f" in {self.factor}, a phone could be lost"
            )
        if not 0 <= self.lm_scale < 1:
            raise FormatError(f"lm-scale={self.lm_scale:g} is not from 0 on and below 1")

    def frames(self, length: int) -> int:
        """How many frames of output so many frames of alignment have."""
        return -(-length // self.factor)

    def span(self, begin: int, end: int, length: int) -> range:
        """The frames of output on which a phone from `begin` to before `end` may stand."""
        first = max(0, begin - self.left)
        last = min(length, end + self.right)
        return range(self.frames(first), self.frames(last))


@dataclass(eq=False)
class PhoneGraph:
    """An acyclic graph of phones with the frames on which they may stand.

    Attributes:
        start: the first state. arcs: of each state. final: the weight of ending in each state;
            infinity: no path ends there.
        allowed: the phones of each frame of output.
    """

    start: int
    arcs: list[list[PhoneArc]]
    final: list[float]
    allowed: list[set[int]]


def alignment_graph(phones: Sequence[tuple[int, int]], tolerances: Tolerances) -> PhoneGraph:
    """The graph of phones one after the other, given with their lengths in frames.

    Raises:
        ShapeError: there are none, or a phone or length is not above 0.
        FormatError: there are too many frames.
    """
    if not len(phones):
        raise ShapeError("an alignment without phones")
    if min(min(phone, frames) for phone, frames in phones) <= 0:
        raise ShapeError("a phone or its length is not above 0")
    length = sum(frames for _, frames in phones)
    allowed = _no_phones(tolerances.frames(length))
    begin = 0
    for phone, frames in phones:
        for time in tolerances.span(begin, begin + frames, length):
            allowed[time].add(phone)
        begin += frames
    arcs: list[list[PhoneArc]] = [[(phone, 0.0, i)] for i, (phone, _) in enumerate(phones, 1)]
    return PhoneGraph(0, [*arcs, []], [math.inf] * len(phones) + [0.0], allowed)


def lattice_graph(lattice: CompactLattice, tolerances: Tolerances) -> PhoneGraph:
    """The graph of a phone-aligned lattice, whose labels are phones.

    Raises:
        ShapeError: it is empty, has no frames, has arcs without a phone, or is not sorted; paths
            have different lengths; a frame is left without a phone.
        FormatError: there are too many frames.
    """
    if not lattice.states:
        raise ShapeError("Empty lattice provided")
    times, length = state_times(lattice)
    if not length:
        raise ShapeError("the lattice has no frames: its arcs have no transition-ids")
    for state, end in enumerate(lattice.final):
        if end is not None and times[state] != length:
            raise ShapeError(
                f"Time of final state {state} in lattice is not equal to number of frames"
                f" {length}.  Are you sure the lattice is phone-aligned? Rejecting it."
            )
    scale = tolerances.lm_scale
    allowed = _no_phones(tolerances.frames(length))
    arcs: list[list[PhoneArc]] = []
    for state, group in enumerate(lattice.arcs):
        arcs.append([])
        for phone, weight, target in group:
            if not phone:
                raise ShapeError("CompactLattice has epsilon arc.  Unexpected.")
            arcs[-1].append((phone, single(weight.graph * scale), target))
            if times[state] < 0:
                continue  # no path leads here
            begin = times[state]
            for time in tolerances.span(begin, begin + len(weight.ids), length):
                allowed[time].add(phone)
    if not all(allowed):
        raise ShapeError(f"the lattice has no phone for frame {allowed.index(set())} of the output")
    final = [math.inf if end is None else single(end.graph * scale) for end in lattice.final]
    graph = PhoneGraph(lattice.start, arcs, final, allowed)
    return _pushed(graph) if scale else graph


def _no_phones(frames: int) -> list[set[int]]:
    check_limit("lattice", frames, "the frames of a supervision")
    return [set() for _ in range(frames)]


def _pushed(graph: PhoneGraph) -> PhoneGraph:
    """Weights as early on each path as they can stand, less the best path's weight.

    States are in topological order. Source: OpenFst's `push.h`, `reweight.h`.
    """
    rest = list(graph.final)
    for state in range(len(graph.arcs) - 1, -1, -1):
        for _, weight, target in graph.arcs[state]:
            rest[state] = min(rest[state], single(weight + rest[target]))
    arcs: list[list[PhoneArc]] = []
    final = []
    for state, group in enumerate(graph.arcs):
        whole = rest[state]
        if math.isinf(whole):  # no way on to an end
            arcs.append([])
            final.append(math.inf)
            continue
        arcs.append([])
        for phone, weight, target in group:
            if not math.isinf(rest[target]):
                arcs[-1].append((phone, single(single(weight + rest[target]) - whole), target))
        final.append(single(graph.final[state] - whole))
    return PhoneGraph(graph.start, arcs, final, graph.allowed)
