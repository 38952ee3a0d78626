"""A node of a topology, and facts of the parts of its descriptor."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ..components.base.component import Properties
from ..components.base.dependence import SAME, Reads
from ..language.descriptor import Descriptor, SumDescriptor

# Plain integers, for `TopologyNode.properties`: an IntFlag makes an object for every operation.
FLAGS = SimpleNamespace(**{str(flag.name): flag.value for flag in Properties})


@dataclass(frozen=True)
class SumFacts:
    """Facts of one part of a descriptor that the compiler uses for every step.

    Attributes:
        sums: the part.
        leaves: the numbers of its leaves among all leaves of the descriptor.
        dim: columns.
        constant: what it adds to every row; 0 where there is no Const.
        needs_all: every leaf is required.
        takes_all: in a row that can be computed, every leaf that is there takes part.
        scales: scale of every node that is read, by the node's number.
        groups: for every scale, in their order, the leaves with it in the order of node, t and x;
            None where leaves are more than offsets of nodes.
        singles: where rows are sums of one leaf for each scale, these, as (scale, node, t offset);
            None where that is not all there is to it.
    """

    sums: SumDescriptor
    leaves: range
    dim: int
    constant: float
    needs_all: bool
    takes_all: bool
    scales: dict[int, float]
    groups: list[tuple[float, list[int]]] | None
    singles: list[tuple[float, int, int]] | None


@dataclass
class TopologyNode:
    """A node of the network.

    Attributes:
        name: unique among all nodes.
        kind: "input", "descriptor", "component" or "dim-range".
        dim: columns.
        descriptor: of a descriptor node.
        component, component_name: of a component node.
        source, dim_offset: of a dim-range the number of the node that it is a part of, and its
            first column there.
        reads: the rows that a row of a component node depends on.
        is_output: whether it is a descriptor node that no component follows.
        properties: of the component, `FLAGS` added up.
    """

    name: str
    kind: str
    dim: int
    descriptor: Descriptor | None = None
    component: Any = None
    component_name: str = ""
    source: int = -1
    dim_offset: int = 0
    reads: Reads = field(default=SAME)
    is_output: bool = False
    properties: int = 0

    def expression(self) -> Descriptor:
        """The descriptor of a descriptor node."""
        assert self.descriptor is not None
        return self.descriptor
