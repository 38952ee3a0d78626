"""Steps: the rows of the computation graph in batches that are computed at once, in order.

Source: Kaldi's ComputationStepsComputer. All rows of a step belong to one node, and everything that
they read stands in earlier steps. Besides:
(a) an input or output of the request is one step, with the rows in the order of the request;
(b) a component's step stands right behind the step of its own descriptor node, which for a simple
    component has the same indexes; some other components reorder and pad both (`reorder_indexes`);
(c) a dim-range's step has exactly the rows of the step that it is a column range of.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..framework.errors import ShapeError
from .compute.time_grid import reorder_indexes
from .graph import Graph, Group
from .indexes import Columns, RowTable, pack_tx, unpack_tx
from .request import ComputationRequest
from .topology import FLAGS, Topology

Parts = list[tuple[Group, np.ndarray]]


@dataclass
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
        self._tables: dict[int, RowTable] = {}
        self._ranges: dict[tuple[int, int], int] = {}
        self._expanded: dict[bytes, Columns] = {}
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
        return np.repeat(np.arange(len(self.steps)), np.diff(self.starts))

    def find(self, node: int, columns: Columns, t: int = 0, x: int = 0) -> np.ndarray:
        """The number of the row of each index of `node`, shifted by t and x; -1 where none.

        Of several rows with one index it is the latest.
        """
        table = self._tables.get(node)
        if table is None:
            return np.full(len(columns), -1, np.int32)
        return table.find(columns, t, x)

    def whole(self, node: int, columns: Columns) -> int:
        """The step of `node` that has just these rows, if that is known at once; else -1."""
        return self._of_columns.get((node, id(columns)), -1)

    def find_places(self, node: int | np.ndarray, columns: Columns) -> np.ndarray:
        """As `find`, of a node for each index."""
        if not isinstance(node, np.ndarray):
            return self.find(node, columns)
        rows = np.full(len(columns), -1, np.int32)
        for one in np.unique(node).tolist():
            mask = node == one
            rows[mask] = self.find(one, Columns(columns.n[mask], columns.t[mask], columns.x[mask]))
        return rows

    def step_of_all(self, rows: np.ndarray) -> int:
        """The step that all rows belong to; -1 where there are several, or none."""
        if not len(rows) or rows[0] < 0:
            return -1
        step = bisect_right(self.starts, int(rows[0])) - 1
        inside = rows.min() >= self.starts[step] and rows.max() < self.starts[step + 1]
        return step if inside else -1

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
            self._add(Step(node, as_columns(given[node].indexes), is_input=True))
        segments = [group.segments[self._segment] for group in self._graph.groups]
        for epoch in range(len(topology.epoch_members)):
            members = topology.epoch_members[epoch]
            if any(node in segment.levels for segment in segments for node in members):
                self._add_levels(members)
            else:
                self._add_phase({node: self._parts(node) for node in members})

    def _parts(self, node: int) -> Parts:
        listed = [(g, g.segments[self._segment].rows.get(node, ())) for g in self._graph.groups]
        return [(group, keys) for group, keys in listed if len(keys)]  # type: ignore[misc]

    def _add_levels(self, members: list[int]) -> None:
        """The phases of a loop: all rows of one level together."""
        by_level: dict[int, dict[int, Parts]] = {}
        for group in self._graph.groups:
            segment = group.segments[self._segment]
            for node in members:
                if node not in segment.rows:
                    continue
                levels = segment.levels[node]
                order = np.argsort(levels, kind="stable")
                values, starts = np.unique(levels[order], return_index=True)
                rows, bounds = segment.rows[node][order], [*starts.tolist(), len(order)]
                for level, begin, end in zip(values.tolist(), bounds, bounds[1:], strict=False):
                    part = group, rows[begin:end]
                    by_level.setdefault(level, {}).setdefault(node, []).append(part)
        for level in sorted(by_level):
            self._add_phase(by_level[level])

    def _merge(self, parts: Parts) -> Columns:
        """All rows of the groups, sorted by t, x, n."""
        expanded = [self._expand(group.ns, keys) for group, keys in parts]
        if len(expanded) == 1:
            return expanded[0]
        if not expanded:
            return as_columns(np.zeros((0, 3), np.int64))
        n, t, x = (np.concatenate([getattr(c, name) for c in expanded]) for name in "ntx")
        order = np.lexsort((n, x, t))
        return Columns(n[order], t[order], x[order])

    def _expand(self, ns: np.ndarray, keys: np.ndarray) -> Columns:
        """The rows of `keys` for every n; equal lists share their arrays."""
        name = ns.tobytes() + keys.tobytes()
        columns = self._expanded.get(name)
        if columns is None and not len(keys):
            columns = self._expanded[name] = as_columns(np.zeros((0, 3), np.int64))
        if columns is None:
            t, x = unpack_tx(np.repeat(keys, len(ns)))
            columns = self._expanded[name] = Columns(np.tile(ns, len(keys)), t, x)
            # Known at once, as both lists are sorted and there is no padding.
            columns.real = None
            columns.low = int(ns[0]), int(t[0]), int(x.min())
            columns.high = int(ns[-1]), int(t[-1]), int(x.max())
        return columns

    def _add_phase(self, phase: dict[int, Parts]) -> None:
        self.num_phases += any(phase.values())
        for node in sorted(phase):
            info = self.topology.nodes[node]
            if not phase[node]:
                continue
            if info.kind == "component":
                self._add_component(node, phase[node])
            elif info.is_output:
                self._add_output(node, phase[node])
            elif info.kind == "dim-range":
                self._add_dim_range(node, self._merge(phase[node]))

    # Steps

    def _add(self, step: Step) -> int:
        number = len(self.steps)
        step.segment = self._segment
        self.steps.append(step)
        start = self.starts[-1]
        self.starts.append(start + len(step))
        if len(step) and self.topology.nodes[step.node].kind != "descriptor":
            self._table(step).set(step.columns, start)
            if step.columns.real is None:
                self._of_columns[step.node, id(step.columns)] = number
        return number

    def _table(self, step: Step) -> RowTable:
        table = self._tables.get(step.node)
        if table is None:
            node = step.node
            if step.source >= 0:
                node = self.steps[step.source].node
            low, high = [step.columns.low], [step.columns.high]
            count = len(step)
            for group in self._graph.groups:
                for segment in group.segments:
                    for listed in (segment.rows, segment.given):
                        keys = listed.get(node, ())
                        if len(keys):
                            t, x = unpack_tx(keys)
                            low.append((int(group.ns[0]), int(t[0]), int(x.min())))
                            high.append((int(group.ns[-1]), int(t[-1]), int(x.max())))
                            count += len(group.ns) * len(keys)
            least = [min(part) for part in zip(*low, strict=True)]
            most = [max(part) for part in zip(*high, strict=True)]
            table = self._tables[step.node] = RowTable(least, most, count)
        return table

    def _add_output(self, node: int, parts: Parts) -> None:
        name = self.topology.nodes[node].name
        io = self._graph.requests[self._segment].find(name, output=True)
        count = sum(len(group.ns) * len(keys) for group, keys in parts)
        if io is None or len(io.indexes) != count:
            raise ShapeError(
                f"output '{name}' is computed in parts: it must not be inside a loop of the network"
            )
        self._add(Step(node, as_columns(io.indexes)))

    def _add_component(self, node: int, parts: Parts) -> None:
        properties = self.topology.nodes[node].properties
        columns = inputs = self._merge(parts)
        if not properties & FLAGS.SIMPLE:
            inputs = self._merge([self._component_input(node, *part) for part in parts])
        if properties & FLAGS.REORDERS_INDEXES:
            before = inputs.indexes, columns.indexes
            after = reorder_indexes(self.topology.nodes[node].component, *before)
            inputs, columns = map(as_columns, after)
        self._add(Step(node - 1, inputs))
        self._add(Step(node, columns))

    def _component_input(
        self, node: int, group: Group, keys: np.ndarray
    ) -> tuple[Group, np.ndarray]:
        """The keys of the descriptor node that the rows of a component really use."""
        places = self.topology.dependencies(node, *unpack_tx(keys))
        there = group.segments[self._segment].there(node - 1)
        if not len(there) or not places:
            return group, keys[:0]
        wanted = np.unique(np.concatenate([pack_tx(t, x) for _, t, x in places]))
        place = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
        return group, wanted[there[place] == wanted]

    def _add_dim_range(self, node: int, columns: Columns) -> None:
        of = self.topology.nodes[node].source
        sources = [self.whole(of, columns)]
        if sources[0] < 0:
            rows = self.find(of, columns)
            sources = [self.step_of_all(rows)]
        if sources[0] < 0:
            numbers = np.searchsorted(self.starts, rows, side="right") - 1
            _, first = np.unique(numbers, return_index=True)
            sources = hash_order(numbers[np.sort(first)].tolist())
        for source in sources:
            if (source, node) not in self._ranges:
                added = Step(node, self.steps[source].columns, source=source)
                self._ranges[source, node] = self._add(added)


def as_columns(indexes: np.ndarray) -> Columns:
    """The columns of indexes [rows, 3]."""
    return Columns(*np.ascontiguousarray(indexes.T, np.int64))


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
