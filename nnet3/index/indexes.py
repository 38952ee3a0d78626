"""Indexes (n, t, x) as arrays: packing into sortable keys, finding rows, Kaldi's short text.

An index names one row of a node's matrix: n the sequence in the minibatch, t the time, x a further
number that is mostly 0. A list of indexes is an int32 array [rows, 3]. Kaldi sorts indexes by t,
then x, then n; packed keys sort likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.python.cached import cached_property
from ...framework.base.sequence import repeated
from .time_sets import Series, series

NO_TIME = -(1 << 31)  # the t of a padding row: Kaldi's kNoTime

N_BITS, X_BITS = 20, 14
MAX_N = 1 << N_BITS
MAX_X = 1 << (X_BITS - 1)
MAX_T = 1 << 29
X_MASK = (1 << X_BITS) - 1


def as_indexes(values: object, what: str = "indexes") -> np.ndarray:
    """An int32 array [rows, 3]; ShapeError names what is out of the supported range."""
    try:
        raw = np.asarray(values)
        raw = raw if raw.size else np.zeros((0, 3), np.int64)
        with np.errstate(invalid="ignore"):  # NaN
            array = raw.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        raise ShapeError(f"{what}: each index is a row of whole numbers (n, t, x)") from None
    if array.ndim != 2 or array.shape[1] != 3:
        raise ShapeError(
            f"{what}: each index is a row of whole numbers (n, t, x); you gave an array"
            f" {list(array.shape)}"
        )
    if raw.dtype.kind == "f" and (raw != array).any():
        row = np.flatnonzero((raw != array).any(axis=1))[0]
        shown = ", ".join(f"{part:g}" for part in raw[row].tolist())
        raise ShapeError(
            f"{what}: each index is a row of whole numbers (n, t, x), not ({shown}) (row {row} of"
            f" {len(raw)})"
        )
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


def frame_indexes(sequences: int, times: np.ndarray) -> np.ndarray:
    """Indexes of some times in each of so many sequences, one sequence after the other."""
    n = repeated(np.arange(sequences), len(times))
    t = np.tile(times, sequences)
    return np.stack((n, t, np.zeros_like(t)), axis=1)


def pack_tx(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """int64 keys that sort as (t, x)."""
    return (np.asarray(t, np.int64) << X_BITS) + (x + MAX_X)


def unpack_tx(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """t and x (int64) of keys made by `pack_tx`."""
    return keys >> X_BITS, (keys & X_MASK) - MAX_X


def distinct(values: np.ndarray) -> np.ndarray:
    """The different values of an integer array, sorted; quick where they lie close together."""
    if not values.size:
        return np.zeros(0, np.int64)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > 8 * values.size + 1024:
        ordered = np.sort(values, axis=None).astype(np.int64)  # np.unique would load numpy.ma
        return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]
    there = np.zeros(span, bool)
    there[values - low] = True
    return np.flatnonzero(there) + low


def is_among(values: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """For each of some integers whether it is one of a list; `np.isin` would load numpy.ma."""
    there = distinct(listed)
    if not there.size:
        return np.zeros(values.shape, bool)
    return there[np.minimum(np.searchsorted(there, values), there.size - 1)] == values


class IndexList(Protocol):
    """A list of indexes, of which only the size need be known before it is read.

    Attributes:
        size: how many rows.
        sequences: N where it is known that each (t, x) stands for n = 0 .. N - 1 in turn; else 0.
    """

    size: int
    sequences: int

    @property
    def indexes(self) -> np.ndarray:
        """int32 [rows, 3]: n, t, x; the t of a padding row is NO_TIME."""
        ...

    @property
    def times(self) -> np.ndarray:
        """The different times of rows that are no padding, sorted, int64."""
        ...

    @property
    def images(self) -> np.ndarray:
        """The different pairs (n, x), sorted, int32 [I, 2]."""
        ...


class LazyIndexes:
    """An `IndexList` that a function makes when it is read."""

    def __init__(self, size: int, sequences: int, make: Callable[[], np.ndarray]) -> None:
        self.size = size
        self.sequences = sequences
        self._make = make

    @cached_property
    def indexes(self) -> np.ndarray:
        """See `IndexList`."""
        return self._make()

    @property
    def times(self) -> np.ndarray:
        """See `IndexList`."""
        return self._columns.times

    @cached_property
    def images(self) -> np.ndarray:
        """See `IndexList`."""
        return self._columns.images

    @cached_property
    def _columns(self) -> Columns:
        return Columns.of(self.indexes)


class Columns(IndexList):
    """A list of indexes as int64 arrays n, t and x, with facts that are often used.

    Not to be changed: steps of one list share it.

    Attributes:
        size, sequences: see `IndexList`.
        within: a list of which this is a part, and where it begins there.
        aligned: how the rows lie, where they are the same times of some sequences.
    """

    sequences = 0
    within: tuple[Columns, int] | None = None
    aligned: Aligned | None = None
    _factors: tuple[np.ndarray, np.ndarray] | None = None  # values of n, and keys
    _base: tuple[tuple[int, int], np.ndarray] | None = None

    def __init__(self, n: np.ndarray, t: np.ndarray, x: np.ndarray) -> None:
        self.n = n
        self.t = t
        self.x = x
        self.size = len(t)

    def __len__(self) -> int:
        return self.size

    @classmethod
    def of(cls, indexes: np.ndarray) -> Columns:
        """The columns of indexes [rows, 3]."""
        if indexes.dtype != np.int32:
            return cls(*np.ascontiguousarray(indexes.T, np.int64))
        columns = cls.__new__(cls)
        columns.indexes = indexes
        columns.size = len(indexes)
        return columns

    @classmethod
    def product(cls, ns: np.ndarray, lists: Sequence[np.ndarray]) -> list[Columns]:
        """For each list of sorted keys (see `pack_tx`): its rows for every n, n innermost."""
        whole = cls.__new__(cls)
        together = np.concatenate(lists) if len(lists) > 1 else lists[0]
        whole.size = len(together) * len(ns)
        whole._factors = (ns, together)
        x = together & X_MASK
        low_x, high_x = int(x.min()) - MAX_X, int(x.max()) - MAX_X
        low_n = int(ns[0])
        high_n = int(ns[-1])
        count = len(ns)
        sequences = count if low_n == 0 and high_n == count - 1 else 0
        parts = []
        end = 0
        for keys in lists:
            columns = cls.__new__(cls)
            columns.size = len(keys) * count
            columns.sequences = sequences
            columns.within = (whole, end)
            columns.real = None
            columns.low = low_n, int(keys[0]) >> X_BITS, low_x
            columns.high = high_n, int(keys[-1]) >> X_BITS, high_x
            end += columns.size
            parts.append(columns)
        return parts

    @cached_property
    def n(self) -> np.ndarray:
        """The sequences."""
        return self._column(0)

    @cached_property
    def t(self) -> np.ndarray:
        """The times."""
        return self._column(1)

    @cached_property
    def x(self) -> np.ndarray:
        """The further numbers."""
        return self._column(2)

    def _column(self, number: int) -> np.ndarray:
        return np.ascontiguousarray(self.indexes[:, number], np.int64)

    @cached_property
    def indexes(self) -> np.ndarray:
        """int32 [rows, 3]: n, t, x; the t of a padding row is NO_TIME."""
        if self.within is not None:
            whole, begin = self.within
            return whole.indexes[begin : begin + self.size]
        if self._factors is None:
            n, t, x = self.n, self.t, self.x
        else:
            n, keys = self._factors
            t, x = (part[:, None] for part in unpack_tx(keys))
        indexes = np.empty((*np.broadcast_shapes(n.shape, t.shape), 3), np.int32)
        indexes[..., 0], indexes[..., 1], indexes[..., 2] = n, t, x
        return indexes.reshape(-1, 3)

    @cached_property
    def real(self) -> np.ndarray | None:
        """Which rows are no padding; None: all."""
        if not self.size or self.t.min() != NO_TIME:
            return None
        return self.t != NO_TIME

    @cached_property
    def low(self) -> tuple[int, int, int]:
        """Lower bounds of n, t and x of rows that are no padding."""
        return self._bounds(np.min)

    @cached_property
    def high(self) -> tuple[int, int, int]:
        """Upper bounds of n, t and x of rows that are no padding."""
        return self._bounds(np.max)

    def _bounds(self, bound: Callable[[np.ndarray], int]) -> tuple[int, int, int]:
        kept = slice(None) if self.real is None else self.real
        n, t, x = (bound(part[kept]) for part in (self.n, self.t, self.x))
        return int(n), int(t), int(x)

    @cached_property
    def regular(self) -> bool:
        """Whether it is known that all sequences have the same times, and x is one number."""
        return self.within is not None and self.low[2] == self.high[2]

    @cached_property
    def images(self) -> np.ndarray:
        """The different pairs (n, x), sorted, int32 [I, 2]."""
        if self.within is not None and self.regular:
            return self.within[0].images
        if self.size and self.x.min() == self.x.max():
            ns = distinct(self.n)
            return np.stack((ns, np.full_like(ns, self.x[0])), axis=1).astype(np.int32)
        return np.unique(self.indexes[:, ::2], axis=0)

    @cached_property
    def times(self) -> np.ndarray:
        """The different times of rows that are no padding, sorted, int64."""
        if self.regular:
            return self.t[:: len(self.images)]
        return distinct(self.t if self.real is None else self.t[self.real])

    def base(self, counts: tuple[int, int]) -> np.ndarray:
        """Places in a table of `counts` values of n and x, all lower bounds being 0."""
        if self.within is not None:
            whole, begin = self.within
            return whole.base(counts)[begin : begin + self.size]
        if self._base is None or self._base[0] != counts:
            of_n, of_x = counts
            base = self.t if of_x == 1 else self.t * of_x + self.x
            self._base = counts, base * of_n + self.n if of_n > 1 else base
        return self._base[1]


Family: TypeAlias = dict[int, Columns]  # lists by their sets of times, n innermost


class Aligned:
    """How the rows of a list lie: the same times for each of its sequences.

    Attributes:
        family: the lists of the same sequences.
        bits: the times.
        keys: the same as keys of (t, x), sorted.
        grid: the number of each row by time and sequence, both sorted, int32 [times, sequences].
        in_order: rows are numbered as they stand in the grid.
    """

    __slots__ = ("_grid", "_series", "bits", "family", "in_order", "keys", "sequences")

    def __init__(
        self,
        family: Family,
        bits: int,
        keys: np.ndarray,
        sequences: int,
        grid: np.ndarray | None = None,
    ):
        self.family = family
        self.bits = bits
        self.keys = keys
        self.sequences = sequences
        self.in_order = grid is None
        self._grid = grid
        self._series: Series | None | Literal[False] = False  # not looked at

    @property
    def grid(self) -> np.ndarray:
        """See the class."""
        if self._grid is None:
            size = len(self.keys) * self.sequences
            self._grid = np.arange(size, dtype=np.int32).reshape(-1, self.sequences)
        return self._grid

    @property
    def series(self) -> Series | None:
        """The times, where they are a series."""
        if self._series is False:
            self._series = series(self.bits)
        return self._series

    def moved(self, t: int) -> int:
        """The times that are later by t."""
        return self.bits << t if t >= 0 else self.bits >> -t

    def rows_of(self, reader: Aligned, t: int) -> np.ndarray:
        """Which rows of this list the rows of `reader` are, at times later by t; all are there."""
        asked, there = reader.series, self.series
        if asked is not None and there is not None:
            first = (asked.start + t - there.start) // there.step
            every = asked.step // there.step or 1
            rows = self.grid[first : first + (asked.count - 1) * every + 1 : every]
        else:
            rows = self.grid[np.searchsorted(self.keys, reader.keys + (t << X_BITS))]
        return reader.listed(rows)

    def listed(self, grid: np.ndarray) -> np.ndarray:
        """The entries of an array [times, sequences] in the order of the rows."""
        if self.in_order:
            return grid.reshape(-1)
        rows = np.empty(grid.size, grid.dtype)
        rows[self.grid] = grid
        return rows


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
    start = 0
    end = len(ints)
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
