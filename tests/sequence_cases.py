"""Batches of sequences that the tests of sequence operators share."""

import numpy as np

from opscope.framework.base.sequence import offsets_of

RAGGED = [[0, 3, 3, 7, 8]]
"""Four sequences of 3, 0, 4 and 1 rows."""

NESTED = [[0, 2, 2, 4], [0, 2, 3, 3, 7]]
"""Two, none and two sequences; these have 2, 1, 0 and 4 rows."""

EMPTY = [[0, 0, 0]]
"""Two sequences without rows."""

SINGLES = [[0, 1, 2, 3]]
"""One row each."""

BATCHES = (RAGGED, NESTED, EMPTY, SINGLES)


def rows_in(levels):
    return int(levels[-1][-1])


def values(rng, levels, *width):
    """Rows whose elements keep apart by more than finite differences reach."""
    shape = (rows_in(levels), *width)
    return rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1 - 1


def wide_batch(rng):
    """Many short sequences of wide rows, which are reduced step by step."""
    levels = [offsets_of(rng.integers(0, 4, 40))]
    return levels, values(rng, levels, 30)


def parts(array, levels):
    """The innermost sequences."""
    offsets = levels[-1]
    return [array[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
