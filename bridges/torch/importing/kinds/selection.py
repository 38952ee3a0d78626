"""Entries by indexes: index, gather, scatter; and tensors made of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from ....onnx.importing.calls import Value
from ..calls import Aten, aten


def _counted(n: Aten, ids: Value, size: int) -> Value:
    """Positions from the front; those below 0 count from the end."""
    if ids.array is not None and not ids.is_parameter:
        return n.const(np.where(ids.array < 0, ids.array + size, ids.array))
    return ids


@aten("index_select")
def _index_select(n: Aten) -> Value:
    x = n["self"]
    return n.op("gather", x, n["index"], axis=n.axis("dim", x.ndim))


@aten("gather")
def _gather(n: Aten) -> Value:
    x, ids = n["self"], n["index"]
    axis = n.axis("dim", x.ndim)
    for other in range(x.ndim):  # ids may be shorter along other axes
        if other != axis and ids.shape[other] != x.shape[other]:
            x = n.part(x, other, 0, ids.shape[other])
    return n.op("take_along_axis", x, ids, axis=axis)


@aten("take_along_dim")
def _take_along(n: Aten) -> Value:
    x = n["self"]
    return n.op("take_along_axis", x, n["indices"], axis=n.axis("dim", x.ndim))


@aten("scatter", "scatter_add")
def _scatter(n: Aten) -> Value:
    x, ids = n["self"], n["index"]
    axis = n.axis("dim", x.ndim)
    n.refuse_unless(not n.has("reduce"), "its reduction is not supported")
    whole = all(
        a == b or k == axis for k, (a, b) in enumerate(zip(ids.shape, x.shape, strict=True))
    )
    n.refuse_unless(whole, "indexes for a part of the other axes are not supported")
    given = n["src"] if n.has("src") else n["value"]
    if isinstance(given, Value):
        updates = given
        for other in range(x.ndim):
            updates = n.part(updates, other, 0, ids.shape[other])
    else:
        updates = n.const(np.full([1] * x.ndim, given), x.dtype)
    mode = "add" if n.name == "scatter_add" else "set"
    return n.op("put_along_axis", x, ids, n.cast(updates, x.dtype), axis=axis, mode=mode)


@aten("index", "_unsafe_index")
def _index(n: Aten) -> Value:
    x, given = n["self"], n["indices"]
    axes = [axis for axis, ids in enumerate(given) if ids is not None]
    ids = [given[axis] for axis in axes]
    if any(one.dtype == np.bool_ for one in ids):
        n.fail("the number of entries that a mask picks depends on data")
    n.refuse_unless(axes == list(range(axes[0], axes[-1] + 1)), "indexes of axes apart")
    if len(axes) == 1:
        at = axes[0]
        return n.op("gather", x, ids[0], axis=at, from_end=True)
    whole = np.broadcast_shapes(*(one.shape for one in ids))
    stacked = []
    for axis, one in zip(axes, ids, strict=True):
        one = n.cast(_counted(n, one, x.shape[axis]), np.int64)
        stacked.append(one if one.shape == whole else n.op("expand", one, shape=list(whole)))
    nd = n.op("stack", stacked, axis=len(whole))
    first = axes[0]
    if not first:
        return n.op("gather_nd", x, nd)
    perm = [*axes, *range(first), *range(axes[-1] + 1, x.ndim)]
    gathered = n.op("gather_nd", n.moved(x, perm), nd)
    k = len(whole)
    back = [*range(k, k + first), *range(k), *range(k + first, gathered.ndim)]
    return n.moved(gathered, back)


def _full(n: Aten, dims: Any, value: Any) -> Value:
    dtype = n.dtypes[0]
    check_fill(dims, dtype.itemsize, n.name)
    return n.const(np.full([int(dim) for dim in dims], value, dtype))


@aten("zeros", "ones", "full", "empty", "scalar_tensor", "new_zeros", "new_ones", "new_full",
      "new_empty")  # fmt: skip
def _filled(n: Aten) -> Value:
    if n.name == "scalar_tensor":
        return n.const(n["s"], n.dtypes[0])
    kind = n.name.removeprefix("new_")
    value = n["fill_value"] if kind == "full" else int(kind == "ones")
    likes = n.get("likes", [None] * len(n["size"]))
    known = [dim if like is None else 1 for dim, like in zip(n["size"], likes, strict=True)]
    return n.grown(_full(n, known, value))


@aten("zeros_like", "ones_like", "full_like", "empty_like")
def _filled_like(n: Aten) -> Value:
    kind = n.name.removesuffix("_like")
    value = n["fill_value"] if kind == "full" else int(kind == "ones")
    x = n["self"]
    return n.op("fill_like", n.cast(x, n.dtypes[0]), value=float(value))


@aten("arange")
def _arange(n: Aten) -> Value:
    start, step = n.get("start", 0), n.get("step", 1)
    like = n.get("likes", [None])[0]
    if like is not None and (start, step) == (0, 1):
        return n.cast(n.op("positions", like[0], axis=like[1]), n.dtypes[0])
    return n.const(np.arange(start, n["end"], step), n.dtypes[0])


@aten("linspace")
def _linspace(n: Aten) -> Value:
    return n.const(np.linspace(n["start"], n["end"], n["steps"]), n.dtypes[0])


@aten("eye")
def _eye(n: Aten) -> Value:
    return n.const(np.eye(n["n"], n.get("m")), n.dtypes[0])
