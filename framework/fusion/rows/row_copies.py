"""Copies of rows between arrays: at once, or as calls that run again and again on the same arrays.

The calls carry the tasks (team.py) by which a team of threads copies, where the arrays suit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...ir.kernel_args import Call
from ..compiled import native
from ..compiled.arguments import bind, grid, is_host_array
from ..team import ParallelTask, block_task, copy_task, fill_task, library, with_task

_IN_RANGE = "clip"
"""NumPy's mode for rows that are in range by construction; "raise" would go through a buffer."""
_LEAST, _LEAST_RUN, _RUN = 1 << 14, 64, 512
"""Bytes of an array, and of those that lie side by side, from which a copy is worth a task; and of
a run that may be left as one: threads share the runs."""


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
    call = partial(xp.copyto, target, source)
    # Threads would read what others have written, and count no references.
    if xp is np and (target.dtype.hasobject or np.may_share_memory(target, source)):
        return call
    if (turned := _turn_task(target, source)) is not None:
        return turned  # NumPy goes along one of the arrays, a line for each element
    return with_task(call, copy_task(target, source) or _runs_task(target, source))


def _runs_task(target: Any, source: Any) -> ParallelTask | None:
    """The task of a copy between arrays of which runs of elements lie side by side in both; None
    where these are short, or little is copied, which NumPy does as well."""
    arrays = target, source
    if library() is None or not all(is_host_array(array) for array in arrays):
        return None
    if target.dtype != source.dtype or target.shape != source.shape or target.nbytes < _LEAST:
        return None
    run, axis = 1, target.ndim
    while (
        axis
        and run * target.itemsize < _RUN
        and all(
            array.shape[axis - 1] == 1 or array.strides[axis - 1] == run * array.itemsize
            for array in arrays
        )
    ):
        axis -= 1
        run *= target.shape[axis]
    lead, size = target.shape[:axis], run * target.itemsize
    steps = [step for array in arrays for step in array.strides[:axis]]
    if size < _LEAST_RUN or min(steps, default=0) < 0:
        return None
    fields: dict[str, Any] = {"rows": target.size // run, "bytes": size}
    for name, array in zip(("target", "source"), arrays, strict=True):
        rows = grid(lead, array.strides[:axis])
        fields |= {name: array, f"{name}_step": 1, f"{name}_rows": rows}
    return block_task(target.nbytes // 4, bind(library(), "opscope_copy", **fields))


def _turn_task(target: Any, source: Any) -> ParallelTask | None:
    """The task of a copy whose elements lie side by side along different axes of the two arrays, a
    square of vectors at a time; None where the axes do not suit, or little is copied."""
    if not all(is_host_array(array) for array in (target, source)) or target.nbytes < _LEAST:
        return None
    if target.dtype != source.dtype or target.shape != source.shape:
        return None
    if library() is None or native.typed("images", target.dtype) is None:
        return None
    size = target.itemsize
    axes: list[tuple[int, int, int]] = []  # elements, and bytes to the next in target and source
    for count, *steps in zip(target.shape, target.strides, source.strides, strict=True):
        if count == 1:
            continue
        if axes and all(b == count * a for a, b in zip(steps, axes[-1][1:], strict=True)):
            count *= axes.pop()[0]  # noqa: PLW2901 - the two are one axis
        axes.append((count, *steps))
    rows = [axis for axis in axes if axis[1] == size]
    columns = [axis for axis in axes if axis[2] == size]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    (high, _, down), (wide, across, _) = rows[0], columns[0]
    rest = [axis for axis in axes if axis not in (rows[0], columns[0])]
    if min((step for axis in axes for step in axis[1:]), default=0) < size:
        return None
    if any(step % size for axis in axes for step in axis[1:]):
        return None
    lead = [count for count, *_ in rest]
    places = [grid(lead, [axis[at] // size for axis in rest]) for at in (1, 2)]
    block = native.bind(
        "images",
        target.dtype,
        "turned",
        count=target.size // (high * wide),
        rows=high,
        columns=wide,
        x=source,
        x_places=places[1],
        down=down // size,
        out=target,
        out_places=places[0],
        across=across // size,
    )
    return block_task(target.nbytes // 4, block)


def fill_rows_call(xp: Any, target: Any, rows: np.ndarray, value: float) -> Call:
    """A call for target[rows] = value; the rows are on the host and in range."""
    one = np.full((1, *target.shape[1:]), value, target.dtype)
    call = partial(target.__setitem__, xp.asarray(rows), value)
    return with_task(call, copy_task(target, one, rows))


def fill_call(target: Any, value: float) -> Call:
    """A call for target[...] = value."""
    return with_task(partial(target.fill, value), fill_task(target, value))
