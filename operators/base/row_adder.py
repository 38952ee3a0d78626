"""Rows added to rows by their numbers, in C: what `add.at` does, some ten times as fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.ir.kernel_args import Call, KernelArgs
from .calls import is_whole

_ADDED, _SORTED = 2, 32
"""Work of adding an element, and elements that take as long as sorting a number."""
_SPARSE = 2
"""Rows for each of those added from which most stay as they are: sorting would pass by all."""


def row_adder(out: Any, ids: Any, values: Any, places: Any = None) -> Call | None:
    """A call for out[ids] += values of contiguous NumPy arrays, for ids in range; None for others.

    Args:
        out: [rows, ...]. ids: any shape, int64. values: shape of ids, then the shape of a row of
            out.
        places: shape of ids, int64: values [n, ...] are rows then, and values[places] are added.
    """
    arrays = (out, ids, values) if places is None else (out, ids, values, places)
    suited = all(map(is_whole, arrays))
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
    return team.block_task(2 * ids.size * width, block)


def row_summer(
    k: KernelArgs, after: KernelArgs, begin: Any, out: Any, check: Callable[[], Any]
) -> Call | None:
    """A call for out = begin, then out[to] += x[ids], of contiguous NumPy arrays; None for others,
    and where few rows are added to.

    Args:
        k: of the operator that takes rows: x [n, ...], ids. after: of the one that adds them; its
            ids have the same shape and say where to.
        begin: like out; None: zeros.
        check: raises the error of ids that are out of range, of which C finds that there are such;
            nothing is written then.
    """
    x, ids, to = k["x"], k["ids"], after["ids"]
    rows = (x, out) if begin is None else (x, out, begin)
    if not all(is_whole(array) and array.size for array in (*rows, ids, to)):
        return None
    if any(one.dtype != np.int64 for one in (ids, to)) or x.dtype != out.dtype:
        return None
    if len(out) > _SPARSE * ids.size or native.typed("row_adder", out.dtype) is None:
        return None
    columns = out.size // len(out)
    block = native.bind(
        *("row_adder", out.dtype, "order_rows"),
        **{"count": ids.size, "columns": columns, "rows": len(out), "out": out, "begin": begin},
        **{"ids": to, "taken": len(x), "places": ids, "values": x},
        ids_from_end=int(after.attrs["from_end"]),
        places_from_end=int(k.attrs["from_end"]),
        order=k.scratch((ids.size,), np.int64),
        ends=k.scratch((len(out) + 1,), np.int64),
    )

    def check_found() -> None:
        if block.struct.bad:
            check()

    items = block.item_of("order_rows"), block.item_of("sum_rows")
    work = _ADDED * ids.size * (columns + _SORTED)
    return team.ParallelTask(items, work, block, check=check_found)
