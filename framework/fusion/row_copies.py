"""Copies of rows between arrays: at once, or as calls that run again and again on the same arrays.

The calls carry the tasks (team.py) by which a team of threads copies, where the arrays suit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..ir.kernel_args import Call
from .team import copy_task, fill_task, with_task

_IN_RANGE = "clip"
"""NumPy's mode for rows that are in range by construction; "raise" would go through a buffer."""


def take_rows(xp: Any, source: Any, rows: Any, target: Any) -> None:
    """target = source[rows], now.

    Args:
        xp: the array module of the arrays. rows: indices, all of them in range.
    """
    if xp is np:
        source.take(rows, 0, target, _IN_RANGE)
    else:
        source.take(rows, 0, target)


def take_call(xp: Any, source: Any, rows: np.ndarray, target: Any) -> Call:
    """A call for target = source[rows]; the rows are on the host and in range."""
    mode = (_IN_RANGE,) if xp is np else ()
    call = partial(source.take, xp.asarray(rows), 0, target, *mode)
    return with_task(call, copy_task(target, source, source_rows=rows))


def put_call(
    xp: Any, source: Any, rows: np.ndarray | None, target_rows: np.ndarray, target: Any
) -> Call:
    """A call for target[target_rows] = source[rows]; without `rows`, of all rows of the source."""
    index = xp.asarray(target_rows)
    source_index = slice(None) if rows is None else xp.asarray(rows)

    def put() -> None:
        target[index] = source[source_index]

    return with_task(put, copy_task(target, source, target_rows, rows))


def copy_call(xp: Any, source: Any, target: Any) -> Call:
    """A call for target[...] = source."""
    return with_task(partial(xp.copyto, target, source), copy_task(target, source))


def fill_call(target: Any, value: float) -> Call:
    """A call for target[...] = value."""
    return with_task(partial(target.fill, value), fill_task(target, value))
