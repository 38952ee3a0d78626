"""Where the rows of descriptors' steps are read from: their input locations.

Every row of a part of a descriptor is a sum of rows of earlier steps; each of these is an input
location: the number of a step and of a row in it. Mostly all rows of a part come from one step.
Then an array of row numbers is enough, and no list of locations is made for each row. Where the
rows are sets of times (`index/aligned.py`), the sets determine the step and its row. All
other rows are searched together, and the facts of all lists of row numbers are computed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.sequence import repeated
from ..graph.topology import Place, Topology
from ..graph.topology_node import SumFacts
from ..index.aligned import later, rows_among
from ..index.indexes import Aligned, Columns, Family, distinct, is_among, pack_tx
from ..index.row_table import Query, RowTable
from ..index.spans import Spans
from .locations import pack_left
from .steps import NnetSteps


@dataclass(slots=True)
class Summand:
    """The input locations of a part that have the same scale.

    Attributes:
        alpha: the scale.
        single: the step of all locations where each row has at most one and all are in one step;
            else -1.
        row: with `single` the row in that step, int32 [rows]; else int [rows, locations]. -1: none.
            None where `whole`.
        whole: the part reads all rows of the one step, in order.
        step: without `single` the step of each location, shaped as `row`.
        reverse: for each row of the one step the row of the part that reads it, int32, -1 where
            none does. None where more than one row reads it, and before `find_reverse`.
    """

    alpha: float
    single: int
    row: np.ndarray | None
    step: np.ndarray | None = None
    whole: bool = False
    reverse: np.ndarray | None = None

    def rows(self) -> np.ndarray:
        """`row` where the part does not read a whole step."""
        assert self.row is not None
        return self.row

    def any_source(self, chosen: Sequence[int]) -> bool:
        """Whether one of several steps that it reads has an entry in `chosen` that is not 0."""
        assert self.step is not None
        return any(chosen[step] for step in distinct(self.step.ravel()) if step >= 0)


@dataclass(slots=True)
class InputLocations:
    """The input locations of a part of a descriptor's step.

    Attributes:
        facts: the part of the descriptor.
        summands: the input locations by scale.
        value, deriv: sub-matrices: the part's columns of the step's values and derivatives.
    """

    facts: SumFacts
    summands: list[Summand] = field(default_factory=list)
    value: int = 0
    deriv: int = 0


def locate(steps: NnetSteps) -> list[list[InputLocations]]:
    """For every step the input locations of its descriptor's parts; none for other steps.

    Raises:
        OpscopeError: a row that is needed is computed by no step.
    """
    topology, at = steps.topology, steps.at
    located: list[list[InputLocations]] = []
    searched: list[_Searched] = []
    queries: list[Query] = []
    table: RowTable | None = None  # for leaves that are more than an offset of a node
    aligned = _AlignedSteps(steps)
    sums_of = topology.sums
    nothing = list[InputLocations]()
    for number, step in enumerate(steps.steps):
        sums = sums_of[step.node]
        columns = step.columns
        if not sums or not columns.size:
            located.append(nothing)
            continue
        parts: list[InputLocations] = []
        located.append(parts)
        for facts in sums:
            part = InputLocations(facts, [])
            parts.append(part)
            for alpha, node, t in facts.singles or ():
                # In a loop, rows that are shifted in time are often the rows of another step.
                same = later(columns, t) if t else columns
                source = at[node].get(id(same))
                if source is not None:
                    summand: Summand | None = Summand(alpha, source, None, None, True)
                else:
                    summand = _aligned_summand(aligned, columns, alpha, node, t, facts.needs_all)
                    if summand is None:
                        break
                part.summands.append(summand)
            else:
                if facts.singles:
                    continue
            fixed = topology.steps[step.node]
            if fixed is None:
                table = table or steps.table(_jumped_to(topology))
                part.summands = _jumping_summands(steps, table, number, facts)
                continue
            searched.append(_Searched(number, part, len(queries)))
            for leaf in facts.leaves:
                queries.append(Query(fixed[leaf][0], columns, *fixed[leaf][1:]))
    if queries:
        _Search(steps, queries).fill(searched)
    return located


class _AlignedSteps:
    """The steps of each node by their times, so that a reader looks at those it may read alone."""

    def __init__(self, steps: NnetSteps):
        self.steps = steps
        self._of_node: dict[int, tuple[list[int], Spans | None]] = {}

    def read_by(self, reader: Aligned, node: int, wanted: int) -> list[int]:
        """Numbers of the node's steps, the last first, without some that have no wanted time.

        All of them where they are not aligned with each other and the reader.
        """
        at = self.steps.at[node]
        if len(at) == 1:  # as mostly, without a recurrence
            return list(at.values())
        if node not in self._of_node:
            self._of_node[node] = self._indexed(node)
        numbers, spans = self._of_node[node]
        if spans is None or self._family(numbers[0]) is not reader.family:
            return numbers[::-1]
        return [numbers[place] for place in reversed(spans.near(*_span(wanted)))]

    def _indexed(self, node: int) -> tuple[list[int], Spans | None]:
        numbers = list(self.steps.at[node].values())
        spans = Spans()
        for number in numbers:
            aligned = self.steps.steps[number].columns.aligned
            if aligned is None or aligned.family is not self._family(numbers[0]):
                return numbers, None
            spans.add(*_span(aligned.bits))
        return numbers, spans if numbers else None

    def _family(self, number: int) -> Family | None:
        aligned = self.steps.steps[number].columns.aligned
        return None if aligned is None else aligned.family


def _span(bits: int) -> tuple[int, int]:
    """The lowest of some bits, and the one after the highest."""
    return max((bits & -bits).bit_length() - 1, 0), bits.bit_length()


def _aligned_summand(
    aligned: _AlignedSteps, columns: Columns, alpha: float, node: int, t: int, needs_all: bool
) -> Summand | None:
    """The summand of rows that each read the row of a node at a time later by t.

    None where that cannot be said from the sets of times.
    """
    reader = columns.aligned
    if reader is None:
        return None
    steps = aligned.steps
    wanted = reader.moved(t)
    sources = dict[int, Aligned]()
    for number in aligned.read_by(reader, node, wanted):
        source = steps.steps[number].columns.aligned
        if source is None or source.family is not reader.family:
            return None
        common = wanted & source.bits
        if not common:
            continue
        if common == wanted and not sources:
            rows = source.rows_of(reader, t)
            if common == source.bits and (rows == np.arange(len(rows))).all():
                return Summand(alpha, number, None, None, True)
            return Summand(alpha, number, rows)
        sources[number] = source
        wanted ^= common
        if not wanted:
            break
    if wanted and needs_all:
        return None
    return Summand(alpha, -1, *rows_among(sources, reader, t))


def refuse_reading_ahead(steps: NnetSteps, located: list[list[InputLocations]]) -> None:
    """Refuse segments that would read what only a later one computes.

    Raises:
        OpscopeError: there is one; its node is named.
    """
    for number, parts in enumerate(located):
        for summand in (summand for part in parts for summand in part.summands):
            step = summand.step
            latest = summand.single if step is None else int(step.max(initial=-1))
            if latest > number:
                node = steps.topology.nodes[steps.steps[number].node]
                raise OpscopeError(
                    f"node '{node.name}' reads whatever later rows are there: such a network (a"
                    " recurrence from the future, say) cannot be computed chunk by chunk"
                )


@dataclass(slots=True)
class _Searched:
    """A part whose leaves are the queries from `first` on."""

    step: int
    part: InputLocations
    first: int


class _Search:
    """The rows that queries find, and the facts of each list of them."""

    def __init__(self, steps: NnetSteps, queries: list[Query]):
        self.steps = steps
        self.rows = steps.table({query.node for query in queries}).find_all(queries)
        self.sizes = np.array([query.columns.size for query in queries])
        ends = np.cumsum(self.sizes)
        self.begins = ends - self.sizes
        self.slices = list(map(slice, self.begins.tolist(), ends.tolist()))

    def fill(self, searched: list[_Searched]) -> None:
        """Set the summands of all parts."""
        for search in searched:
            if not search.part.facts.takes_all and not search.part.facts.needs_all:
                self._choose(search)
        self._describe()
        for search in searched:
            facts = search.part.facts
            columns = self.steps.steps[search.step].columns
            last = search.first + len(facts.leaves)
            if facts.needs_all and columns.real is None and -1 in self._lowest[search.first : last]:
                raise OpscopeError(f"step {search.step} reads rows that no step computes")
            begin = search.first - facts.leaves.start
            search.part.summands = [
                self._summand(alpha, [begin + leaf for leaf in leaves])
                for alpha, leaves in facts.groups or ()
            ]

    def _choose(self, search: _Searched) -> None:
        """Remove the rows that exist but take no part in the sum."""
        facts = search.part.facts
        mine = [self.rows[self.slices[search.first + i]] for i in range(len(facts.leaves))]
        used: list[np.ndarray] = []
        facts.sums.combine(iter([rows >= 0 for rows in mine]), used)
        for rows, mask in zip(mine, used, strict=True):
            rows[~mask] = -1

    def _describe(self) -> None:
        """For every list: its least row number, its one step if it has one, the rows in that."""
        lowest = np.minimum.reduceat(self.rows, self.begins)
        highest = np.maximum.reduceat(self.rows, self.begins)
        step = self.steps.step_of_row[lowest]
        single = (lowest >= 0) & (step == self.steps.step_of_row[highest])
        starts = self.steps.starts
        first = np.where(single, starts[step], 0).astype(np.int32)
        self._within = self.rows - repeated(first, self.sizes)
        place = np.arange(len(self.rows), dtype=np.int32)
        place -= repeated(self.begins.astype(np.int32), self.sizes)
        in_order = np.logical_and.reduceat(self._within == place, self.begins)
        whole = single & in_order & (self.sizes == starts[step + 1] - starts[step])
        self._lowest = lowest.tolist()
        self._single = np.where(single, step, -1).tolist()
        self._whole = whole.tolist()

    def _summand(self, alpha: float, queries: list[int]) -> Summand:
        if len(queries) == 1:
            query = queries[0]
            single = self._single[query]
            if self._whole[query]:
                return Summand(alpha, single, None, whole=True)
            if single >= 0:
                return Summand(alpha, single, self._within[self.slices[query]])
        rows = np.stack([self.rows[self.slices[query]] for query in queries], axis=1)
        return Summand(alpha, -1, *_located(self.steps, rows))


def _jumped_to(topology: Topology) -> set[int]:
    """The nodes that descriptors read which are more than offsets of nodes."""
    nodes = zip(topology.sums, topology.steps, strict=True)
    return {one for sums, fixed in nodes if fixed is None for facts in sums for one in facts.scales}


def _jumping_summands(
    steps: NnetSteps, table: RowTable, number: int, facts: SumFacts
) -> list[Summand]:
    """The summands of a part with leaves that are more than offsets of nodes."""
    if not facts.leaves:
        return []
    step = steps.steps[number]
    columns = step.columns
    every = steps.topology.dependencies(step.node, columns.t, columns.x)
    places = [every[leaf] for leaf in facts.leaves]
    mine = [table.find_places(node, Columns(columns.n, t, x)) for node, t, x in places]
    if columns.real is not None:
        mine = [np.where(columns.real, rows, -1) for rows in mine]
    if not facts.needs_all:
        used: list[np.ndarray] = []
        facts.sums.combine(iter([rows >= 0 for rows in mine]), used)
        mine = [np.where(mask, rows, -1) for mask, rows in zip(used, mine, strict=True)]
    elif columns.real is None and any(rows.min() < 0 for rows in mine):
        raise OpscopeError(f"step {number} reads rows that no step computes")
    return _summands_by_scale(steps, facts, _sorted_locations(mine, places))


def find_reverse(summands: Iterable[Summand], sizes: list[int]) -> None:
    """Set `Summand.reverse` of summands that read rows of a single step.

    Args:
        sizes: the rows of every step.
    """
    pairs = [(summand, summand.row) for summand in summands if summand.row is not None]
    if not pairs:
        return
    listed = [summand for summand, _ in pairs]
    rows = np.concatenate([row for _, row in pairs])
    counts = np.array([len(row) for _, row in pairs])
    begins = np.cumsum(counts) - counts
    place = np.arange(len(rows), dtype=np.int32) - repeated(begins.astype(np.int32), counts)
    of_step = [sizes[summand.single] for summand in listed]
    ends = np.cumsum(of_step).tolist()
    reverse = np.full(ends[-1], -1, np.int32)
    at = rows + repeated(np.array(ends, int) - np.array(of_step, int), counts)
    reverse[at] = place
    alone = np.logical_and.reduceat(reverse[at] == place, begins).tolist()
    for summand, end, size, each_once in zip(listed, ends, of_step, alone, strict=True):
        if each_once:
            summand.reverse = reverse[end - size : end]


def _located(steps: NnetSteps, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and step of every input location, packed, from rows that are numbered throughout."""
    numbers = np.where(rows >= 0, steps.step_of_row[rows], -1)
    step, row = pack_left(numbers, np.where(rows >= 0, rows - steps.starts[numbers], -1))
    return row, step


def _summands_by_scale(steps: NnetSteps, facts: SumFacts, rows: np.ndarray) -> list[Summand]:
    """The summands of rows that may be of different nodes and so have different scales."""
    scales = sorted(set(facts.scales.values()))
    if len(scales) == 1:
        return [Summand(scales[0], -1, *_located(steps, rows))]
    row, step = _located(steps, rows)
    nodes = np.array([s.node for s in steps.steps] + [-1])[step]
    result = []
    for alpha in scales:
        mask = is_among(nodes, np.array([n for n, scale in facts.scales.items() if scale == alpha]))
        kept = pack_left(np.where(mask, step, -1), np.where(mask, row, -1))
        result.append(Summand(alpha, -1, kept[1], kept[0]))
    return result


def _sorted_locations(rows: list[np.ndarray], places: list[Place]) -> np.ndarray:
    """The locations of each row in the order of their (node, t, x): int [rows, locations]."""
    if len(rows) < 2:
        return np.stack(rows, axis=1)
    keys = np.stack(
        [np.broadcast_to(node, t.shape) * (1 << 45) + pack_tx(t, x) for node, t, x in places],
        axis=1,
    )
    return np.take_along_axis(np.stack(rows, axis=1), np.argsort(keys, axis=1, kind="stable"), 1)
