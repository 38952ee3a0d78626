"""Where the rows of descriptors' steps are read from: their input locations.

A part of a descriptor is a sum of rows of earlier steps. Mostly all its rows come from one step;
then the row numbers are all there is to know, and no list of terms for each row is made. Which step
that is, and which of its rows, is seen from the sets of times where rows are given by these
(aligned.py). Other rows are looked for together, and what is asked of each list of row numbers is
worked out for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import OpscopeError
from ..graph.topology import Topology
from ..graph.topology_node import SumFacts
from ..index.aligned import later, rows_among
from ..index.indexes import Aligned, Columns, distinct, pack_tx
from ..index.row_table import Query, RowTable
from .locations import pack_left
from .steps import Steps


@dataclass(slots=True)
class Terms:
    """Rows that a part adds up, all with one scale.

    Attributes:
        alpha: the scale.
        single: the step that every row takes its one term from; -1 where it is not so simple.
        row: the row in that step, int32 [rows]; else int [rows, terms], -1 where there is none.
            None where `whole`.
        whole: these are all rows of the one step, in order.
        step: where `single` is -1: the step of every term, as `row`.
        reverse: for every row of the one step, which row of the part reads it, int32, -1 where
            none does; None where several do, or it was not asked for.
    """

    alpha: float
    single: int
    row: np.ndarray | None
    step: np.ndarray | None = None
    whole: bool = False
    reverse: np.ndarray | None = None


@dataclass(slots=True)
class Part:
    """A part of a descriptor's step.

    Attributes:
        facts: what is known of the part of the descriptor.
        terms: what is summed up, by scale.
        value, deriv: sub-matrices (the part's columns).
    """

    facts: SumFacts
    terms: list[Terms] = field(default_factory=list)
    value: int = 0
    deriv: int = 0

    def any_source(self, chosen: Sequence[bool]) -> bool:
        """Whether a chosen step is read."""
        for terms in self.terms:
            if terms.single >= 0:
                if chosen[terms.single]:
                    return True
            elif any(chosen[step] for step in distinct(terms.step.ravel()) if step >= 0):  # type: ignore[union-attr]
                return True
        return False


def locate(steps: Steps) -> list[list[Part]]:
    """For every step the parts of its descriptor with their locations; none for other steps.

    Raises:
        OpscopeError: a row that is needed is computed by no step.
    """
    topology, at = steps.topology, steps.at
    located: list[list[Part]] = []
    searched: list[_Searched] = []
    queries: list[Query] = []
    table: RowTable | None = None  # for what is more than an offset of a node
    sums_of, nothing = topology.sums, list[Part]()
    for number, step in enumerate(steps.steps):
        sums, columns = sums_of[step.node], step.columns
        if not sums or not columns.size:
            located.append(nothing)
            continue
        parts: list[Part] = []
        located.append(parts)
        for facts in sums:
            part = Part(facts, [])
            parts.append(part)
            for alpha, node, t in facts.singles or ():
                # In a loop, rows that are shifted in time are often just those of another step.
                same = later(columns, t) if t else columns
                source = at[node].get(id(same))
                if source is not None:
                    terms: Terms | None = Terms(alpha, source, None, None, True)
                else:
                    terms = _aligned_terms(steps, columns, alpha, node, t, facts.needs_all)
                    if terms is None:
                        break
                part.terms.append(terms)
            else:
                if facts.singles:
                    continue
            fixed = topology.steps[step.node]
            if fixed is None:
                table = table or steps.table(_jumped_to(topology))
                part.terms = _jumping_terms(steps, table, number, facts)
                continue
            searched.append(_Searched(number, part, len(queries)))
            for leaf in facts.leaves:
                queries.append(Query(fixed[leaf][0], columns, *fixed[leaf][1:]))
    if queries:
        _Search(steps, queries).fill(searched)
    return located


def _aligned_terms(
    steps: Steps, columns: Columns, alpha: float, node: int, t: int, needs_all: bool
) -> Terms | None:
    """The terms of rows that each read the row of a node at a time later by t.

    None where that cannot be said from the sets of times.
    """
    reader = columns.aligned
    if reader is None:
        return None
    wanted, sources = reader.moved(t), dict[int, Aligned]()
    for number in reversed(steps.at[node].values()):
        source = steps.steps[number].columns.aligned
        if source is None or source.family is not reader.family:
            return None
        common = wanted & source.bits
        if not common:
            continue
        if common == wanted and not sources:
            rows = source.rows_of(reader, t)
            if common == source.bits and (rows == np.arange(len(rows))).all():
                return Terms(alpha, number, None, None, True)
            return Terms(alpha, number, rows)
        sources[number] = source
        wanted ^= common
        if not wanted:
            break
    if wanted and needs_all:
        return None
    return Terms(alpha, -1, *rows_among(sources, reader, t))


def refuse_reading_ahead(steps: Steps, located: list[list[Part]]) -> None:
    """Refuse segments that would read what only a later one computes.

    Raises:
        OpscopeError: there is one; its node is named.
    """
    for number, parts in enumerate(located):
        for terms in (terms for part in parts for terms in part.terms):
            latest = terms.single if terms.step is None else int(terms.step.max(initial=-1))
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
    part: Part
    first: int


class _Search:
    """The rows that queries find, and what is known of each list of them."""

    def __init__(self, steps: Steps, queries: list[Query]):
        self.steps = steps
        self.rows = steps.table({query.node for query in queries}).find_all(queries)
        self.sizes = np.array([query.columns.size for query in queries])
        ends = np.cumsum(self.sizes)
        self.begins = ends - self.sizes
        self.slices = list(map(slice, self.begins.tolist(), ends.tolist()))

    def fill(self, searched: list[_Searched]) -> None:
        """Gives all parts their terms."""
        for found in searched:
            if not found.part.facts.takes_all and not found.part.facts.needs_all:
                self._choose(found)
        self._describe()
        for found in searched:
            facts, columns = found.part.facts, self.steps.steps[found.step].columns
            last = found.first + len(facts.leaves)
            if facts.needs_all and columns.real is None and -1 in self._lowest[found.first : last]:
                raise OpscopeError(f"step {found.step} reads rows that no step computes")
            begin = found.first - facts.leaves.start
            found.part.terms = [
                self._terms(alpha, [begin + leaf for leaf in leaves])
                for alpha, leaves in facts.groups  # type: ignore[union-attr]
            ]

    def _choose(self, found: _Searched) -> None:
        """Keeps of the rows that are there those that take part."""
        facts = found.part.facts
        mine = [self.rows[self.slices[found.first + i]] for i in range(len(facts.leaves))]
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
        self._within = self.rows - np.repeat(first, self.sizes)
        place = np.arange(len(self.rows), dtype=np.int32)
        place -= np.repeat(self.begins.astype(np.int32), self.sizes)
        in_order = np.logical_and.reduceat(self._within == place, self.begins)
        whole = single & in_order & (self.sizes == starts[step + 1] - starts[step])
        self._lowest = lowest.tolist()
        self._single = np.where(single, step, -1).tolist()
        self._whole = whole.tolist()

    def _terms(self, alpha: float, queries: list[int]) -> Terms:
        if len(queries) == 1:
            query = queries[0]
            single = self._single[query]
            if self._whole[query]:
                return Terms(alpha, single, None, whole=True)
            if single >= 0:
                return Terms(alpha, single, self._within[self.slices[query]])
        rows = np.stack([self.rows[self.slices[query]] for query in queries], axis=1)
        return Terms(alpha, -1, *_located(self.steps, rows))


def _jumped_to(topology: Topology) -> set[int]:
    """The nodes that descriptors read which are more than offsets of nodes."""
    nodes = zip(topology.sums, topology.steps, strict=True)
    return {one for sums, fixed in nodes if fixed is None for facts in sums for one in facts.scales}


def _jumping_terms(steps: Steps, table: RowTable, number: int, facts: SumFacts) -> list[Terms]:
    """The terms of a part with leaves that are more than offsets of nodes."""
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
    return _terms_by_scale(steps, facts, _sorted_terms(mine, places))


def find_reverse(terms: Iterable[Terms], sizes: list[int]) -> None:
    """Fills `Terms.reverse`, of terms that read some rows of one step.

    Args:
        sizes: the rows of every step.
    """
    listed = [one for one in terms if one.row is not None]
    if not listed:
        return
    rows = np.concatenate([one.row for one in listed])  # type: ignore[misc]
    counts = np.array([len(one.row) for one in listed])  # type: ignore[arg-type]
    begins = np.cumsum(counts) - counts
    place = np.arange(len(rows), dtype=np.int32) - np.repeat(begins.astype(np.int32), counts)
    of_step = [sizes[one.single] for one in listed]
    ends = np.cumsum(of_step).tolist()
    reverse = np.full(ends[-1], -1, np.int32)
    at = rows + np.repeat(np.array(ends) - of_step, counts)
    reverse[at] = place
    alone = np.logical_and.reduceat(reverse[at] == place, begins).tolist()
    for one, end, size, each_once in zip(listed, ends, of_step, alone, strict=True):
        if each_once:
            one.reverse = reverse[end - size : end]


def _located(steps: Steps, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and step of every term, packed, from rows that are numbered throughout."""
    numbers = np.where(rows >= 0, steps.step_of_row[rows], -1)
    step, row = pack_left(numbers, np.where(rows >= 0, rows - steps.starts[numbers], -1))
    return row, step


def _terms_by_scale(steps: Steps, facts: SumFacts, rows: np.ndarray) -> list[Terms]:
    """The terms of rows that may be of different nodes, and so have different scales."""
    scales = sorted(set(facts.scales.values()))
    if len(scales) == 1:
        return [Terms(scales[0], -1, *_located(steps, rows))]
    row, step = _located(steps, rows)
    nodes = np.array([s.node for s in steps.steps] + [-1])[step]
    result = []
    for alpha in scales:
        mask = np.isin(nodes, [node for node, scale in facts.scales.items() if scale == alpha])
        kept = pack_left(np.where(mask, step, -1), np.where(mask, row, -1))
        result.append(Terms(alpha, -1, kept[1], kept[0]))
    return result


def _sorted_terms(
    rows: list[np.ndarray], places: list[tuple[object, np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The terms [rows, terms] of each row in the order of their (node, t, x)."""
    if len(rows) < 2:
        return np.stack(rows, axis=1)
    keys = np.stack(
        [np.broadcast_to(node, t.shape) * (1 << 45) + pack_tx(t, x) for node, t, x in places],  # type: ignore[attr-defined]
        axis=1,
    )
    return np.take_along_axis(np.stack(rows, axis=1), np.argsort(keys, axis=1, kind="stable"), 1)
