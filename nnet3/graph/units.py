"""Units of the search for rows: a component and its own descriptor are mostly one unit.

A component that reads only the row of its own index has the same rows as its descriptor, one step
later. The search then looks at the component alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..components.base.dependence import SAME
from .offset_run import OffsetRun
from .topology_node import TopologyNode

Shift: TypeAlias = tuple[int, int, int]
"""A node that is read, and by how much its bits move left and right."""
Candidate: TypeAlias = tuple[int, int, int]
"""A row that a row may read: node, offset in t, offset in x."""
Stage: TypeAlias = tuple[list[int], bool]
"""The nodes of one epoch, sorted, and whether they form a loop."""


@dataclass(frozen=True)
class Loop:
    """The units of one loop and their reads and readers within it.

    Attributes:
        members: the units, sorted.
        reads: for every unit its candidates in the loop, with their number among all of them.
        readers: for every unit the units that may read it, sorted.
    """

    members: list[int]
    reads: dict[int, list[tuple[int, Shift]]]
    readers: dict[int, list[int]]


class Units:
    """The units of a network. A unit has the number of its node, or of its component.

    Attributes:
        rule: for every node the one whose candidates its unit has: for joined ones the descriptor.
        joined: the components that are one unit with their descriptors.
        reads: for every unit its candidates; none for joined descriptors, and none where some are
            more than offsets.
        jumping: units with candidates that are more than offsets.
        limited: units of which not all times may be computed.
        inputs: the units that are input nodes.
        needs_all: for every unit whether its rows need every candidate.
        stages: the units of every epoch that read others, and whether they form a loop.
        loops: the loops by epoch.
        runs: the candidates of units outside of loops that have many of which one must be there.
    """

    def __init__(
        self,
        nodes: Sequence[TopologyNode],
        inputs_of: list[list[int]],
        steps: list[list[Candidate] | None],
        needs_all: list[bool],
        stages: list[Stage],
        epochs: list[int],
    ):
        """Join components with their descriptors; the arguments are values of `Topology`."""
        self._inputs_of = inputs_of
        self.joined = [
            number
            for number, node in enumerate(nodes)
            if node.kind == "component" and node.reads is SAME
        ]
        self.rule = list(range(len(nodes)))
        for number in self.joined:
            self.rule[number] = number - 1
        inner = {number - 1 for number in self.joined}
        units = [number for number in range(len(nodes)) if number not in inner]
        candidates = {number: steps[self.rule[number]] for number in units}
        self.jumping = [number for number, listed in candidates.items() if listed is None]
        self.limited = [number for number in units if nodes[number].reads.allowed]
        self.inputs = [number for number in units if nodes[number].kind == "input"]
        self.reads = [
            [(source, max(-t, 0), max(t, 0)) for source, t, _ in candidates.get(number) or ()]
            for number in range(len(nodes))
        ]
        self.needs_all = [needs_all[number] for number in self.rule]
        left_out = inner.union(self.inputs)
        of_units = [
            ([number for number in members if number not in left_out], is_loop)
            for members, is_loop in stages
        ]
        self.stages = [stage for stage in of_units if stage[0]]
        self.runs = {
            members[0]: run
            for members, is_loop in self.stages
            if not is_loop and (run := self._run(nodes[members[0]], candidates[members[0]]))
        }
        self.loops = {
            epochs[members[0]]: self._loop(members) for members, is_loop in self.stages if is_loop
        }

    def _run(self, node: TopologyNode, candidates: list[Candidate] | None) -> OffsetRun | None:
        if candidates is None or node.kind != "component" or node.reads.required is not None:
            return None
        return OffsetRun.of(candidates)

    def _loop(self, members: list[int]) -> Loop:
        inputs_of = self._inputs_of
        inside = set(members)
        reads = {
            number: [(i, read) for i, read in enumerate(self.reads[number]) if read[0] in inside]
            for number in members
        }
        readers = {
            source: [number for number in members if source in inputs_of[self.rule[number]]]
            for source in members
        }
        return Loop(members, reads, readers)
