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
        found = apart(one, other)
        if found.largest < best.largest or best is _INFINITE:
            best = found
        if best.largest <= enough:
            break
    return best


def fit(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether there is a layout for both."""
    return a.shape == b.shape or next(_layouts(a, b), None) is not None


def _is_square(a: np.ndarray) -> bool:
    sizes = [size for size in a.shape if size > 1]
    return len(sizes) != len(set(sizes))


def _layouts(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both values in one layout, in all ways that there are."""
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
        yield from _as_rows(a, b)
    elif b.ndim == 2:
        yield from ((one, other) for other, one in _as_rows(b, a))


def _as_rows(rows: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of columns beside a value with any axes, one of them time, the others columns."""
    width = rows.shape[1]
    squeezed = np.squeeze(other)
    if not squeezed.ndim or other.size % width:
        if other.size == rows.size:
            yield rows, other.reshape(rows.shape)
        return
    if squeezed.size == width:  # one frame
        for order in itertools.permutations(range(squeezed.ndim)):
            yield from _frames(rows, squeezed.transpose(order).reshape(1, width))
        return
    for time in range(squeezed.ndim):
        if squeezed.size // squeezed.shape[time] != width:
            continue
        others = [axis for axis in range(squeezed.ndim) if axis != time]
        for order in itertools.permutations(others):
            turned = squeezed.transpose(time, *order)
            yield from _frames(rows, turned.reshape(len(turned), width))


def _frames(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both with the same number of frames: every part of the longer one, in steps."""
    if len(a) == len(b):
        yield a, b
        return
    short, long = sorted((a, b), key=len)
    for step in _STEPS:
        reach = (len(short) - 1) * step + 1
        for start in range(len(long) - reach + 1):
            part = long[start : start + reach : step]
            yield (short, part) if short is a else (part, short)
