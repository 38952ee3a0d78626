"""Rows of lists that hold the same sequences at the same times each, looked up by sets of times.

All n for which a request asks the same have the same times. There a list of rows is a set of times,
an integer with a bit for each as in time_graph.py, and an order; whether one list holds what
another reads is seen from the bits, and where it stands follows from the place of a time among the
times. Lists of one family count their bits from the same time.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.sequence import repeated
from .indexes import X_BITS, Aligned, Columns, Family


def align(ns: np.ndarray, sets: dict[int, np.ndarray]) -> Family:
    """The rows of sets of times, which are given with their keys, for every n."""
    family: Family = dict(zip(sets, Columns.product(ns, list(sets.values())), strict=True))
    for (bits, keys), columns in zip(sets.items(), family.values(), strict=True):
        columns.aligned = Aligned(family, bits, keys, len(ns))
    return family


def align_listed(columns: Columns, family: Family, bits: int, keys: np.ndarray, count: int) -> None:
    """Says of rows in any order, with the same order of times for each n, how they lie.

    Args:
        bits: the times.
        keys: of one sequence, as they are listed.
        count: how many sequences there are.
    """
    grid = np.argsort(columns.indexes[:, 0], kind="stable").reshape(count, -1).T
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys)
        grid, keys = grid[order], keys[order]
    grid = grid.astype(np.int32, order="C")
    in_order = grid[0, -1] == count - 1 and bool((grid.ravel() == np.arange(grid.size)).all())
    columns.aligned = Aligned(family, bits, keys, count, None if in_order else grid)


def later(columns: Columns, t: int) -> Columns | None:
    """The rows that are later by t, in the same order, if there is such a list."""
    aligned = columns.aligned
    if aligned is None or not aligned.in_order:
        return None
    return aligned.family.get(aligned.moved(t))


def rows_among(
    sources: dict[int, Aligned], reader: Aligned, t: int
) -> tuple[np.ndarray, np.ndarray]:
    """The places of the rows of `reader`, at times later by t, in several lists.

    Args:
        sources: lists by number; of several rows with one index, the first list's row counts.

    Returns:
        Row in its list and number of the list, int64 [rows, 1]; -1 where there is none, and
        [rows, 0] where there are none at all.
    """
    if not sources:
        none = np.zeros((len(reader.keys) * reader.sequences, 0), np.int64)
        return none, none
    keys = np.concatenate([source.keys for source in sources.values()])
    counts = [len(source.keys) for source in sources.values()]
    order = np.argsort(keys, kind="stable")
    asked = reader.keys + (t << X_BITS)
    place = np.minimum(np.searchsorted(keys, asked, sorter=order), len(keys) - 1)
    chosen = order[place]
    there = (keys[chosen] == asked)[:, None]
    number = repeated(list(sources), counts)[chosen][:, None]
    grid = np.concatenate([source.grid for source in sources.values()])[chosen]
    rows = np.where(there, grid, -1)
    numbers = np.where(there, np.broadcast_to(number, grid.shape), -1)
    return reader.listed(rows).astype(np.int64)[:, None], reader.listed(numbers)[:, None]
