"""Finding the numbers of rows by node and index, for many lists of indexes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...framework.base.sequence import repeated
from .indexes import Columns, distinct


class Query(NamedTuple):
    """A search for rows of `node`: at the places of `columns`, shifted by t and x."""

    node: int
    columns: Columns
    t: int = 0
    x: int = 0


class RowTable:
    """The numbers of rows; of several rows with one index the last one counts.

    Every node has a block of a dense table that holds all its times and, for each time, every n
    and x that occurs at all. Looking is then one addition and one access for each row. Where that
    would be much larger than the rows are many, a dictionary takes its place.

    Args:
        lists: nodes with lists of rows and the number of the first row of each list.
    """

    def __init__(self, lists: Sequence[tuple[int, Columns, int]]):
        lists = [entry for entry in lists if entry[1].size]
        bounds = {(*columns.low[::2], *columns.high[::2]) for _, columns, _ in lists}
        low_n, low_x, high_n, high_x = zip(*bounds, strict=True) if bounds else [(0,)] * 4
        self._low = (min(low_n), min(low_x))
        self._high = (max(high_n), max(high_x))
        self._times: dict[int, tuple[int, int]] = {}
        for node, columns, _ in lists:
            low, high = columns.low[1], columns.high[1]
            first, last = self._times.get(node, (low, high))
            self._times[node] = min(first, low), max(last, high)
        of_n, of_x = (high - low + 1 for low, high in zip(self._low, self._high, strict=True))
        self._counts = of_n, of_x
        self._moves: dict[int, int] = {}  # what to add to `Columns.base` for the rows of a node
        end = 1  # the first place stays empty
        for node, (first, last) in self._times.items():
            begin = end
            end = end + (last - first + 1) * of_n * of_x
            self._moves[node] = begin - self._place(self._low[0], first, self._low[1])
        self._dict: dict[tuple[int, int, int, int], int] = {}
        self._dense: np.ndarray | None = None
        if end <= 64 * sum(columns.size for _, columns, _ in lists) + 65536:
            self._dense = np.full(end, -1, np.int32)
            self._fill_dense(self._dense, lists)
        else:
            self._fill_dict(lists)

    def _place(self, n: int, t: int, x: int) -> int:
        """Of an index, as `Columns.base` counts."""
        of_n, of_x = self._counts
        return (t * of_x + (x if of_x > 1 else 0)) * of_n + (n if of_n > 1 else 0)

    def _fill_dense(self, dense: np.ndarray, lists: list[tuple[int, Columns, int]]) -> None:
        if not lists:
            return
        sizes = np.array([columns.size for _, columns, _ in lists])
        moves = np.array([self._moves[node] for node, _, _ in lists])
        starts = np.array([start for _, _, start in lists])
        places = np.concatenate([columns.base(self._counts) for _, columns, _ in lists])
        places = places + repeated(moves, sizes)
        rows = np.arange(len(places)) + repeated(starts - np.cumsum(sizes) + sizes, sizes)
        if any(columns.real is not None for _, columns, _ in lists):
            real = np.concatenate([_real(columns) for _, columns, _ in lists])
            places, rows = places[real], rows[real]
        dense[places] = rows

    def _fill_dict(self, lists: list[tuple[int, Columns, int]]) -> None:
        for node, columns, start in lists:
            places = zip(columns.n.tolist(), columns.t.tolist(), columns.x.tolist(), strict=True)
            rows = zip(places, range(start, start + columns.size), _real(columns), strict=True)
            self._dict.update({(node, *place): row for place, row, real in rows if real})

    def find(self, query: Query) -> np.ndarray:
        """As `find_all`, of one query."""
        return self.find_all([query])

    def find_all(self, queries: Sequence[Query]) -> np.ndarray:
        """The numbers of the rows of all queries, one after the other; int32, -1 where none."""
        queries = [query for query in queries if query.columns.size]
        if not queries:
            return np.zeros(0, np.int32)
        if self._dense is None:
            return np.concatenate([self._look_up(query) for query in queries])
        moves, outside = [], []
        for number, (node, columns, t, x) in enumerate(queries):
            moves.append(self._moves.get(node, 0) + self._place(0, t, x))
            if columns.real is not None or not self._holds(node, columns, t, x):
                outside.append(number)
        sizes = [query.columns.size for query in queries]
        places = np.concatenate([query.columns.base(self._counts) for query in queries])
        places = places + repeated(moves, sizes)
        if outside:
            ends = np.cumsum(sizes).tolist()
            for number in outside:
                begin = ends[number] - sizes[number]
                end = ends[number]
                places[begin:end] = self._kept(queries[number], places[begin:end])
        return self._dense[places]

    def _holds(self, node: int, columns: Columns, t: int, x: int) -> bool:
        """Whether all places lie in the block of the node."""
        if node not in self._times:
            return False
        (n0, t0, x0), (n1, t1, x1) = columns.low, columns.high
        first, last = self._times[node]
        (low_n, low_x), (high_n, high_x) = self._low, self._high
        inside = first <= t0 + t and t1 + t <= last and low_n <= n0 and n1 <= high_n
        return inside and low_x <= x0 + x and x1 + x <= high_x

    def _kept(self, query: Query, places: np.ndarray) -> np.ndarray:
        """The places, those outside of the block replaced by one that stays empty."""
        node, columns, t, x = query
        if node not in self._times:
            return np.zeros(len(places), np.int64)
        first, last = self._times[node]
        ok = (columns.t >= first - t) & (columns.t <= last - t)
        for part, low, high in zip((columns.n, columns.x + x), self._low, self._high, strict=True):
            ok &= (part >= low) & (part <= high)
        return np.where(ok, places, 0)

    def _look_up(self, query: Query) -> np.ndarray:
        node, columns, t, x = query
        shifted = columns.n.tolist(), (columns.t + t).tolist(), (columns.x + x).tolist()
        rows = (self._dict.get((node, *place), -1) for place in zip(*shifted, strict=True))
        return np.fromiter(rows, np.int32, columns.size)

    def find_places(self, node: int | np.ndarray, columns: Columns) -> np.ndarray:
        """The numbers of rows of one node, or of a node for each index."""
        if not isinstance(node, np.ndarray):
            return self.find(Query(node, columns))
        rows = np.full(len(columns), -1, np.int32)
        for one in distinct(node).tolist():
            mask = node == one
            chosen = Columns(columns.n[mask], columns.t[mask], columns.x[mask])
            rows[mask] = self.find(Query(one, chosen))
        return rows


def _real(columns: Columns) -> np.ndarray:
    return np.ones(columns.size, bool) if columns.real is None else columns.real
