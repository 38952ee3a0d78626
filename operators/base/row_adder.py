"""Rows added to rows by their numbers, in C: what `add.at` does, some ten times as fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion import native, team
from ...framework.ir.kernel_args import Call


def row_adder(out: Any, ids: Any, values: Any) -> Call | None:
    """A call for out[ids] += values of contiguous NumPy arrays, for ids in range; None for others.

    Args:
        out: [rows, ...]. ids: any shape, int64. values: shape of ids, then that of a row of out.
    """
    arrays = out, ids, values
    suited = all(
        type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned
        for array in arrays
    )
    if not suited or out.dtype != values.dtype or native.typed("row_adder", out.dtype) is None:
        return None
    if ids.dtype != np.int64 or not ids.size or not values.size:
        return None
    width = values.size // ids.size
    words = [ids.size, width, len(out), *(array.ctypes.data for array in (out, ids, values))]
    argument = np.array(words, np.int64)
    item = (native.function("row_adder", out.dtype, "add_rows"), argument.ctypes.data)
    # Addresses keep nothing alive, so the task holds the arrays that they point into.
    return team.run_together([team.ParallelTask((item,), 2 * values.size, (argument, arrays))])
