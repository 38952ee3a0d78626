"""Sequences of different lengths as packed rows with offsets, and the order in which steps run.

A batch of sequences is one array of rows, sequence after sequence, and `offsets`: sequence i is the
rows offsets[i]:offsets[i+1]. With two levels the outer offsets count inner sequences. There is no
padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .errors import ShapeError, format_shape
from .sizes.shape import Levels


@dataclass(frozen=True, eq=False)
class Sequences:
    """Rows and their offsets: what is fed to, and fetched from, a variable that holds sequences.

    `len` is the number of (outermost) sequences, iteration goes over them as `to_list` does, and an
    index array or a slice picks some of them.

    Attributes:
        data: [rows, ...].
        levels: offsets of each level, outermost first, int64.

    Raises:
        ShapeError: the offsets fall, do not start at 0 or do not end with the rows.
    """

    data: np.ndarray
    levels: Levels

    def __post_init__(self) -> None:
        data = self.data if hasattr(self.data, "dtype") else np.asarray(self.data)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "levels", check_offsets(self.levels, data.shape, "sequences"))
        if not self.levels:
            raise ShapeError("sequences want offsets, one level at least")

    @classmethod
    def from_list(cls, items: Sequence[Any], dtype: Any = None, *, levels: int = 1) -> Sequences:
        """Pack a list of sequences, or (levels=2) a list of lists of sequences.

        Each sequence is an array [steps, ...] or what makes one; empty ones are kept.

        Raises:
            ShapeError: the rows of two sequences have different shapes, or one is no array.
        """
        if not len(items):
            raise ShapeError("no sequences: a batch holds at least one, if only an empty one")
        if levels not in (1, 2):
            raise ShapeError(f"sequences have 1 or 2 levels, not {levels}")
        inner = _inner_items(items) if levels == 2 else items
        flat = [_as_rows(item, number, dtype) for number, item in enumerate(inner)]
        offsets = [offsets_of([len(s) for s in flat])]
        if levels == 2:
            offsets.insert(0, offsets_of([len(item) for item in items]))
        # An empty list becomes an array of shape [0], whatever its rows would be: it says nothing
        # about the shape of rows.
        filled = [s for s in flat if len(s)] or flat[:1]
        if not filled:
            return cls(np.empty((0,), dtype or np.float32), tuple(offsets))
        shapes = {s.shape[1:] for s in filled}
        if len(shapes) > 1:
            shown = " and ".join(format_shape(shape) for shape in sorted(shapes)[:2])
            raise ShapeError(f"the rows of these sequences have different shapes: {shown}")
        return cls(np.concatenate(filled), tuple(offsets))

    @classmethod
    def from_padded(cls, array: Any, mask: Any = None, lengths: Any = None) -> Sequences:
        """Pack a padded array [sequences, steps, ...].

        Args:
            mask: [sequences, steps], true where there is a row; the true ones come first.
            lengths: steps of each sequence, instead of a mask.

        Raises:
            ShapeError: neither or both are given, sizes do not fit, or a mask with gaps.
        """
        array = np.asarray(array)
        if (mask is None) == (lengths is None):
            raise ShapeError("give either a mask or lengths")
        if array.ndim < 2:
            raise ShapeError(f"a padded batch is [sequences, steps, ...], not {array.shape}")
        count, steps = array.shape[:2]
        if mask is not None:
            mask = np.asarray(mask, bool)
            if mask.shape != (count, steps):
                raise ShapeError(f"the mask is {mask.shape}; the batch has {(count, steps)} steps")
            # A true entry after a false one: packing would close the gap and shift the later steps.
            if (mask[:, 1:] & ~mask[:, :-1]).any():
                gap = int(np.flatnonzero((mask[:, 1:] & ~mask[:, :-1]).any(axis=1))[0])
                raise ShapeError(f"the mask of sequence {gap} has a gap before its last step")
        else:
            given = np.asarray(lengths)
            good = given.shape == (count,) and given.dtype.kind in "iu"
            if not good or (given < 0).any() or (given > steps).any():
                raise ShapeError(f"want {count} lengths from 0 to {steps}, not {given.tolist()}")
            mask = np.arange(steps) < given[:, None]
        return cls(array[mask], (offsets_of(mask.sum(axis=1)),))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the rows."""
        return self.data.shape

    def __len__(self) -> int:
        return len(self.levels[0]) - 1

    def __getitem__(self, chosen: Any) -> Sequences:
        """Some of the outermost sequences: an index array, a list or a slice."""
        numbers = np.arange(len(self))[chosen]
        if numbers.ndim != 1:
            raise ShapeError(f"sequences are picked by a list of numbers or a slice, not {chosen}")
        levels = []
        for offsets in self.levels:
            lengths = lengths_of(offsets)[numbers]
            levels.append(offsets_of(lengths))
            numbers = runs(offsets[:-1][numbers], lengths)
        return Sequences(self.data[numbers], tuple(levels))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def to_list(self) -> list[Any]:
        """The sequences as arrays; lists of arrays where there are two levels. Views, no copies."""
        inner = self.levels[-1]
        flat = [self.data[a:b] for a, b in zip(inner[:-1], inner[1:], strict=True)]
        if len(self.levels) == 1:
            return flat
        outer = self.levels[0]
        return [flat[a:b] for a, b in zip(outer[:-1], outer[1:], strict=True)]

    def to_padded(self, value: float = 0) -> tuple[np.ndarray, np.ndarray]:
        """Padded array [sequences, longest, ...] and its mask; of the innermost level."""
        counts = lengths_of(self.levels[-1])
        mask = np.arange(int(counts.max(initial=0))) < counts[:, None]
        out = np.full(mask.shape + self.data.shape[1:], value, self.data.dtype)
        out[mask] = self.data
        return out, mask


def _inner_items(items: Sequence[Any]) -> list[Any]:
    """The sequences of sequences of sequences."""
    for number, item in enumerate(items):
        if not hasattr(item, "__len__") or isinstance(item, np.ndarray) and not item.ndim:
            raise ShapeError(f"item {number} is no list of sequences: {item!r}")
    return [part for item in items for part in item]


def _as_rows(item: Any, number: int, dtype: Any) -> np.ndarray:
    try:
        rows = np.asarray(item, dtype)
    except (ValueError, TypeError) as error:
        raise ShapeError(f"sequence {number} is no array: {error}") from None
    if not rows.ndim:
        raise ShapeError(f"sequence {number} is a single number, not a list of rows")
    return rows


def check_offsets(offsets: Sequence[Any], shape: tuple[int, ...], owner: str) -> Levels:
    """Levels of offsets as int64 arrays: each starts at 0, never falls, ends at the next's length.

    Args:
        shape: of the rows.
        owner: whose offsets these are, for messages.

    Raises:
        ShapeError: with the owner, the level and the first bad entry.
    """
    if not shape:
        raise ShapeError(f"{owner}: a scalar cannot carry sequences")
    levels = tuple(
        _one_level(level, f"{owner}: offsets of level {n}") for n, level in enumerate(offsets)
    )
    for depth, level in enumerate(levels):
        last = len(levels[depth + 1]) - 1 if depth + 1 < len(levels) else shape[0]
        what = f"{owner}: offsets of level {depth}"
        falls = np.flatnonzero(np.diff(level) < 0)
        if len(falls):
            at = int(falls[0])
            raise ShapeError(f"{what} fall from {level[at]} to {level[at + 1]} at entry {at + 1}")
        if level[-1] != last:
            of = "sequences" if depth + 1 < len(levels) else "rows"
            raise ShapeError(f"{what} end at {level[-1]}, but there are {last} {of}")
    return levels


def equal_levels(some: Levels, others: Levels) -> bool:
    """Whether the offsets of two arrays are the same at all levels."""
    return len(some) == len(others) and all(map(_are_equal, some, others))


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, OpenOffsets) or isinstance(other, OpenOffsets):
        if one is not other:
            raise TypeError("whether sequences whose lengths vary are equally long")
        return True
    return np.array_equal(one, other)


def _one_level(level: Any, what: str) -> np.ndarray:
    try:
        given = np.asarray(level)
    except ValueError as error:
        raise ShapeError(f"{what} are no list of integers: {error}") from None
    if given.ndim != 1 or len(given) == 0 or given[0] != 0:
        raise ShapeError(f"{what} must be a list that starts with 0, not {given.tolist()}")
    # Rounding offsets would move the boundaries of sequences without a word.
    if given.dtype.kind not in "iu":
        raise ShapeError(f"{what} must be integers, not {given.dtype}")
    return given.astype(np.int64)


def runs(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The runs begins[i] : begins[i] + lengths[i] of numbers, one after the other."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + repeated(begins - offsets[:-1], lengths)


def offsets_of(lengths: Any) -> np.ndarray:
    """Offsets of sequences with these lengths."""
    lengths = np.asarray(lengths, np.int64)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def repeated(values: ArrayLike, counts: ArrayLike, axis: int | None = None) -> np.ndarray:
    """Each value as often as its count says, in order, as `np.repeat`.

    NumPy takes no counts wider than an address, which has 32 bits in WebAssembly.
    """
    return np.repeat(values, np.asarray(counts, np.intp), axis)


def bincount(values: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0) -> np.ndarray:
    """How often each number occurs, or the sum of its weights, as `np.bincount`.

    NumPy takes no numbers wider than an address, which has 32 bits in WebAssembly.
    """
    return np.bincount(np.asarray(values, np.intp), weights, minlength)


def lengths_of(offsets: np.ndarray) -> np.ndarray:
    """Lengths of sequences with these offsets."""
    return np.diff(offsets)


@dataclass(frozen=True, eq=False)
class OpenOffsets:
    """What stands for the offsets of sequences of any lengths, where sizes vary.

    Attributes:
        count, rows, longest: how many sequences there are, the rows of all of them, and the length
            of the longest.
        first, last: how many have a first row, and how many are as long as the longest.
    """

    count: Any
    rows: Any
    longest: Any
    first: Any
    last: Any

    @staticmethod
    def numbers(offsets: np.ndarray) -> list[int]:
        """The attributes, where sizes are numbers."""
        lengths = lengths_of(offsets)
        longest = int(lengths.max(initial=0))
        first, last = np.count_nonzero(lengths), np.count_nonzero(lengths == longest)
        return [len(lengths), int(offsets[-1]), longest, int(first), int(last)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("offsets of sequences whose lengths vary")


@dataclass(frozen=True)
class EvenOffsets:
    """What stands for the offsets of sequences that are all equally long, where sizes vary.

    Attributes:
        count, length: how many sequences there are, and the length of each.
    """

    count: Any
    length: Any

    @property
    def rows(self) -> Any:
        """Rows of all sequences."""
        return self.count * self.length

    @property
    def longest(self) -> Any:
        """The length of each."""
        return self.length

    @property
    def first(self) -> Any:
        """How many have a first row, and a last one: all of them."""
        return self.count

    last = first

    @staticmethod
    def of(count: int, length: int) -> np.ndarray:
        """The offsets, where sizes are numbers."""
        return np.arange(count + 1) * length


def count_in(offsets: Any) -> Any:
    """How many sequences there are, by their offsets or by what stands for them."""
    return len(offsets) - 1 if isinstance(offsets, np.ndarray) else offsets.count


def rows_in(offsets: Any) -> Any:
    """The rows of all sequences, likewise."""
    return int(offsets[-1]) if isinstance(offsets, np.ndarray) else offsets.rows


def longest_in(offsets: Any) -> Any:
    """The length of the longest sequence, likewise."""
    if isinstance(offsets, np.ndarray):
        return int(lengths_of(offsets).max(initial=0))
    return offsets.longest


@dataclass(frozen=True)
class Schedule:
    """Which rows run in which step: time-major order without padding.

    Sequences are ordered by falling length, so that those with a step t are the first `sizes[t]`.
    The rows of step t stand together at starts[t]:starts[t+1].

    Attributes:
        order: [sequences], original number of the sequence at each place.
        sizes: [steps], sequences that have step t.
        starts: [steps + 1].
        rows: [rows], packed row of each time-major row.
    """

    order: np.ndarray
    sizes: np.ndarray
    starts: np.ndarray
    rows: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.sizes)


def make_schedule(offsets: np.ndarray) -> Schedule:
    """The schedule of a batch of sequences; works on whole arrays, in O(rows)."""
    lengths = lengths_of(offsets)
    # Stable, so that equal lengths keep their order and runs are reproducible.
    order = np.argsort(-lengths, kind="stable")
    steps = int(lengths.max(initial=0))
    ended = bincount(lengths, minlength=steps + 1)  # sequences of each length
    # Step t has the sequences that are longer than t: all but those that ended at t or before.
    sizes = len(lengths) - np.cumsum(ended)[:steps]
    starts = offsets_of(sizes)
    step_of_row = repeated(np.arange(steps), sizes)
    place_of_row = np.arange(starts[-1]) - starts[step_of_row]
    rows = offsets[:-1][order[place_of_row]] + step_of_row
    return Schedule(order, sizes, starts, rows)
