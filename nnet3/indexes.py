"""Indexes (n, t, x) as arrays: packing into sortable keys, finding rows, Kaldi's short text.

An index names one row of a node's matrix: n the sequence in the minibatch, t the time, x a further
number that is mostly 0. A list of indexes is an int32 array [rows, 3]. Kaldi sorts indexes by t,
then x, then n; packed keys sort likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

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


class Columns:
    """A list of indexes as int64 arrays n, t and x, with what is often asked of it.

    Not to be changed: steps of one list share it.
    """

    def __init__(self, n: np.ndarray, t: np.ndarray, x: np.ndarray) -> None:
        self.n, self.t, self.x = n, t, x
        self.size = len(t)
        self._bases: dict[tuple[int, int], np.ndarray] = {}

    def __len__(self) -> int:
        return self.size

    @cached_property
    def indexes(self) -> np.ndarray:
        """int32 [rows, 3]: n, t, x; the t of a padding row is NO_TIME."""
        indexes = np.empty((len(self.t), 3), np.int32)
        indexes[:, 0], indexes[:, 1], indexes[:, 2] = self.n, self.t, self.x
        return indexes

    @cached_property
    def real(self) -> np.ndarray | None:
        """Which rows are no padding; None: all."""
        if not len(self.t) or self.t.min() != NO_TIME:
            return None
        return self.t != NO_TIME

    @cached_property
    def low(self) -> tuple[int, int, int]:
        """The least n, t and x of rows that are no padding."""
        return self._bounds(np.min)

    @cached_property
    def high(self) -> tuple[int, int, int]:
        """The greatest n, t and x of rows that are no padding."""
        return self._bounds(np.max)

    def _bounds(self, bound: Callable[[np.ndarray], int]) -> tuple[int, int, int]:
        kept = slice(None) if self.real is None else self.real
        n, t, x = (bound(part[kept]) for part in (self.n, self.t, self.x))
        return int(n), int(t), int(x)

    def base(self, counts: tuple[int, int]) -> np.ndarray:
        """Places in a table of `counts` values of n and x, all lower bounds being 0."""
        base = self._bases.get(counts)
        if base is None:
            of_n, of_x = counts
            base = self.t if of_x == 1 else self.t * of_x + self.x
            base = base * of_n + self.n if of_n > 1 else base
            self._bases[counts] = base
        return base


class RowTable:
    """Finds the numbers of rows by their (n, t, x); later entries replace earlier ones.

    Made for one node whose indexes lie in known ranges. Where these ranges hold not many more
    places than there are rows, finding is one look into a dense table.
    """

    def __init__(self, low: Sequence[int], high: Sequence[int], rows: int):
        self._low = tuple(int(v) for v in low)
        self._high = tuple(int(v) for v in high)
        of_n, of_t, of_x = (b - a + 1 for a, b in zip(self._low, self._high, strict=True))
        self._counts = of_n, of_x
        self._origin = self._place(*self._low)
        places = of_n * of_t * of_x
        self._dense = np.full(places, -1, np.int32) if places <= 64 * rows + 65536 else None
        self._dict: dict[tuple[int, int, int], int] = {}

    def _place(self, n: int, t: int, x: int) -> int:
        """Of an index in the table, as `Columns.base` counts."""
        of_n, of_x = self._counts
        return (t * of_x + (x if of_x > 1 else 0)) * of_n + (n if of_n > 1 else 0)

    def set(self, columns: Columns, first: int) -> None:
        """Numbers rows `first`, `first` + 1, ...; padding rows are passed over."""
        rows = np.arange(first, first + len(columns), dtype=np.int32)
        if self._dense is None:
            places = zip(columns.n.tolist(), columns.t.tolist(), columns.x.tolist(), strict=True)
            self._dict.update(zip(places, rows.tolist(), strict=True))
            return
        places = columns.base(self._counts)
        if columns.real is not None:
            places, rows = places[columns.real], rows[columns.real]
        self._dense[places - self._origin] = rows

    def find(self, columns: Columns, t: int = 0, x: int = 0) -> np.ndarray:
        """The number of each row, shifted by t and x; int32, -1 where there is none."""
        if not len(columns):
            return np.zeros(0, np.int32)
        if self._dense is None:
            get = self._dict.get
            shifted = columns.n.tolist(), (columns.t + t).tolist(), (columns.x + x).tolist()
            places = (get(place, -1) for place in zip(*shifted, strict=True))
            return np.fromiter(places, np.int32, len(columns))
        places = columns.base(self._counts) + (self._place(0, t, x) - self._origin)
        if columns.real is None and self._holds(columns.low, t, x, columns.high):
            return self._dense[places]
        ok = np.ones(len(columns), bool) if columns.real is None else columns.real.copy()
        moved = columns.n, columns.t + t, columns.x + x
        for part, least, most in zip(moved, self._low, self._high, strict=True):
            ok &= (part >= least) & (part <= most)
        return np.where(ok, self._dense[np.where(ok, places, 0)], -1)

    def _holds(self, low: Sequence[int], t: int, x: int, high: Sequence[int]) -> bool:
        (n0, t0, x0), (n1, t1, x1) = self._low, self._high
        return (
            n0 <= low[0]
            and t0 <= low[1] + t
            and x0 <= low[2] + x
            and high[0] <= n1
            and high[1] + t <= t1
            and high[2] + x <= x1
        )


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
