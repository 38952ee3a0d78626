"""Indexes (n, t, x) as arrays: packing into sortable keys, finding rows, Kaldi's short text.

An index names one row of a node's matrix: n the sequence in the minibatch, t the time, x a further
number that is mostly 0. A list of indexes is an int32 array [rows, 3]. Kaldi sorts indexes by t,
then x, then n; packed keys sort likewise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..framework.errors import ShapeError

NO_TIME = -(1 << 31)  # the t of a padding row: Kaldi's kNoTime

N_BITS, X_BITS = 20, 14
MAX_N, MAX_X, MAX_T = 1 << N_BITS, 1 << (X_BITS - 1), 1 << 29
_X_MASK = (1 << X_BITS) - 1


def as_indexes(values: object, what: str = "indexes") -> np.ndarray:
    """An int32 array [rows, 3]; ShapeError names what is out of the supported range."""
    array = np.asarray(values, np.int64).reshape(-1, 3)
    n, t, x = array[:, 0], array[:, 1], array[:, 2]
    wrong = (n < 0) | (n >= MAX_N) | (np.abs(x) >= MAX_X) | (np.abs(t) >= MAX_T)
    wrong &= t != NO_TIME
    if wrong.any():
        n, t, x = array[np.flatnonzero(wrong)[0]].tolist()
        raise ShapeError(
            f"{what}: ({n}, {t}, {x}) is out of range: n must lie in 0 .. {MAX_N - 1},"
            f" t within {MAX_T - 1}, x within {MAX_X - 1} of 0"
        )
    return np.ascontiguousarray(array, np.int32)


def pack_tx(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """int64 keys that sort as (t, x)."""
    return (np.asarray(t, np.int64) << X_BITS) + (x + MAX_X)


def unpack_tx(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """t and x (int64) of keys made by `pack_tx`."""
    return keys >> X_BITS, (keys & _X_MASK) - MAX_X


def distinct(values: np.ndarray) -> np.ndarray:
    """The different values of an integer array, sorted; quick where they lie close together."""
    if not len(values):
        return np.asarray(values, np.int64)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > 8 * len(values) + 1024:
        return np.unique(values).astype(np.int64)
    there = np.zeros(span, bool)
    there[values - low] = True
    return np.flatnonzero(there) + low


class RowTable:
    """Finds the numbers of rows by their (n, t, x); later entries replace earlier ones.

    Made for one node whose indexes lie in known ranges. Where these ranges hold not many more
    places than there are rows, finding is one look into a dense table.
    """

    def __init__(self, low: Sequence[int], high: Sequence[int], rows: int):
        self._low = [int(v) for v in low]
        self._size = [int(b) - int(a) + 1 for a, b in zip(low, high, strict=True)]
        places = self._size[0] * self._size[1] * self._size[2]
        self._dense = np.full(places, -1, np.int32) if places <= 64 * rows + 65536 else None
        self._dict: dict[tuple[int, int, int], int] = {}

    def _place(self, n: np.ndarray, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        (n0, t0, x0), (nn, _, nx) = self._low, self._size
        place = t - t0 if t0 else t
        if nx > 1:
            place = place * nx + (x - x0)
        return place * nn + (n - n0) if nn > 1 else place

    def set(self, n: np.ndarray, t: np.ndarray, x: np.ndarray, first: int) -> None:
        """Numbers rows `first`, `first` + 1, ...; padding rows are passed over."""
        rows = np.arange(first, first + len(t), dtype=np.int32)
        real = t != NO_TIME
        if not real.all():
            n, t, x, rows = n[real], t[real], x[real], rows[real]
        if self._dense is not None:
            self._dense[self._place(n, t, x)] = rows
        else:
            places = zip(n.tolist(), t.tolist(), x.tolist(), strict=True)
            self._dict.update(zip(places, rows.tolist(), strict=True))

    def find(self, n: np.ndarray, t: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The number of each row, int32; -1 where there is none."""
        if self._dense is None:
            get = self._dict.get
            places = zip(n.tolist(), t.tolist(), x.tolist(), strict=True)
            return np.fromiter((get(place, -1) for place in places), np.int32, len(t))
        if not len(t):
            return np.zeros(0, np.int32)
        (n0, t0, x0), (nn, nt, nx) = self._low, self._size
        inside = t.min() >= t0 and t.max() < t0 + nt
        inside = inside and x.min() >= x0 and x.max() < x0 + nx
        inside = inside and n.min() >= n0 and n.max() < n0 + nn
        if inside:
            return self._dense[self._place(n, t, x)]
        ok = (t >= t0) & (t < t0 + nt) & (x >= x0) & (x < x0 + nx) & (n >= n0) & (n < n0 + nn)
        return np.where(ok, self._dense[np.where(ok, self._place(n, t, x), 0)], -1)


def format_indexes(indexes: np.ndarray) -> str:
    """Kaldi's short text: `[(0,5:12), (1,3)]`, the middle left out beyond 200 characters."""
    if not len(indexes):
        return "[ ]"
    n, t, x = np.asarray(indexes, np.int64).T
    breaks = (t[1:] != t[:-1] + 1) | (n[1:] != n[:-1]) | (x[1:] != x[:-1])
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(t)])).tolist()
    parts = []
    for begin, end in zip(starts[:-1], starts[1:], strict=True):
        times = f"{t[begin]}" if end == begin + 1 else f"{t[begin]}:{t[end - 1]}"
        parts.append(f"({n[begin]},{times}{f',{x[begin]}' if x[begin] else ''})")
    return shorten(f"[{', '.join(parts)}]")


def shorten(text: str, limit: int = 200) -> str:
    """`text` with its middle left out where it is longer than `limit` characters, as in Kaldi."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]} ... {text[len(text) - limit // 2 :]}"


def format_integers(values: np.ndarray) -> str:
    """Kaldi's PrintIntegerVector: `[1, 4, 7:9, -1x12]`."""
    ints = np.asarray(values).tolist()
    if not ints:
        return "[ ]"
    parts = []
    start, end = 0, len(ints)
    while start < end:
        stop = start + 1
        step = ints[stop] - ints[start] if stop < end else 2
        if step in (0, 1):
            while stop < end and ints[stop] == ints[start] + step * (stop - start):
                stop += 1
        count = stop - start
        if count == 1:
            parts.append(f"{ints[start]}")
        elif count == 2:
            parts.append(f"{ints[start]}, {ints[start + 1]}")
        elif step == 0:
            parts.append(f"{ints[start]}x{count}")
        else:
            parts.append(f"{ints[start]}:{ints[stop - 1]}")
        start = stop
    return f"[{', '.join(parts)}]"
