"""Nodes as the search for rows sees them: a component and its own descriptor are one unit.

A component that reads the row of the same index alone has just the rows of its descriptor, one step
later. So nothing is worked out for these descriptors; their components take their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..components.base.dependence import SAME

if TYPE_CHECKING:
    from .topology import Topology

Shift = tuple[int, int, int]  # a node that is read, and by how much its bits move left and right


@dataclass(frozen=True)
class Loop:
    """What the units of one loop read and are read by within it.

    Attributes:
        members: the units, sorted.
        reads: for every unit its candidates in the loop, with their number among all of them.
        readers: for every unit those that may read it, sorted.
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
    """

    def __init__(self, topology: Topology):
        self._topology = topology
        nodes = topology.nodes
        self.joined = [
            number
            for number, node in enumerate(nodes)
            if node.kind == "component" and node.reads is SAME
        ]
        self.rule = list(range(len(nodes)))
        for number in self.joined:
            self.rule[number] = number - 1
        self._inner = {number - 1 for number in self.joined}
        units = [number for number in range(len(nodes)) if number not in self._inner]
        steps = {number: topology.steps[self.rule[number]] for number in units}
        self.jumping = [number for number, listed in steps.items() if listed is None]
        self.limited = [number for number in units if nodes[number].reads.allowed]
        self.inputs = [number for number in units if nodes[number].kind == "input"]
        self.reads: list[list[Shift]] = [
            [(source, max(-t, 0), max(t, 0)) for source, t, _ in steps.get(number) or ()]
            for number in range(len(nodes))
        ]

    @cached_property
    def needs_all(self) -> list[bool]:
        """Whether the rows of a unit need every candidate."""
        return [self._topology.needs_all[number] for number in self.rule]

    @cached_property
    def stages(self) -> list[tuple[list[int], bool]]:
        """The units of every epoch that read others, with whether they form a loop."""
        left_out = self._inner.union(self.inputs)
        stages = [
            ([number for number in members if number not in left_out], is_loop)
            for members, is_loop in self._topology.stages
        ]
        return [stage for stage in stages if stage[0]]

    @cached_property
    def loops(self) -> dict[int, Loop]:
        """The loops by epoch."""
        epochs = self._topology.epochs
        return {epochs[units[0]]: self._loop(units) for units, is_loop in self.stages if is_loop}

    def _loop(self, members: list[int]) -> Loop:
        inputs_of, inside = self._topology.inputs_of, set(members)
        reads = {
            number: [(i, read) for i, read in enumerate(self.reads[number]) if read[0] in inside]
            for number in members
        }
        readers = {
            source: [number for number in members if source in inputs_of[self.rule[number]]]
            for source in members
        }
        return Loop(members, reads, readers)
