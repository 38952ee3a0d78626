"""The steps of a computation: rows of the graph that are computed at once, in order.

Source: Kaldi's ComputationStepsComputer. All rows of a step belong to one node, and everything that
they read stands in earlier steps. Besides:
(a) an input or output of the request is one step, with the rows in the order of the request;
(b) a component's step stands right after the step of its own descriptor node, which for a simple
    component has the same indexes; others reorder and pad both (`Component.reorder`);
(c) a dim-range's step has exactly the rows of the step that it is a column range of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.python.cached import cached_property
from ...framework.base.sequence import repeated
from ..components.base.dependence import SAME
from ..graph.graph import Graph, Segment
from ..graph.request import ComputationRequest
from ..graph.time_graph import Level
from ..graph.topology import Topology
from ..graph.topology_node import FLAGS
from ..index.aligned import align, align_listed
from ..index.indexes import Columns, Family, distinct, pack_tx, unpack_tx
from ..index.row_table import Query, RowTable

GroupKeys: TypeAlias = list[tuple[int, np.ndarray]]
"""Numbers of groups, each with packed keys of (t, x)."""
_ROWS_DIFFER = FLAGS.SIMPLE | FLAGS.REORDERS_INDEXES


class NnetStep(NamedTuple):
    """One batch: a node, its rows, and whether they are given by the caller.

    `source` is for a dim-range the number of the step whose columns it takes; `segment` is the
    number of the request that the step is made for.
    """

    node: int
    columns: Columns
    is_input: bool = False
    source: int = -1
    segment: int = 0

    @property
    def indexes(self) -> np.ndarray:
        """int32 [rows, 3]: n, t, x; the t of a padding row is NO_TIME."""
        return self.columns.indexes


# Makes a step from a tuple in half the time of a call of the class.
_nnet_step = cast(Callable[[tuple[Any, ...]], NnetStep], partial(tuple.__new__, NnetStep))


class NnetSteps:
    """The sequence of steps of a graph.

    Attributes:
        steps: the steps in order.
        at: for every node its steps: their numbers by the id of their columns, in order.
    """

    def __init__(self, graph: Graph):
        self.topology: Topology = graph.topology
        self.steps: list[NnetStep] = []
        self.at: list[dict[int, int]] = [{} for _ in graph.topology.nodes]
        self._graph = graph
        self._family: Family | None = None  # of the one group of the one request, if that is known
        self._of_keys: dict[int, Columns] = {}  # id of a list of keys of the graph -> its rows
        self._of_content: dict[tuple[int, bytes], Columns] = {}  # group, other lists -> rows
        self._segment = 0
        for self._segment, request in enumerate(graph.requests):
            self._add_phases(request)

    @cached_property
    def starts(self) -> np.ndarray:
        """The number of the first row of each step when rows are numbered throughout."""
        return np.cumsum([0, *[step.columns.size for step in self.steps]])

    @cached_property
    def step_of_row(self) -> np.ndarray:
        """The step of every row, when rows are numbered throughout."""
        return repeated(np.arange(len(self.steps)), np.diff(self.starts))

    def table(self, nodes: set[int]) -> RowTable:
        """The rows of some nodes, of the steps there are."""
        numbers = sorted(number for node in nodes for number in self.at[node].values())
        starts = np.cumsum([0, *[step.columns.size for step in self.steps]]).tolist()
        chosen = [(self.steps[number], starts[number]) for number in numbers]
        return RowTable([(step.node, step.columns, start) for step, start in chosen])

    @property
    def num_phases(self) -> int:
        """How many phases (sets of rows that become computable together) there were."""
        count = 0
        for number, request in enumerate(self._graph.requests):
            count += any(len(io.indexes) for io in request.inputs)
            levels: dict[int, int] = {}  # by epoch
            for group in self._graph.groups:
                segment = group.segments[number]
                there = [node for node, keys in segment.rows.items() if len(keys)]
                levels.update((self.topology.epochs[node], 1) for node in there)
            for group in self._graph.groups:
                for epoch, loop in group.segments[number].loops.items():
                    levels[epoch] = max(levels[epoch], 1 + loop[-1][0])
            count += sum(levels.values())
        return count

    def to_text(self) -> str:
        """Epochs, counts and the steps with their indexes, one line each."""
        nodes = self.topology.nodes
        graph = self._graph
        lines = [
            f"epoch {node.name} {epoch}"
            for node, epoch in zip(nodes, self.topology.epochs, strict=True)
        ]
        lines.append(f"cindexes-before-prune {graph.num_candidates}")
        lines.append(f"cindexes {graph.num_cindexes}")
        lines.append(f"phases {self.num_phases}")
        for number, step in enumerate(self.steps):
            rows = " ".join(",".join(map(str, row)) for row in step.indexes.tolist())
            shown = f"{nodes[step.node].name} {rows}" if rows else "(empty)"
            lines.append(f"step {number} {shown}")
        return "\n".join(lines) + "\n"

    # Phases

    def _add_phases(self, request: ComputationRequest) -> None:
        topology = self.topology
        segments = [group.segments[self._segment] for group in self._graph.groups]
        for number, segment in enumerate(segments):
            self._expand(number, segment)
        inputs = {topology.number(io.name): io for io in request.inputs if len(io.indexes)}
        for node in sorted(inputs):
            self._add(node, self._listed(node, inputs[node].indexes, False), is_input=True)
        for members, is_loop in topology.units.stages:
            epoch = topology.epochs[members[0]]
            if len(segments) == 1:
                levels = segments[0].loops.get(epoch) if is_loop else None
                for _, node, keys in levels or _one_level(segments[0], members):
                    self._add_rows(node, self._of_keys[id(keys)], [(0, keys)])
                continue
            phases: dict[tuple[int, int], GroupKeys] = {}  # by level and node
            for number, segment in enumerate(segments):
                for level, node, keys in segment.loops.get(epoch) or _one_level(segment, members):
                    phases.setdefault((level, node), []).append((number, keys))
            for place in sorted(phases):
                self._add_rows(place[1], self._merge(phases[place]), phases[place])

    # Lists of rows

    def _expand(self, number: int, segment: Segment) -> None:
        """The rows of all lists of keys of a segment, for every n of its group, made together."""
        ns = self._graph.groups[number].ns
        if segment.times is not None:
            family = align(ns, segment.times.sets)
            for keys, columns in zip(segment.times.sets.values(), family.values(), strict=True):
                self._of_keys[id(keys)] = columns
            if len(self._graph.groups) == len(self._graph.requests) == 1:
                self._family = family
            return
        listed = [keys for loop in segment.loops.values() for _, _, keys in loop]
        listed += segment.rows.values()
        different = {keys.tobytes(): keys for keys in listed if len(keys)}
        if different:
            rows = dict(zip(different, Columns.product(ns, list(different.values())), strict=True))
            self._of_keys.update((id(keys), rows[keys.tobytes()]) for keys in listed if len(keys))

    def _merge(self, keys_of: GroupKeys) -> Columns:
        """All rows of the groups, sorted by t, x, n; equal lists are one object."""
        if len(keys_of) == 1:
            return self._rows(*keys_of[0])
        expanded = [self._rows(*pair) for pair in keys_of]
        n, t, x = (np.concatenate([getattr(c, name) for c in expanded]) for name in "ntx")
        order = np.lexsort((n, x, t))
        return Columns(n[order], t[order], x[order])

    def _rows(self, number: int, keys: np.ndarray) -> Columns:
        """The rows of a list of keys of a group."""
        columns = self._of_keys.get(id(keys))
        if columns is not None:
            return columns
        name = number, keys.tobytes()  # the list is not one of the graph's
        if name not in self._of_content:
            (self._of_content[name],) = Columns.product(self._graph.groups[number].ns, [keys])
        return self._of_content[name]

    def _listed(self, node: int, indexes: np.ndarray, output: bool) -> Columns:
        """The rows of an input or output, in the order of the request."""
        columns = Columns.of(indexes.copy())
        if self._family is not None:
            (group,) = self._graph.groups
            (segment,) = group.segments
            times = segment.times
            assert times is not None  # as the family has these times
            sets = times.wanted if output else times.available
            keys = dict(segment.outputs if output else segment.inputs)[node]
            align_listed(columns, self._family, sets[node], keys, len(group.ns))
        return columns

    # Steps

    def _add_rows(self, node: int, columns: Columns, keys_of: GroupKeys) -> None:
        """The steps of the rows of a node in one phase; `keys_of` lists the rows by group."""
        info = self.topology.nodes[node]
        if info.kind == "component":
            inputs = columns
            if info.properties & _ROWS_DIFFER != FLAGS.SIMPLE:
                inputs, columns = self._component_rows(node, columns, keys_of)
            number = len(self.steps)
            segment = self._segment
            self.at[node - 1][id(inputs)], self.at[node][id(columns)] = number, number + 1
            self.steps.append(_nnet_step((node - 1, inputs, False, -1, segment)))
            self.steps.append(_nnet_step((node, columns, False, -1, segment)))
        elif info.kind == "dim-range":
            source = self.at[info.source].get(id(columns))
            for number in self._sources(info.source, columns) if source is None else (source,):
                columns = self.steps[number].columns
                if id(columns) not in self.at[node]:
                    self._add(node, columns, False, number)
        elif info.is_output:
            self._add_output(node, columns)

    def _add(self, node: int, columns: Columns, is_input: bool = False, source: int = -1) -> None:
        self.at[node][id(columns)] = len(self.steps)
        self.steps.append(_nnet_step((node, columns, is_input, source, self._segment)))

    def _add_output(self, node: int, columns: Columns) -> None:
        name = self.topology.nodes[node].name
        io = self._graph.requests[self._segment].find(name, output=True)
        if io is None or len(io.indexes) != columns.size:
            raise ShapeError(
                f"output '{name}' is computed in parts: it must not be inside a loop of the network"
            )
        self._add(node, self._listed(node, io.indexes, True))

    def _component_rows(
        self, node: int, outputs: Columns, keys_of: GroupKeys
    ) -> tuple[Columns, Columns]:
        """The input rows of a component for some output rows, and these, both as it orders them."""
        info = self.topology.nodes[node]
        inputs = outputs
        if not info.properties & FLAGS.SIMPLE:
            read = [(number, self._component_input(node, number, keys)) for number, keys in keys_of]
            read = [(number, keys) for number, keys in read if len(keys)]
            inputs = self._merge(read) if read else Columns.of(np.zeros((0, 3), np.int32))
        if info.properties & FLAGS.REORDERS_INDEXES:
            return info.component.reorder(inputs, outputs)
        return inputs, outputs

    def _component_input(self, node: int, number: int, keys: np.ndarray) -> np.ndarray:
        """The keys of the descriptor node that the rows of a component really use."""
        if self.topology.nodes[node].reads is SAME:
            return keys
        segment = self._graph.groups[number].segments[self._segment]
        rows = segment.rows
        if len(keys) == len(rows[node]) and node - 1 not in segment.known:
            return rows.get(node - 1, keys[:0])
        places = self.topology.dependencies(node, *unpack_tx(keys))
        there = segment.there(node - 1)
        if not len(there) or not places:
            return keys[:0]
        wanted = distinct(np.concatenate([pack_tx(t, x) for _, t, x in places]))
        place = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
        return wanted[there[place] == wanted]

    def _sources(self, node: int, columns: Columns) -> list[int]:
        """The steps that have some rows of a node, as Kaldi lists them."""
        rows = self.table({node}).find(Query(node, columns))
        starts = np.cumsum([0, *[step.columns.size for step in self.steps]])
        numbers = np.searchsorted(starts, rows, side="right") - 1
        _, first = np.unique(numbers, return_index=True)
        return hash_order(numbers[np.sort(first)].tolist())


def _one_level(segment: Segment, members: list[int]) -> list[Level]:
    rows = segment.rows
    return [(0, node, rows[node]) for node in members if node in rows and len(rows[node])]


_BUCKETS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043)


def hash_order(values: list[int]) -> list[int]:
    """The order in which GNU's unordered_set<int> lists different values added in this order.

    Kaldi's steps and commands follow such lists, so equal results need an equal order: a value
    joins the front of its bucket's run, or the front of all where its bucket is empty.
    """
    if len(values) < 2:
        return values
    order: list[int] = []
    size = 0
    for value in values:
        if len(order) == _BUCKETS[size]:
            size += 1
            kept = order
            order = []
            for other in kept:
                _join(order, other, _BUCKETS[size])
        _join(order, value, _BUCKETS[size])
    return order


def _join(order: list[int], value: int, buckets: int) -> None:
    for i, other in enumerate(order):
        if other % buckets == value % buckets:
            order.insert(i, value)
            return
    order.insert(0, value)
