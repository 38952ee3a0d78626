"""Rows added to rows by their numbers, in C: what `add.at` does, some ten times as fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion import native, team
from ...framework.ir.kernel_args import Call


def row_adder(out: Any, ids: Any, values: Any, places: Any = None) -> Call | None:
    """A call for out[ids] += values of contiguous NumPy arrays, for ids in range; None for others.

    Args:
        out: [rows, ...]. ids: any shape, int64. values: shape of ids, then that of a row of out.
        places: shape of ids, int64: values [n, ...] are rows then, and values[places] are added.
    """
    arrays = (out, ids, values) if places is None else (out, ids, values, places)
    suited = all(
        type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned
        for array in arrays
    )
    if not suited or out.dtype != values.dtype or native.typed("row_adder", out.dtype) is None:
        return None
    numbers = (ids,) if places is None else (ids, places)
    if any(one.dtype != np.int64 or not one.size for one in numbers) or not values.size:
        return None
    count = ids.size if places is None else len(values)
    width = values.size // count
    block = native.bind(
        "row_adder",
        out.dtype,
        "add_rows",
        count=ids.size,
        columns=width,
        rows=len(out),
        out=out,
        ids=ids,
        taken=count,
        places=places,
        values=values,
    )
    return team.run_together([team.block_task(2 * ids.size * width, block)])
