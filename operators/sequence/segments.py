"""Rows of groups reduced to one each, in C: what `reduceat` does, without a copy in between."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.ir.kernel_args import Call
from ..base.calls import is_whole

_KINDS = {np.add: 0, np.maximum: 1, np.minimum: 2}


def group_reducer(
    ufunc: Any, x: Any, offsets: np.ndarray, out: Any, rows: np.ndarray | None
) -> Call | None:
    """A call for out[g] = ufunc over x[rows[offsets[g] : offsets[g + 1]]], 0 for an empty group, of
    contiguous NumPy arrays; None for others.

    Args:
        x: [R, ...]. offsets: [G + 1]. out: [G, ...]. rows: [offsets[-1]]; None: 0, 1, ...
    """
    suited = all(is_whole(array) and array.size for array in (x, out))
    if not suited or x.dtype != out.dtype or ufunc not in _KINDS:
        return None
    if native.typed("segments", out.dtype) is None:
        return None
    taken = None if rows is None else np.ascontiguousarray(rows, np.int64)
    columns = out.size // len(out)
    block = native.bind(
        *("segments", out.dtype, "reduce"),
        **{"kind": _KINDS[ufunc], "groups": len(out), "columns": columns, "taken": len(x)},
        **{"offsets": np.ascontiguousarray(offsets, np.int64), "rows": taken, "x": x, "out": out},
    )
    return team.block_task(2 * int(offsets[-1]) * columns, block)
