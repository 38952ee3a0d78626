"""Sequences of different lengths as packed rows with offsets, and the order in which steps run.

A batch of sequences is one array of rows, sequence after sequence, and `offsets`: sequence i is the
rows offsets[i]:offsets[i+1]. With two levels the outer offsets count inner sequences. There is no
padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import ShapeError, format_shape
from .shape import Levels


@dataclass(frozen=True)
class Sequences:
    """Rows and their offsets: what is fed to, and fetched from, a variable that holds sequences.

    Attributes:
        data: [rows, ...].
        levels: one array of offsets for each level.
    """

    data: np.ndarray
    levels: Levels

    @classmethod
    def from_list(cls, items: Sequence[Any], dtype: Any = None, *, levels: int = 1) -> Sequences:
        """Pack a list of sequences, or (levels=2) a list of lists of sequences.

        Each sequence is an array [steps, ...] or what makes one; empty ones are kept.

        Raises:
            ShapeError: the rows of two sequences have different shapes.
        """
        if not items:
            raise ShapeError("no sequences: a batch holds at least one, if only an empty one")
        if levels not in (1, 2):
            raise ShapeError(f"sequences have 1 or 2 levels, not {levels}")
        inner = [part for item in items for part in item] if levels == 2 else items
        flat = [np.asarray(item, dtype) for item in inner]
        offsets = [offsets_of([len(s) for s in flat])]
        if levels == 2:
            offsets.insert(0, offsets_of([len(item) for item in items]))
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
            if (mask[:, 1:] & ~mask[:, :-1]).any():
                gap = int(np.flatnonzero((mask[:, 1:] & ~mask[:, :-1]).any(axis=1))[0])
                raise ShapeError(f"the mask of sequence {gap} has a gap before its last step")
        else:
            given = np.asarray(lengths, np.int64)
            if given.shape != (count,) or (given < 0).any() or (given > steps).any():
                raise ShapeError(f"want {count} lengths from 0 to {steps}, not {given.tolist()}")
            mask = np.arange(steps) < given[:, None]
        return cls(array[mask], (offsets_of(mask.sum(axis=1)),))

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


def offsets_of(lengths: Any) -> np.ndarray:
    """Offsets of sequences with these lengths."""
    lengths = np.asarray(lengths, np.int64)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def lengths_of(offsets: np.ndarray) -> np.ndarray:
    """Lengths of sequences with these offsets."""
    return np.diff(offsets)


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
    order = np.argsort(-lengths, kind="stable")
    steps = int(lengths.max(initial=0))
    ended = np.bincount(lengths, minlength=steps + 1)  # sequences of each length
    sizes = len(lengths) - np.cumsum(ended)[:steps]
    starts = offsets_of(sizes)
    step_of_row = np.repeat(np.arange(steps), sizes)
    place_of_row = np.arange(starts[-1]) - starts[step_of_row]
    rows = offsets[:-1][order[place_of_row]] + step_of_row
    return Schedule(order, sizes, starts, rows)
