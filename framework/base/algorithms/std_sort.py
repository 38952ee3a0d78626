"""The order in which `std::sort` of libstdc++ leaves elements with equal keys.

OpenFst sorts arcs with it, and its files can be equal to the byte only where arcs with equal labels
stand in that order. It sorts introspectively (Musser 1997) down to parts of 16 elements, with the
median of the second, the middle and the last element as the pivot, and inserts what is left, which
keeps the order of equal elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_INSERTED = 16
_LISTED = 512  # a part up to this size is faster in lists than in arrays


def std_argsort(keys: np.ndarray) -> np.ndarray:
    """Which element stands at each place once `std::sort` has sorted by `keys`: int64, [keys].

    Where the pivots are so bad that libstdc++ goes over to a heap, equal elements keep their order
    instead.
    """
    order = np.arange(len(keys))
    if len(np.unique(keys)) < len(keys):
        keys = keys.copy()
        parts = [(0, len(keys), 2 * max(len(keys).bit_length() - 1, 0))]
        while parts:
            begin, end, depth = parts.pop()
            if end - begin <= _LISTED:
                part = slice(begin, end)
                key, place = keys[part].tolist(), order[part].tolist()
                _partition_all(key, place, depth)
                keys[part], order[part] = key, place
            elif depth:
                cut = _partition(keys, order, begin, end)
                parts += [(begin, cut, depth - 1), (cut, end, depth - 1)]
    return order[np.argsort(keys, kind="stable")]


def _partition_all(key: list[int], order: list[int], depth: int) -> None:
    """Partition until no part has more elements than are inserted."""
    parts = [(0, len(key), depth)]
    while parts:
        begin, end, depth = parts.pop()
        if end - begin > _INSERTED and depth:
            pivot = _pivot_first(key, order, begin, end)
            left, right = begin + 1, end
            while True:
                while key[left] < pivot:
                    left += 1
                right -= 1
                while pivot < key[right]:
                    right -= 1
                if left >= right:
                    break
                _swap(key, order, left, right)
                left += 1
            parts += [(begin, left, depth - 1), (left, end, depth - 1)]


def _partition(keys: np.ndarray, order: np.ndarray, begin: int, end: int) -> int:
    """The same step on arrays: where the upper part begins."""
    pivot = _pivot_first(keys, order, begin, end)
    inside = keys[begin + 1 : end]
    high = begin + 1 + np.flatnonzero(inside >= pivot)
    low = begin + 1 + np.flatnonzero(inside <= pivot)[::-1]
    common = min(len(high), len(low))
    swapped = int((high[:common] < low[:common]).sum())
    left, right = high[:swapped], low[:swapped]
    for array in (keys, order):
        array[left], array[right] = array[right], array[left]
    ends = [end, *high[swapped : swapped + 1].tolist(), *right[-1:].tolist()]
    return min(ends)


def _pivot_first(keys: Any, order: Any, begin: int, end: int) -> int:
    """Put the median of three elements first; its key."""
    places = (begin + 1, begin + (end - begin) // 2, end - 1)
    a, b, c = (keys[place] for place in places)
    if a < b:
        chosen = 1 if b < c else 2 if a < c else 0
    else:
        chosen = 0 if a < c else 2 if b < c else 1
    _swap(keys, order, begin, places[chosen])
    return keys[begin]


def _swap(keys: Any, order: Any, one: int, other: int) -> None:
    keys[one], keys[other] = keys[other], keys[one]
    order[one], order[other] = order[other], order[one]
