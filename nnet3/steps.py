"""Steps: the rows of the computation graph in batches that are computed at once, in order.

Source: Kaldi's ComputationStepsComputer. All rows of a step belong to one node, and everything that
they read stands in earlier steps. Besides:
(a) an input or output of the request is one step, with the rows in the order of the request;
(b) a component's step stands right behind the step of its own descriptor node, which for a simple
    component has the same indexes; some other components reorder and pad both (`reorder_indexes`);
(c) a dim-range's step has exactly the rows of the step that it is a column range of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..framework.errors import ShapeError
from .compute.time_grid import reorder_indexes
from .dependence import SAME
from .graph import Graph, Segment
from .indexes import X_BITS, Columns, pack_tx, unpack_tx
from .request import ComputationRequest
from .row_table import Query, RowTable
from .time_graph import Level
from .topology import FLAGS, Topology

Parts = list[tuple[int, np.ndarray]]  # numbers of groups with keys
_EMPTY = np.zeros(0, np.int64)


@dataclass(slots=True)
class Step:
    """One batch: a node, its rows, and whether they are given by the caller.

    `source` is for a dim-range the number of the step whose columns it takes; `segment` is the
    number of the request that the step is made for.
    """

    node: int
    columns: Columns
    is_input: bool = False
    source: int = -1
    segment: int = 0

    def __len__(self) -> int:
        return self.columns.size

    @property
    def indexes(self) -> np.ndarray:
        """int32 [rows, 3]: n, t, x; the t of a padding row is NO_TIME."""
        return self.columns.indexes


class Steps:
    """The sequence of steps of a graph.

    Attributes:
        steps: the steps in order.
        starts: the number of the first row of each step when rows are numbered throughout.
        num_phases: how many phases (sets of rows that become computable together) there were.
    """

    def __init__(self, graph: Graph):
        self.topology: Topology = graph.topology
        self.steps: list[Step] = []
        self.starts: list[int] = [0]
        self.num_phases = 0
        self._graph = graph
        self._ranges: dict[tuple[int, int], int] = {}
        self._expanded: dict[tuple[int, bytes], Columns] = {}  # group, keys -> rows
        self._keys_of: dict[int, tuple[int, np.ndarray]] = {}  # id of rows -> group, keys
        self._shifted: dict[tuple[int, int, int], Columns | None] = {}
        self._of_columns: dict[tuple[int, int], int] = {}  # node, id of the columns -> step
        self._segment = 0
        for self._segment, request in enumerate(graph.requests):
            self._add_phases(request)

    @cached_property
    def start_array(self) -> np.ndarray:
        """`starts` as an array."""
        return np.array(self.starts)

    @cached_property
    def step_of_row(self) -> np.ndarray:
        """The step of every row, when rows are numbered throughout."""
        return np.repeat(np.arange(len(self.steps)), np.diff(self.start_array))

    def table(self, nodes: set[int]) -> RowTable:
        """The rows of some nodes."""
        starts = zip(self.steps, self.starts, strict=False)
        return RowTable(
            [(step.node, step.columns, start) for step, start in starts if step.node in nodes]
        )

    def whole(self, node: int, columns: Columns | None) -> int:
        """The step of `node` that has just these rows, if that is known at once; else -1."""
        return self._of_columns.get((node, id(columns)), -1)

    def shifted(self, columns: Columns, t: int, x: int) -> Columns | None:
        """The rows of `columns`, shifted by t and x, if there is such a list; else None."""
        key = id(columns), t, x
        if key not in self._shifted:
            number, keys = self._keys_of.get(id(columns), (-1, _EMPTY))
            name = number, (keys + ((t << X_BITS) + x)).tobytes()
            self._shifted[key] = self._expanded.get(name)
        return self._shifted[key]

    def to_text(self) -> str:
        """Epochs, counts and the steps with their indexes, one line each."""
        nodes, graph = self.topology.nodes, self._graph
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
        given = {topology.number(io.name): io for io in request.inputs if len(io.indexes)}
        self.num_phases += bool(given)
        for node in sorted(given):
            self._add(node, Columns.of(given[node].indexes.copy()), is_input=True)
        segments = [group.segments[self._segment] for group in self._graph.groups]
        for number, segment in enumerate(segments):
            self._expand(number, segment)
        for epoch, (members, is_loop) in enumerate(topology.stages):
            if not is_loop:  # one node, and so one phase
                self._add_phase(members[0], segments)
                continue
            phases: dict[tuple[int, int], Parts] = {}  # by level and node
            for number, segment in enumerate(segments):
                for level, node, keys in segment.loops.get(epoch) or _one_level(segment, members):
                    phases.setdefault((level, node), []).append((number, keys))
            self.num_phases += 1 + max([level for level, _ in phases], default=-1)
            for place in sorted(phases) if len(segments) > 1 else phases:
                self._add_rows(place[1], phases[place])

    def _add_phase(self, node: int, segments: list[Segment]) -> None:
        """All rows of a node at once."""
        listed = [segment.rows.get(node, _EMPTY) for segment in segments]
        parts = [(number, keys) for number, keys in enumerate(listed) if len(keys)]
        if parts:
            self.num_phases += 1
            self._add_rows(node, parts)

    def _expand(self, number: int, segment: Segment) -> None:
        """The rows of all lists of keys of a segment, for every n of its group, made together."""
        listed = [keys for loop in segment.loops.values() for _, _, keys in loop]
        kinds = self.topology.nodes
        listed += [keys for node, keys in segment.rows.items() if not kinds[node].is_output]
        self._add_lists(number, {keys.tobytes(): keys for keys in listed if len(keys)})

    def _add_lists(self, number: int, lists: dict[bytes, np.ndarray]) -> None:
        new = {name: keys for name, keys in lists.items() if (number, name) not in self._expanded}
        if new:
            rows = Columns.product(self._graph.groups[number].ns, list(new.values()))
            for (name, keys), columns in zip(new.items(), rows, strict=True):
                self._expanded[number, name] = columns
                self._keys_of[id(columns)] = number, keys

    def _merge(self, parts: Parts) -> Columns:
        """All rows of the groups, sorted by t, x, n; equal lists are one object."""
        expanded = []
        for number, keys in parts:
            name = keys.tobytes()
            if (number, name) not in self._expanded:
                self._add_lists(number, {name: keys})
            expanded.append(self._expanded[number, name])
        if len(expanded) == 1:
            return expanded[0]
        n, t, x = (np.concatenate([getattr(c, name) for c in expanded]) for name in "ntx")
        order = np.lexsort((n, x, t))
        return Columns(n[order], t[order], x[order])

    # Steps

    def _add_rows(self, node: int, parts: Parts) -> None:
        """The steps of the rows of a node in one phase."""
        info = self.topology.nodes[node]
        if info.kind == "component":
            self._add_component(node, parts)
        elif info.is_output:
            self._add_output(node, parts)
        elif info.kind == "dim-range":
            self._add_dim_range(node, self._merge(parts))

    def _add(self, node: int, columns: Columns, is_input: bool = False, source: int = -1) -> int:
        number = len(self.steps)
        self.steps.append(Step(node, columns, is_input, source, self._segment))
        self.starts.append(self.starts[-1] + columns.size)
        if columns.real is None:
            self._of_columns[node, id(columns)] = number
        return number

    def _add_output(self, node: int, parts: Parts) -> None:
        name = self.topology.nodes[node].name
        io = self._graph.requests[self._segment].find(name, output=True)
        count = sum(len(self._graph.groups[number].ns) * len(keys) for number, keys in parts)
        if io is None or len(io.indexes) != count:
            raise ShapeError(
                f"output '{name}' is computed in parts: it must not be inside a loop of the network"
            )
        self._add(node, Columns.of(io.indexes.copy()))

    def _add_component(self, node: int, parts: Parts) -> None:
        info = self.topology.nodes[node]
        columns = inputs = self._merge(parts)
        if not info.properties & FLAGS.SIMPLE:
            read = [(number, self._component_input(node, number, keys)) for number, keys in parts]
            read = [(number, keys) for number, keys in read if len(keys)]
            inputs = self._merge(read) if read else Columns.of(np.zeros((0, 3), np.int32))
        if info.properties & FLAGS.REORDERS_INDEXES:
            inputs, columns = reorder_indexes(info.component, inputs, columns)
        self._add(node - 1, inputs)
        self._add(node, columns)

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
        wanted = np.unique(np.concatenate([pack_tx(t, x) for _, t, x in places]))
        place = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
        return wanted[there[place] == wanted]

    def _add_dim_range(self, node: int, columns: Columns) -> None:
        of = self.topology.nodes[node].source
        sources = [self.whole(of, columns)]
        if sources[0] < 0:
            rows = self.table({of}).find(Query(of, columns))
            numbers = np.searchsorted(self.starts, rows, side="right") - 1
            _, first = np.unique(numbers, return_index=True)
            sources = hash_order(numbers[np.sort(first)].tolist())
        for source in sources:
            if (source, node) not in self._ranges:
                added = self._add(node, self.steps[source].columns, source=source)
                self._ranges[source, node] = added


def _one_level(segment: Segment, members: list[int]) -> list[Level]:
    return [(0, node, segment.rows[node]) for node in members if len(segment.rows.get(node, ()))]


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
            kept, order = order, []
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
