"""The cindexes of a request: the rows of every node, what they read, and what can be computed.

A cindex is a node with an index (n, t, x). Source: ComputationGraph and ComputationGraphBuilder in
Kaldi's `nnet3/nnet-computation-graph.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import FormatError, ShapeError, nearest
from ...framework.base.python.cached import cached_property
from ..graph.computable import COMPUTABLE, NOT_COMPUTABLE, UNKNOWN, Explorer
from ..graph.graph import group_sequences
from ..graph.request import ComputationRequest
from ..graph.topology import Topology
from ..index.ranges import format_numbers, format_rows

_MOST_IN_LINE, _MOST_DEPENDENCIES = 50, 5  # of Kaldi's print


class Cindex(NamedTuple):
    """A row of a node."""

    node: str
    n: int
    t: int
    x: int = 0

    def __str__(self) -> str:
        return f"{self.node}({self.n},{self.t}{f',{self.x}' if self.x else ''})"


class Group(NamedTuple):
    """Sequences of which a request wants the same rows, and the rows that were looked at."""

    ns: list[int]
    explorer: Explorer


class Exploration:
    """All rows that a request may need, looked at one by one as Kaldi does; the ground of parts.

    Attributes:
        groups: the sequences in groups of equal requests.

    Raises:
        FormatError, ShapeError: the request does not fit the network.
    """

    def __init__(self, topology: Topology, request: ComputationRequest) -> None:
        self.topology = topology
        self.groups = [
            Group(group.ns.tolist(), group.segments[0].explore(topology))
            for group in group_sequences(topology, [request])
        ]

    @cached_property
    def all_computable(self) -> bool:
        """Whether every output can be computed."""
        return all(
            group.explorer.state[row] == COMPUTABLE
            for group in self.groups
            for row in group.explorer.outputs
        )

    @cached_property
    def needed(self) -> list[list[int]]:
        """For each group the rows that the outputs need, and those that are given.

        Outputs that cannot be computed need nothing.
        """
        return [group.explorer.required() for group in self.groups]

    def number(self, name: str) -> int:
        """The number of a node.

        Raises:
            FormatError: there is none of that name.
        """
        if name not in self.topology.index:
            hint = nearest(name, self.topology.index)
            raise FormatError(f"the network has no node '{name}'{hint}")
        return self.topology.index[name]

    def by_node(self, chosen: Iterable[Iterable[int]]) -> dict[int, np.ndarray]:
        """For every node its rows among the chosen ones of each group, sorted, [rows, 3]."""
        places: dict[int, list[tuple[int, int, int]]] = {}
        for group, rows in zip(self.groups, chosen, strict=True):
            listed = group.explorer.rows
            for row in rows:
                node, t, x = listed[row]
                places.setdefault(node, []).extend((n, t, x) for n in group.ns)
        return {node: sorted_rows(places[node]) for node in sorted(places)}


def sorted_rows(rows: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """Indexes as Kaldi sorts them, by t, x and n: int32 [rows, 3]."""
    array = np.array(sorted(rows, key=lambda row: (row[1], row[2], row[0])), np.int32)
    return array.reshape(-1, 3)


class Cindexes:
    """The cindexes that a request needs, the given ones included, with what each reads.

    `cindexes["NODE"]` are the rows of a node, int32 [rows, 3], sorted by t, x and n.

    Args:
        exploration: all rows that were looked at.
    """

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._rows = exploration.by_node(exploration.needed)

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __iter__(self) -> Iterator[Cindex]:
        nodes = self._exploration.topology.nodes
        for node, rows in self._rows.items():
            for n, t, x in rows.tolist():
                yield Cindex(nodes[node].name, n, t, x)

    def __getitem__(self, node: str) -> np.ndarray:
        number = self._exploration.number(node)
        return self._rows.get(number, np.zeros((0, 3), np.int32))

    @property
    def nodes(self) -> list[str]:
        """The nodes that have rows."""
        return [self._exploration.topology.nodes[node].name for node in self._rows]

    @cached_property
    def before_pruning(self) -> int:
        """How many cindexes there were before those that nothing needs were dropped."""
        return sum(len(group.ns) * len(group.explorer.rows) for group in self._exploration.groups)

    def dependencies(self, node: str, t: int, n: int = 0, x: int = 0) -> list[Cindex]:
        """The cindexes that one reads, sorted; none where it is given.

        Raises:
            FormatError: there is no node of that name.
            ShapeError: the request does not need this row.
        """
        number = self._exploration.number(node)
        names = self._exploration.topology.nodes
        for group, places in zip(self._exploration.groups, self._places, strict=True):
            row = places.get((number, t, x)) if n in group.ns else None
            if row is not None:
                read = sorted(group.explorer.rows[source] for source in group.explorer.used(row))
                return [Cindex(names[source].name, n, *at) for source, *at in read]
        raise ShapeError(
            f"the request needs no row {Cindex(node, n, t, x)}; of '{node}' it needs"
            f" {format_rows(self[node])[:200] or 'none'}"
        )

    @cached_property
    def _places(self) -> list[dict[tuple[int, int, int], int]]:
        """For each group the numbers of the needed rows by node, t and x."""
        exploration = self._exploration
        return [
            {group.explorer.rows[row]: row for row in needed}
            for group, needed in zip(exploration.groups, exploration.needed, strict=True)
        ]

    def __str__(self) -> str:
        """A line for all rows of a node that read alike: how many, which, and what they read."""
        nodes = self._exploration.topology.nodes
        lines = []
        for node, patterns in self._patterns().items():
            for read, rows in patterns.items():
                listed = sorted_rows(rows)
                lines.append((nodes[node].name, str(len(listed)), format_rows(listed), read))
        widths = [max((len(line[i]) for line in lines), default=0) for i in range(3)]
        shown = [
            f"{name:<{widths[0]}}  {count:>{widths[1]}}  {rows:<{widths[2]}}  {read}".rstrip()
            for name, count, rows, read in lines
        ]
        return "\n".join([f"{len(self)} cindexes, {self.before_pruning} before pruning", *shown])

    def _patterns(self) -> dict[int, dict[str, list[tuple[int, int, int]]]]:
        """For every node the texts of what its rows read, each with these rows."""
        by_text: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
        for group, needed in zip(self._exploration.groups, self._exploration.needed, strict=True):
            by_node: dict[int, list[int]] = {}
            for row in needed:
                by_node.setdefault(group.explorer.rows[row][0], []).append(row)
            for node, rows in by_node.items():
                patterns = by_text.setdefault(node, {})
                for row, read in zip(rows, self._texts(group.explorer, rows), strict=True):
                    _, t, x = group.explorer.rows[row]
                    patterns.setdefault(read, []).extend((n, t, x) for n in group.ns)
        return {node: by_text[node] for node in sorted(by_text)}

    def _texts(self, explorer: Explorer, rows: list[int]) -> list[str]:
        """What each of some rows of one node reads."""
        if rows[0] < explorer.num_available:
            return ["given"] * len(rows)
        nodes = self._exploration.topology.nodes
        places = [explorer.rows[row] for row in rows]
        read = [[explorer.rows[source] for source in explorer.used(row)] for row in rows]
        texts: list[list[str]] = [[] for _ in rows]
        for source in sorted({place[0] for listed in read for place in listed}):
            fixed = [tuple(sorted(at[1:] for at in listed if at[0] == source)) for listed in read]
            moved = [
                tuple((at - t, by - x) for at, by in listed)
                for listed, (_, t, x) in zip(fixed, places, strict=True)
            ]
            # the form in which more rows are alike: `t-1,t+1`, or `at 0`
            by_offset = len(set(moved)) <= len(set(fixed))
            for text, listed in zip(texts, moved if by_offset else fixed, strict=True):
                if listed:
                    text.append(f"{nodes[source].name} {_read(listed, by_offset)}")
        return [f"reads {'; '.join(text)}" if text else "reads nothing" for text in texts]

    def to_kaldi(self) -> str:
        """As Kaldi's `ComputationGraph::Print` (with `--verbose=4`): 50 cindexes of each node."""
        places: dict[int, list[tuple[int, int, int, int, int]]] = {}  # t, x, n, group, row
        for number, group in enumerate(self._exploration.groups):
            for row in self._exploration.needed[number]:
                node, t, x = group.explorer.rows[row]
                places.setdefault(node, []).extend((t, x, n, number, row) for n in group.ns)
        lines = []
        for node in sorted(places):
            shown = [self._line(node, *place) for place in sorted(places[node])[:_MOST_IN_LINE]]
            more = "..." if len(places[node]) > _MOST_IN_LINE else ""
            lines.append("".join(f"[ {text} ] " for text in shown) + more)
        return "\n".join(lines) + "\n"

    def _line(self, node: int, t: int, x: int, n: int, group: int, row: int) -> str:
        """A row with the first of those that it reads."""
        nodes = self._exploration.topology.nodes
        explorer = self._exploration.groups[group].explorer
        cindex = str(Cindex(nodes[node].name, n, t, x))
        if row < explorer.num_available:
            return cindex
        read = sorted(explorer.rows[source] for source in explorer.used(row))
        first = [str(Cindex(nodes[at].name, n, *rest)) for at, *rest in read[:_MOST_DEPENDENCIES]]
        more = ", ..." if len(read) > _MOST_DEPENDENCIES else ""
        return f"{cindex} -> {', '.join(first)}{more}"


def _read(places: tuple[tuple[int, ...], ...], by_offset: bool) -> str:
    """`t-1:t+1`, or `at 0`: sorted places (t, x), as offsets or as they are."""
    times, xs = (sorted({place[i] for place in places}) for i in (0, 1))
    shown = _offsets(times) if by_offset else f"at {format_numbers(np.array(times))}"
    if xs == [0]:
        return shown
    return f"{shown} x{'+' if by_offset else ' '}{format_numbers(np.array(xs))}"


def _offsets(times: list[int]) -> str:
    """`t`, `t-2`, `t-1:t+1`: offsets in time, those that follow each other as a range."""
    runs: list[list[int]] = []
    for time in times:
        if runs and time == runs[-1][-1] + 1:
            runs[-1].append(time)
        else:
            runs.append([time])
    shown = [f"t{time:+d}" if time else "t" for run in runs for time in (run[0], run[-1])]
    firsts = shown[::2]
    lasts = shown[1::2]
    return ",".join(
        first if first == last else f"{first}:{last}"
        for first, last in zip(firsts, lasts, strict=True)
    )


class Computable:
    """Which of the rows that may be needed can be computed: all that Kaldi's builder looks at.

    Unlike other parts it is there for requests whose outputs cannot be computed, and shows why.

    Args:
        exploration: all rows that were looked at.
    """

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration

    def __bool__(self) -> bool:
        """Whether every output can be computed."""
        return self._exploration.all_computable

    def rows(self, node: str, computable: bool = True) -> np.ndarray:
        """The rows of a node that can be computed (or not), sorted, int32 [rows, 3].

        Raises:
            FormatError: there is no node of that name.
        """
        number = self._exploration.number(node)
        state = COMPUTABLE if computable else NOT_COMPUTABLE
        return self._in_state({state}).get(number, np.zeros((0, 3), np.int32))

    def _in_state(self, states: set[int], available: bool | None = None) -> dict[int, np.ndarray]:
        chosen = [
            [
                row
                for row, state in enumerate(group.explorer.state)
                if state in states and available in (None, row < group.explorer.num_available)
            ]
            for group in self._exploration.groups
        ]
        return self._exploration.by_node(chosen)

    def __str__(self) -> str:
        """For each node its rows that are given, computable, not computable, not followed."""
        nodes = self._exploration.topology.nodes
        parts = {
            "given": self._in_state({COMPUTABLE}, available=True),
            "computable": self._in_state({COMPUTABLE}, available=False),
            "not computable": self._in_state({NOT_COMPUTABLE}),
            "not followed": self._in_state({UNKNOWN}),
        }
        lines = [
            "all outputs can be computed" if self else "not all outputs can be computed",
        ]
        present = sorted({node for rows in parts.values() for node in rows})
        width = max((len(nodes[node].name) for node in present), default=0)
        for node in present:
            for word, by_node in parts.items():
                if node in by_node:
                    rows = format_rows(by_node[node])
                    lines.append(f"{nodes[node].name:<{width}}  {word:<14}  {rows}")
        return "\n".join(lines)

    def to_kaldi(self) -> str:
        """A line for each row, as Kaldi explains why an output is not computable."""
        lines = []
        for group in self._exploration.groups:
            for n in group.ns:
                for row in range(len(group.explorer.rows)):
                    lines.append(group.explorer.describe(row, n))
        return "\n".join(lines) + "\n"
