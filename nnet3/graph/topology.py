"""The compiler's view of a network: numbered nodes with the rows that each may read.

Every node is one of four kinds, as Kaldi's NodeType: "input", "descriptor", "component" (its own
descriptor node stands just before it) and "dim-range". A descriptor node that no component follows
is an output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ...framework.base.python.cached import cached_property
from ..language.descriptor import (
    BinarySumDescriptor,
    Descriptor,
    ForwardingDescriptor,
    OffsetForwardingDescriptor,
    OptionalSumDescriptor,
    SimpleForwardingDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from .node_order import compute_epochs
from .topology_node import SumFacts, TopologyNode
from .units import Candidate, Stage, Units

Place = tuple[Any, Any, Any]
_TIMES = 24  # that show how far expressions with Switch, Round and ReplaceIndex reach


def component_facts(component: Any) -> tuple[Any, ...]:
    """The facts of a component that a topology depends on: equal facts make equal topologies.

    Facts of components that read rows by a rule of their own compare as different.
    """
    reads = component.reads()
    listed = reads if reads.offsets is None else (reads.required, reads.offsets)
    return component, component.output_dim, component.properties, listed


class Topology:
    """Nodes in order, with the graph on them."""

    def __init__(self, nodes: Sequence[TopologyNode]):
        self.nodes = list(nodes)
        self.index = {node.name: i for i, node in enumerate(self.nodes)}
        for i, node in enumerate(self.nodes):
            if node.kind == "component":
                node.reads = node.component.reads()
                node.properties = int(node.component.properties)
            elif node.kind == "descriptor":
                after = self.nodes[i + 1] if i + 1 < len(self.nodes) else None
                node.is_output = after is None or after.kind != "component"

    def __len__(self) -> int:
        return len(self.nodes)

    def number(self, name: str) -> int:
        """The number of a node; FormatError where there is none of that name."""
        if name not in self.index:
            raise FormatError(f"the network has no node '{name}'{nearest(name, self.index)}")
        return self.index[name]

    @cached_property
    def dims(self) -> dict[str, int]:
        """The columns of every node by name."""
        return {node.name: node.dim for node in self.nodes}

    @cached_property
    def inputs_of(self) -> list[list[int]]:
        """For every node the nodes that it may read, sorted."""
        listed = []
        for i, node in enumerate(self.nodes):
            if node.kind == "descriptor":
                names = node.expression().node_names()
                listed.append(sorted({self.index[name] for name in names}))
            elif node.kind == "component":
                listed.append([i - 1])
            else:
                listed.append([node.source] if node.kind == "dim-range" else [])
        return listed

    @cached_property
    def readers_of(self) -> list[list[int]]:
        """For every node the nodes that may read it."""
        listed: list[list[int]] = [[] for _ in self.nodes]
        for node, inputs in enumerate(self.inputs_of):
            for source in inputs:
                listed[source].append(node)
        return listed

    @cached_property
    def epochs(self) -> list[int]:
        """The epoch of every node: see `node_order.compute_epochs`."""
        return compute_epochs(self.readers_of)

    @cached_property
    def epoch_members(self) -> dict[int, list[int]]:
        """The nodes of every epoch."""
        members: dict[int, list[int]] = {}
        for node, epoch in enumerate(self.epochs):
            members.setdefault(epoch, []).append(node)
        return members

    @cached_property
    def stages(self) -> list[Stage]:
        """The nodes of every epoch, sorted, with whether they form a loop."""
        return [
            (members, len(members) > 1 or members[0] in self.inputs_of[members[0]])
            for _, members in sorted(self.epoch_members.items())
        ]

    @cached_property
    def units(self) -> Units:
        """The nodes as the search for rows sees them."""
        return Units(
            self.nodes, self.inputs_of, self.steps, self.needs_all, self.stages, self.epochs
        )

    @cached_property
    def in_loop(self) -> list[bool]:
        """For every node whether it is part of a loop."""
        return [self.stages[epoch][1] for epoch in self.epochs]

    @cached_property
    def is_recurrent(self) -> bool:
        """Whether nodes form a loop."""
        return any(self.in_loop)

    def dependencies(self, node: int, t: Any, x: Any) -> list[Place]:
        """The rows that rows (t, x) of `node` may read: node numbers, t and x of each candidate."""
        steps = self.steps[node]
        if steps is not None:
            return [(source, t + dt if dt else t, x + dx if dx else x) for source, dt, dx in steps]
        info = self.nodes[node]
        if info.kind == "descriptor":
            return info.expression().get_dependencies(t, x, self.index)
        return [(node - 1, *column) for column in info.reads.columns(t, x)]

    @cached_property
    def steps(self) -> list[list[Candidate] | None]:
        """For every node its candidates as (node, t offset, x offset); None where they are more."""
        listed: list[list[Candidate] | None] = []
        for i, node in enumerate(self.nodes):
            if node.kind == "descriptor":
                leaves = node.expression().leaves()
                steps = [linear_leaf(leaf, self.index) for leaf in leaves]
                offsets_of = [step for step in steps if step is not None]
                listed.append(offsets_of if len(offsets_of) == len(steps) else None)
            elif node.kind == "component":
                offsets = node.reads.offsets
                listed.append(None if offsets is None else [(i - 1, t, 0) for t in offsets])
            else:
                listed.append([(node.source, 0, 0)] if node.kind == "dim-range" else [])
        return listed

    @cached_property
    def reach(self) -> int:
        """How many frames a row lies from those it may read, at most; judged by a few times."""
        times = np.arange(_TIMES)
        furthest = 0
        for node, steps in enumerate(self.steps):
            if steps is not None:
                offsets = [abs(offset) for _, offset, _ in steps]
            else:
                places = self.dependencies(node, times, times * 0)
                offsets = [int(abs(t - times).max()) for _, t, _ in places]
            furthest = max(furthest, *offsets, 0)
        return furthest

    @cached_property
    def shifts_x(self) -> bool:
        """Whether a node reads rows at an offset in x."""
        return any(dx for steps in self.steps for _, _, dx in steps or ())

    @cached_property
    def sums(self) -> list[list[SumFacts]]:
        """For every node the parts of its descriptor; none where it has no descriptor."""
        return [
            list(self._facts(i, node.descriptor)) if node.descriptor is not None else []
            for i, node in enumerate(self.nodes)
        ]

    def _facts(self, node: int, descriptor: Descriptor) -> Iterator[SumFacts]:
        steps = self.steps[node]
        begin = 0
        for part in descriptor.parts:
            leaves = range(begin, begin + sum(1 for _ in part.leaves()))
            begin = leaves.stop
            scales = {self.index[name]: scale for name, scale in part.scales().items()}
            groups = None
            if steps is not None:
                ordered = sorted(leaves, key=steps.__getitem__)
                groups = [
                    (scale, [leaf for leaf in ordered if scales[steps[leaf][0]] == scale])
                    for scale in sorted(set(scales.values()))
                ]
            takes_all = _takes_all(part)
            singles = None
            sure = takes_all or part.needs_all()
            if sure and steps and groups and all(len(listed) == 1 for _, listed in groups):
                read = [(scale, *steps[listed[0]]) for scale, listed in groups]
                singles = [(scale, source, t) for scale, source, t, x in read if not x]
                singles = singles if len(singles) == len(read) else None
            yield SumFacts(
                part,
                leaves,
                part.dim(self.dims),
                part.constant(),
                part.needs_all(),
                takes_all,
                scales,
                groups,
                singles,
            )

    def combine(
        self, node: int, present: Sequence[Any], allowed: Any, every: Any = True
    ) -> tuple[Any, list[Any]]:
        """(computable, for each candidate: used) of rows of `node`; see `Reads.combine`."""
        info = self.nodes[node]
        if info.kind == "descriptor":
            used: list[Any] = []
            ok = info.expression().combine(iter(present), used, every)
            return ok, [mask & ok for mask in used]
        if info.kind == "component":
            return info.reads.combine(present, allowed, every)
        if info.kind == "dim-range":
            return present[0], list(present)
        return every ^ every, []

    def allowed(self, node: int, t: Any) -> Any:
        """Whether rows of `node` at times `t` may be computed at all."""
        rule = self.nodes[node].reads.allowed
        return True if rule is None else rule(t)

    @cached_property
    def needs_all(self) -> list[bool]:
        """Whether rows of a node need every candidate, for every node."""
        return [self._needs_all(node) for node in self.nodes]

    def _needs_all(self, node: TopologyNode) -> bool:
        if node.kind == "descriptor":
            return node.expression().needs_all()
        if node.kind == "component":
            required = node.reads.required
            return required is not None and all(required) and node.reads.allowed is None
        return node.kind == "dim-range"

    def outputs(self) -> Iterator[int]:
        """The numbers of the output nodes."""
        return (i for i, node in enumerate(self.nodes) if node.is_output)


def linear_leaf(leaf: ForwardingDescriptor, index: dict[str, int]) -> tuple[int, int, int] | None:
    """(node, t offset, x offset) of a leaf that is at most an Offset of a node."""
    if isinstance(leaf, SimpleForwardingDescriptor):
        return index[leaf.node], 0, 0
    if isinstance(leaf, OffsetForwardingDescriptor):
        inner = linear_leaf(leaf.src, index)
        return inner and (inner[0], inner[1] + leaf.t, inner[2] + leaf.x)
    return None


def _takes_all(part: SumDescriptor) -> bool:
    """See `SumFacts`: neither a choice between leaves, nor several that stand or fall together."""
    if isinstance(part, BinarySumDescriptor):
        return part.op == "Sum" and _takes_all(part.a) and _takes_all(part.b)
    return not isinstance(part, OptionalSumDescriptor) or isinstance(part.src, SimpleSumDescriptor)
