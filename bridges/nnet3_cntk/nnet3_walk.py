"""The walk over an nnet3 network, in which a network of CNTK grows.

CNTK computes frame by frame. The frames around one that nnet3's descriptors read are taken from a
window of input frames, as CNTK's readers give it: a layer that others read at several offsets is
computed several times in each frame, with the same parameters. Frames beyond the utterance are
copies of its edge in both worlds, so both also give the same there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...cntk.network.network import Network
from ...cntk.network.nodes.node import Node
from ...framework.base.errors import UnknownOperatorError
from ...nnet3.components import Component
from ...nnet3.language import descriptor as d
from ...nnet3.language.nodes import COMPONENT, DESCRIPTOR, DIM_RANGE, INPUT, NetworkNode, input_name
from ...nnet3.network.nnet import Nnet

_SHOWN = 4  # nodes of a loop in an error

Rule: TypeAlias = "Callable[[Unrolling, Any, Place, Node], Node]"

RULES: dict[str, Rule] = {}
"""Component type -> the node that computes it, from the node that holds its input."""


def converts(*types: str) -> Callable[[Rule], Rule]:
    """Decorator: the function is the rule of these component types."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(types, rule))
        return rule

    return register


def refuse(node: str, why: str) -> NoReturn:
    """Say that a node cannot be converted."""
    raise UnknownOperatorError(f"{node} cannot become a network of CNTK: {why}")


@dataclass(frozen=True)
class Place:
    """A component node at an offset from the frame that is computed: `name` is what it is called
    there, `owner` the component, by whose name parameters are called, `node` how errors call it."""

    node: str
    owner: str
    name: str


@dataclass(frozen=True)
class Read:
    """A term of a descriptor: `scale` times a node, `offset` frames later, or, where `fixed`, the
    one frame that an input has for all (an iVector)."""

    node: str
    offset: int
    scale: float
    fixed: bool

    def frame(self, offset: int) -> int:
        """The frame that is read at an offset."""
        return 0 if self.fixed else offset + self.offset


@dataclass(frozen=True)
class Part:
    """A part of a descriptor: the sum of what is read, and a constant, in each column."""

    reads: tuple[Read, ...]
    constant: float
    dim: int


class Unrolling:
    """One network on its way.

    Attributes:
        network: of CNTK, as far as it goes.
        context: for each input the frames before and after that its samples hold.
    """

    def __init__(self, nnet: Nnet) -> None:
        self.nnet = nnet
        self.network = Network("nnet3")
        self.context: dict[str, tuple[int, int]] = {}
        self._dims = nnet.node_dims()
        self._nodes = {node.name: node for node in nnet.nodes}
        self._parts: dict[str, tuple[Part, ...]] = {}
        self._fixed: set[str] = set()
        self._values: dict[tuple[str, int], Node] = {}
        self._windows: dict[tuple[str, int, int], Node] = {}
        self._inputs: dict[str, Node] = {}
        self._parameters: dict[str, Node] = {}

    def outputs(self) -> list[Node]:
        """Convert all that the output nodes need; the nodes that hold their values."""
        ends = [node.name for node in self.nnet.outputs()]
        order = self._order(ends)
        for name in order:
            self._check(self._nodes[name])
        needed = self._offsets(order, ends)
        for name in order:
            node = self._nodes[name]
            if node.kind == INPUT:
                self._add_input(node, needed[name])
            elif node.kind != DESCRIPTOR or name in ends:
                for offset in sorted(needed[name]):
                    self._values[name, offset] = self._value(node, offset)
        return [self._values[name, 0] for name in ends]

    def _reads(self, name: str) -> Iterator[tuple[str, int | None]]:
        """The nodes that a node reads, and how many frames later; None for the one frame."""
        node = self._nodes[name]
        if node.kind == DESCRIPTOR:
            for part in self._parts[name]:
                yield from ((read.node, None if read.fixed else read.offset) for read in part.reads)
        elif node.kind == DIM_RANGE:
            yield node.source, 0
        elif node.kind == COMPONENT:
            for offset in _time_offsets(self.nnet.components[node.component]):
                yield input_name(name), offset

    def _order(self, ends: Sequence[str]) -> list[str]:
        """All nodes that the outputs need, each after those that it reads."""
        graph: dict[str, list[str]] = {}
        waiting = list(ends)
        while waiting:
            name = waiting.pop()
            if name not in graph:
                graph[name] = self._sources(self._nodes[name])
                waiting += graph[name]
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            loop = {name for name in error.args[1] if self._nodes[name].kind == COMPONENT}
            first, *others = sorted(loop)
            through = f", through {', '.join(others[:_SHOWN])}" if others else ""
            more = ", ..." if len(others) > _SHOWN else ""
            why = f"it is computed from itself{through}{more}; a feed-forward network is needed"
            refuse(self._shown(self._nodes[first]), why)

    @staticmethod
    def _sources(node: NetworkNode) -> list[str]:
        if node.descriptor is not None:
            return node.descriptor.node_names()
        if node.kind == COMPONENT:
            return [input_name(node.name)]
        return [node.source] if node.kind == DIM_RANGE else []

    def _check(self, node: NetworkNode) -> None:
        """Refuse a node that has no counterpart; take its descriptor apart."""
        if node.kind == COMPONENT and self.nnet.components[node.component].type not in RULES:
            refuse(self._shown(node), "nothing that is computed frame by frame stands for it")
        if node.descriptor is not None:
            parts = _parts(self._shown(node), node.descriptor, self._dims, self._nodes)
            self._parts[node.name] = tuple(parts)
            reads = (read for part in self._parts[node.name] for read in part.reads)
            self._fixed |= {read.node for read in reads if read.fixed}

    def _shown(self, node: NetworkNode) -> str:
        """How an error calls a node: as a config does, with the type of its component."""
        following = self._nodes.get(node.name.removesuffix("_input"))
        if node.kind == DESCRIPTOR and following is not None and following.kind == COMPONENT:
            node = following
        if node.kind != COMPONENT:
            kind = "output-node" if node.kind == DESCRIPTOR else f"{node.kind}-node"
            return f"{kind} {node.name!r}"
        return f"component-node {node.name!r} ({self.nnet.components[node.component].type})"

    def _offsets(self, order: Sequence[str], ends: Sequence[str]) -> dict[str, set[int]]:
        """For every node the offsets at which it is needed."""
        needed: dict[str, set[int]] = {name: set() for name in order}
        for name in ends:
            needed[name].add(0)
        for name in reversed(order):
            for source, offset in self._reads(name):
                own = needed[name]
                needed[source] |= {0} if offset is None else {offset + frame for frame in own}
        return needed

    # Inputs

    def _add_input(self, node: NetworkNode, offsets: set[int]) -> None:
        left = max(0, -min(offsets))
        right = max(0, max(offsets))
        if node.name in self._fixed and left + right:
            refuse(self._shown(node), "it is read frame by frame, and one of its frames for all")
        name = "features" if node.name == "input" else node.name
        window = self.add("InputValue", name, tags=["feature"], shape=node.dim * (left + 1 + right))
        self._inputs[node.name] = window
        self.context[window.name] = (left, right)

    def _window(self, name: str, first: int, last: int) -> Node:
        """Frames of an input side by side."""
        window = self._inputs[name]
        dim = self._nodes[name].dim
        left, right = self.context[window.name]
        if (first, last) == (-left, right):
            return window
        window_rows = self._windows.get((name, first, last))
        if window_rows is None:
            frames = _frame(first) if first == last else f"{_frame(first)}_{_frame(last)}"
            begin = (first + left) * dim
            count = (last + 1 - first) * dim
            window_rows = self.rows(window, begin, count, f"{window.name}.{frames}")
            self._windows[name, first, last] = window_rows
        return window_rows

    # Values

    def _value(self, node: NetworkNode, offset: int) -> Node:
        if node.kind == DESCRIPTOR:
            return self._described(node.name, node.name, offset)
        name = f"{node.name}{_at(offset)}"
        if node.kind == DIM_RANGE:
            source = self._source(node.source, offset)
            return self.rows(source, node.dim_offset, node.dim, name)
        component = self.nnet.components[node.component]
        frames = [offset + own for own in _time_offsets(component)]
        read = self._described(input_name(node.name), name, *frames)
        place = Place(self._shown(node), node.component, name)
        return RULES[component.type](self, component, place, read)

    def _source(self, name: str, offset: int) -> Node:
        if name in self._inputs:
            return self._window(name, offset, offset)
        return self._values[name, offset]

    def _described(self, descriptor: str, name: str, *offsets: int) -> Node:
        """What a descriptor reads, at one offset or side by side at several."""
        pieces: list[Node | tuple[str, int, int]] = []
        for offset in offsets:
            for part in self._parts[descriptor]:
                piece = self._plain_frame(part, offset)
                last = pieces[-1] if pieces else None
                if piece is None:
                    pieces.append(self._sum(part, offset, f"{name}.in{len(pieces)}"))
                elif isinstance(last, tuple) and (last[0], last[2] + 1) == (piece[0], piece[1]):
                    pieces[-1] = (last[0], last[1], piece[1])
                else:
                    pieces.append((piece[0], piece[1], piece[1]))
        nodes = [p if isinstance(p, Node) else self._window(*p) for p in pieces]
        return nodes[0] if len(nodes) == 1 else self.add("RowStack", f"{name}.in", nodes)

    def _plain_frame(self, part: Part, offset: int) -> tuple[str, int] | None:
        """Input and frame, if a part is nothing but one frame of an input."""
        if len(part.reads) != 1 or part.constant:
            return None
        (read,) = part.reads
        if read.node not in self._inputs or read.scale != 1:
            return None
        return read.node, read.frame(offset)

    def _sum(self, part: Part, offset: int, name: str) -> Node:
        total: Node | None = None
        for number, read in enumerate(part.reads):
            term = self._source(read.node, read.frame(offset))
            if read.scale != 1:
                factor = self.constant(f"scale{read.scale:.6g}", [read.scale])
                term = self.add("ElementTimes", f"{name}.scaled{number}", [factor, term])
            total = term if total is None else self.add("Plus", f"{name}.{number}", [total, term])
        if total is None:
            refuse(name, "it reads nothing but a constant")
        if part.constant:
            bias = self.constant(f"constant{part.constant:.6g}", [part.constant])
            total = self.add("Plus", f"{name}.shifted", [total, bias])
        return total

    # What rules are made of

    def add(
        self, operation: str, name: str, inputs: Sequence[Node] = (), **attributes: Any
    ) -> Node:
        """A node; its name gets a number where CNTK, without regard to case, knows it already."""
        unique = name
        number = 1
        while unique in self.network:
            number += 1
            unique = f"{name}_{number}"
        keywords = {key: attributes.pop(key) for key in ("shape", "tags") if key in attributes}
        return self.network.add(operation, unique, inputs, attributes, **keywords)

    def parameter(self, name: str, value: Any, rate: float = 0.0) -> Node:
        """A parameter, made once: of CNTK's shape, learned at `rate` times the learning rate."""
        node = self._parameters.get(name)
        if node is None:
            array = np.asfortranarray(value, np.float32)
            node = self._parameters[name] = self.add(
                "LearnableParameter", name, shape=array.shape, learningRateMultiplier=rate
            )
            node.value = array
        return node

    def constant(self, name: str, value: Any) -> Node:
        """A parameter that does not learn."""
        return self.parameter(name, value)

    def rows(self, node: Node, begin: int, count: int, name: str) -> Node:
        """Some elements of the samples of a node."""
        return self.add("Slice", name, [node], beginIndex=begin, endIndex=begin + count, axis=1)


def _at(offset: int) -> str:
    """What a node's name ends with at an offset: `.m3` for three frames before."""
    return f".{_frame(offset)}" if offset else ""


def _frame(offset: int) -> str:
    return f"{'m' if offset < 0 else 'p'}{abs(offset)}"


def _time_offsets(component: Component) -> Sequence[int]:
    """The frames that a component puts side by side."""
    offsets = getattr(component, "time_offsets", None)
    return offsets or getattr(component, "all_time_offsets", (0,))


def _parts(
    name: str, descriptor: d.Descriptor, dims: dict[str, int], nodes: dict[str, NetworkNode]
) -> Iterator[Part]:
    for part in descriptor.parts:
        for summand in _summands(part):
            if not isinstance(summand, (d.SimpleSumDescriptor, d.ConstantSumDescriptor)):
                refuse(name, f"what {summand} reads depends on where an utterance ends")
        leaves = tuple(_read(name, leaf, nodes) for leaf in part.leaves())
        yield Part(leaves, part.constant(), part.dim(dims))


def _summands(part: d.SumDescriptor) -> Iterator[d.SumDescriptor]:
    if isinstance(part, d.BinarySumDescriptor) and part.op == "Sum":
        yield from _summands(part.a)
        yield from _summands(part.b)
    else:
        yield part


def _read(name: str, leaf: d.ForwardingDescriptor, nodes: dict[str, NetworkNode]) -> Read:
    whole = leaf
    offset = 0
    fixed = False
    while not isinstance(leaf, d.SimpleForwardingDescriptor):
        if isinstance(leaf, d.OffsetForwardingDescriptor) and not leaf.x:
            offset += leaf.t
            leaf = leaf.src
        elif isinstance(leaf, d.ReplaceIndexForwardingDescriptor) and leaf.variable == "t":
            leaf = leaf.src
            if not isinstance(leaf, d.SimpleForwardingDescriptor) or nodes[leaf.node].kind != INPUT:
                refuse(name, f"{whole} is one frame for all, and that not of an input")
            fixed = True
        else:
            refuse(name, f"{whole} is not the same distance from every frame")
    return Read(leaf.node, offset, float(np.float32(leaf.scale)), fixed)
