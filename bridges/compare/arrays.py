"""Two values of one layer in different layouts: brought into one, and how far apart they are.

nnet3 and CNTK have rows of columns; ONNX and PyTorch put an axis of sequences before, and often
columns before time. A graph may compute more frames of a layer than another one needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_MOST_AXES = 5  # permutations of more are not tried
_FEWEST = 4
_STEPS = (1, 2, 3)  # from one frame to the next that the other one has


class Apart(NamedTuple):
    """How far two values are apart.

    Attributes:
        largest: the largest error, of values above 1 relative to them; infinity where shapes or
            places of NaN differ.
        mean: of all errors.
        place: of the largest, in the layout of the first value; () where shapes differ.
        values: both numbers there.
    """

    largest: float
    mean: float
    place: tuple[int, ...] = ()
    values: tuple[float, float] = (float("nan"), float("nan"))


_INFINITE = Apart(float("inf"), float("inf"))


def apart(a: np.ndarray, b: np.ndarray) -> Apart:
    """How far two values of one layout are apart; errors are relative to the first."""
    if a.shape != b.shape:
        return _INFINITE
    if not a.size:
        return Apart(0.0, 0.0)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(wide_a - wide_b) / np.maximum(1.0, np.abs(wide_a))
    errors = np.where((wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b)), 0.0, errors)
    errors = np.where(np.isnan(errors), np.inf, errors)
    at = np.unravel_index(int(errors.argmax()), errors.shape)
    place = tuple(int(i) for i in at)
    return Apart(
        float(errors[at]), float(errors.mean()), place, (float(wide_a[at]), float(wide_b[at]))
    )


def apart_in_layouts(a: np.ndarray, b: np.ndarray, enough: float = 0.0) -> Apart:
    """How far two values are apart in the layout in which they are nearest; see `apart`.

    Args:
        enough: an error up to which no other layout is tried.
    """
    if a.shape == b.shape and not _is_square(a):
        return apart(a, b)
    best = _INFINITE
    for one, other in _layouts(a, b):
        candidate = apart(one, other)
        if candidate.largest < best.largest or best is _INFINITE:
            best = candidate
        if best.largest <= enough:
            break
    return best


def equal_in_a_layout(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether there is a layout in which no error is above the tolerance."""
    straight = a.shape == b.shape and not _is_square(a)
    for one, other in [(a, b)] if straight else _layouts(a, b, tolerance):
        if one.ndim and len(one) > 1 and not apart(one[0], other[0]).largest <= tolerance:
            continue  # most layouts are refused by a row
        if apart(one, other).largest <= tolerance:
            return True
    return False


def scaled(a: np.ndarray, b: np.ndarray, tolerance: float, offsets: bool = False) -> bool:
    """Whether each column of `b` is the column of `a` times a positive number of its own.

    So an affine layer differs, and the ReLU after it, where a conversion has put the scales of
    the batch normalization that follows into it. There must be `_FEWEST` values in a column.

    Args:
        offsets: each column may have an offset as well.
    """
    for one, other in [(a, b)] if a.shape == b.shape else _layouts(a, b):
        wide, far = one.astype(np.float64), other.astype(np.float64)
        if not (np.isfinite(wide).all() and np.isfinite(far).all()):
            return False
        bound = tolerance * np.maximum(1.0, np.maximum(np.abs(wide), np.abs(far)))
        for axis in range(wide.ndim):
            if wide.size < _FEWEST * wide.shape[axis] or wide.shape[axis] < 2:
                continue
            rest = tuple(other for other in range(wide.ndim) if other != axis)
            mine, theirs = wide, far
            if offsets:
                mine, theirs = (one - one.mean(rest, keepdims=True) for one in (wide, far))
            squares = (mine * mine).sum(rest, keepdims=True)
            factors = (mine * theirs).sum(rest, keepdims=True) / np.where(squares > 0, squares, 1.0)
            holds = (factors > 0) | (squares <= 1e-20)
            if holds.all() and (np.abs(theirs - factors * mine) <= bound).all():
                return True
    return False


def fit(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether there is a layout for both."""
    return a.shape == b.shape or next(_layouts(a, b), None) is not None


def _is_square(a: np.ndarray) -> bool:
    sizes = [size for size in a.shape if size > 1]
    return len(sizes) != len(set(sizes))


def _layouts(
    a: np.ndarray, b: np.ndarray, within: float = np.inf
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both values in one layout, in all ways that there are.

    Args:
        within: parts of a longer value whose first frames are further apart may be left out.
    """
    if not a.size or not b.size:
        return
    small_a, small_b = np.squeeze(a), np.squeeze(b)
    if max(small_a.ndim, small_b.ndim) > _MOST_AXES:
        return
    if small_a.ndim == small_b.ndim:
        for order in itertools.permutations(range(small_b.ndim)):
            turned = small_b.transpose(order)
            if turned.shape == small_a.shape:
                yield small_a, turned
    if a.ndim == 2:
        yield from _as_rows(a, b, within)
    elif b.ndim == 2:
        yield from ((one, other) for other, one in _as_rows(b, a, within))


def _as_rows(
    rows: np.ndarray, other: np.ndarray, within: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of columns beside a value with any axes, one of them time, the others columns."""
    width = rows.shape[1]
    squeezed = np.squeeze(other)
    if not squeezed.ndim or other.size % width:
        if other.size == rows.size:
            yield rows, other.reshape(rows.shape)
        return
    if squeezed.size == width:  # one frame
        for order in itertools.permutations(range(squeezed.ndim)):
            yield from _frames(rows, squeezed.transpose(order).reshape(1, width), within)
        return
    for time in range(squeezed.ndim):
        if squeezed.size // squeezed.shape[time] != width:
            continue
        others = [axis for axis in range(squeezed.ndim) if axis != time]
        for order in itertools.permutations(others):
            turned = squeezed.transpose(time, *order)
            yield from _frames(rows, turned.reshape(len(turned), width), within)


def _frames(a: np.ndarray, b: np.ndarray, within: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both with the same number of frames: every part of the longer one, in steps."""
    if len(a) == len(b):
        yield a, b
        return
    short, long = sorted((a, b), key=len)
    near = np.ones(len(long), bool)
    if within < np.inf:
        wide = long.astype(np.float64)
        bound = within * np.maximum(1.0, np.abs(wide))
        near = (np.abs(wide - short[0].astype(np.float64)) <= bound * (1 + within)).all(1)
    for step in _STEPS:
        reach = (len(short) - 1) * step + 1
        for start in np.flatnonzero(near[: max(len(long) - reach + 1, 0)]).tolist():
            part = long[start : start + reach : step]
            yield (short, part) if short is a else (part, short)
