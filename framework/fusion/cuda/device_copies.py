"""Several copies on a GPU in one kernel, as of the parts that an array is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.kernel_args import Call
from .device_kernels import cuda_text, elementwise


def copies(xp: Any, pairs: Sequence[tuple[Any, Any]]) -> Call | None:
    """A call that copies each source to its target; None where they do not lie as rows do.

    Args:
        pairs: of source and target, arrays of one shape, all of one dtype. No target overlaps with
            another array.
    """
    pairs = [pair for pair in pairs if pair[0].size]
    if len(pairs) < 2 or len({one.dtype for pair in pairs for one in pair}) > 1:
        return None
    item = pairs[0][0].itemsize
    table, sizes = [], []
    for source, target in pairs:
        lines = _lines(source, target)
        if lines is None or item not in (1, 2, 4, 8):
            return None
        table.append([source.data.ptr, target.data.ptr, *lines])
        sizes.append(source.size)
    text = cuda_text("copies").replace("UNIT ", f"uint{8 * item} ")
    ends = np.cumsum(sizes).astype(np.int64)
    given = xp.asarray(np.array(table, np.int64)), xp.asarray(ends), ends[-1]
    return elementwise(xp, text, "copy_parts", np.float32, int(ends[-1]), given)


def _lines(source: Any, target: Any) -> tuple[int, int, int] | None:
    """The columns of both as rows of elements that lie side by side, and the elements from row to
    row of each."""
    item = source.itemsize
    axes = [
        (size, one // item, other // item)
        for size, one, other in zip(source.shape, source.strides, target.strides, strict=True)
        if size != 1
    ]
    merged: list[tuple[int, int, int]] = []
    for size, one, other in reversed(axes):
        if merged:
            inner, step, step_other = merged[-1]
            if one == inner * step and other == inner * step_other:
                merged[-1] = size * inner, step, step_other
                continue
        merged.append((size, one, other))
    merged = merged or [(1, 1, 1)]
    columns, *beside = merged[0]
    if beside != [1, 1]:  # each element is a row
        merged.insert(0, (1, 1, 1))
        columns = 1
    if len(merged) > 2:
        return None
    _, *between = merged[1] if len(merged) == 2 else (1, columns, columns)
    return columns, between[0], between[1]
