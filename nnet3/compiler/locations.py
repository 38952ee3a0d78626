"""Splits a sum of rows into lists that a single command each can execute.

A sum is two arrays [rows, locations]: numbers of sub-matrices and of rows in them. -1 means that
there is no location; the locations of each row come first. Source: Kaldi's nnet-compile-utils.cc.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ...framework.base.sequence import bincount, repeated
from ..index.indexes import distinct
from .steps import hash_order

Pairs = tuple[np.ndarray, np.ndarray]  # sub-matrix numbers and row numbers

_FEW = 32
"""Locations that are counted without arrays."""


def pack_left(sub: np.ndarray, row: np.ndarray) -> Pairs:
    """The same locations without gaps between them and without empty columns."""
    absent = sub < 0
    if absent.any():
        order = np.argsort(absent, axis=1, kind="stable")
        sub, row = np.take_along_axis(sub, order, 1), np.take_along_axis(row, order, 1)
        width = int((sub >= 0).sum(axis=1).max(initial=0))
        sub, row = sub[:, :width], row[:, :width]
    return sub, row


def split_locations(sub: np.ndarray, row: np.ndarray) -> list[Pairs]:
    """Lists with at most one location for each row, which together hold all locations.

    A sub-matrix that occurs in more than half of the rows gets a list of its own.
    """
    rows, width = sub.shape
    if width == 0 or not (sub >= 0).any():
        return []
    if width == 1:
        return [(sub[:, 0], row[:, 0])]
    real = sub[sub >= 0]
    if len(real) <= _FEW:  # counted without an array as long as the highest number
        counts = Counter(real.tolist())
        listed = sorted([value for value, count in counts.items() if count > rows // 2])
    else:
        values, numbers = np.unique(real, return_counts=True)
        listed = values[numbers > rows // 2].tolist()
    if not listed:
        return [(sub[:, i], row[:, i]) for i in range(width)]
    if len(listed) > 1:
        large = set(listed)
        listed = [v for v in hash_order(list(dict.fromkeys(real.tolist()))) if v in large]
    sub, row = sub.copy(), row.copy()
    result = []
    every = np.arange(rows)
    for value in listed:
        hits = sub == value
        place = hits.argmax(axis=1)
        hit = hits[every, place]
        result.append((np.where(hit, value, -1), np.where(hit, row[every, place], -1)))
        sub[every[hit], place[hit]] = -1
        row[every[hit], place[hit]] = -1
    return result + split_locations(*pack_left(sub, row))


def single_source(sub: np.ndarray) -> int:
    """The one sub-matrix of a list; -1 where the list is empty, -2 where there are several."""
    highest = int(sub.max(initial=-1))
    return highest if ((sub == highest) | (sub < 0)).all() else -2


def split_locations_backward(sub: np.ndarray, row: np.ndarray) -> list[Pairs]:
    """As `split_locations`, so that no list adds to one place from two directions.

    In every list either all pairs differ, or there is one sub-matrix, and each of its rows stands
    in one run.
    """
    result: list[Pairs] = []
    for subs, rows in split_locations(sub, row):
        source = single_source(subs)
        if source == -1:
            continue
        if source >= 0:
            result += [(np.where(r >= 0, source, -1), r) for r in ensure_contiguous(rows)]
        else:
            pairs = (subs.astype(np.int64) << 32) | np.where(rows >= 0, rows, 0)
            number = _occurrence(pairs)
            number[subs < 0] = -1
            for i in range(int(number.max()) + 1):
                kept = number == i
                result.append((np.where(kept, subs, -1), np.where(kept, rows, -1)))
    return result


def ensure_contiguous(rows: np.ndarray) -> list[np.ndarray]:
    """Lists in which every row number but -1 stands in one run, together equal to `rows`."""
    if rows[0] >= 0 and (rows[1:] >= rows[:-1]).all():
        return [rows]
    starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    values = rows[starts]
    real = values[values >= 0]
    if len(real) and bincount(real).max() == 1:
        return [rows]
    number = _occurrence(values)
    number[values < 0] = -1
    lists = int(number.max(initial=-1)) + 1
    if lists <= 1:
        return [rows] * lists
    of_row = repeated(number, np.diff(np.append(starts, len(rows))))
    return [np.where(of_row == i, rows, -1) for i in range(lists)]


def _occurrence(values: np.ndarray) -> np.ndarray:
    """How many equal values stand before each one."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    starts = np.flatnonzero(new)
    number = np.empty(len(values), np.int64)
    number[order] = np.arange(len(values)) - starts[np.cumsum(new) - 1]
    return number


def contiguous_ranges(rows: np.ndarray) -> np.ndarray | None:
    """(begin, end) of the run of each row number up to the highest, (-1, -1) for those without.

    None where a row number stands in two runs.
    """
    starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    ends = np.append(starts[1:], len(rows))
    values = rows[starts]
    real = values >= 0
    starts, ends, values = starts[real], ends[real], values[real]
    if len(distinct(values)) < len(values):
        return None
    ranges = np.full((int(values.max(initial=-1)) + 1, 2), -1, np.int32)
    ranges[values, 0], ranges[values, 1] = starts, ends
    return ranges
