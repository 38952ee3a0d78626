"""Entries by indexes: index, gather, scatter; and tensors made of nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from ....onnx.importing.calls import Value
from ..calls import Aten, aten
from .shapes import as_row, spread


@aten("index_select")
def _index_select(n: Aten, x: Value, dim: int, index: Value) -> Value:
    found = n.op("gather", as_row(n, x), as_row(n, index), axis=dim)
    return found if x.ndim else n.reshaped(found, [])


@aten("gather")
def _gather(n: Aten) -> Value:
    x, ids = as_row(n, n["self"]), as_row(n, n["index"])
    axis = n.axis("dim", x.ndim)
    for other in range(x.ndim):  # ids may be shorter along other axes
        if other != axis and ids.shape[other] != x.shape[other]:
            x = n.part(x, other, 0, ids.shape[other])
    found = n.op("take_along_axis", x, ids, axis=axis)
    return found if n["index"].ndim else n.reshaped(found, [])


@aten("take_along_dim")
def _take_along(n: Aten, x: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        x, indices = (n.reshaped(one, [math.prod(one.shape)]) for one in (x, indices))
        dim = 0
    return n.op("take_along_axis", x, indices, axis=dim)


_REDUCED = {"add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul",
            "amax": "max", "amin": "min"}  # fmt: skip
"""How what is scattered meets what is there, in ONNX's words."""


def _neutral(how: str, dtype: np.dtype) -> Any:
    """What a reduction leaves as it is."""
    if how not in ("max", "min"):
        return int(how == "mul")
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min if how == "max" else limits.max


@aten("scatter", "scatter_add", "scatter_reduce")
def _scatter(
    n: Aten,
    x: Value,
    dim: int,
    index: Value,
    src: Value | None = None,
    value: Any = None,
    reduce: str | None = None,
    include_self: bool = True,
) -> Value:
    is_single, x, index = not x.ndim, as_row(n, x), as_row(n, index)
    axis = dim % x.ndim
    if src is None:
        one = n.const(np.full([1] * x.ndim, value), x.dtype)
        updates: Value = n.op("expand", one, shape=list(index.shape))
    else:
        updates = as_row(n, n.cast(src, x.dtype))
    for each in range(x.ndim):
        updates = n.part(updates, each, 0, index.shape[each])
    reduce = "sum" if n.name == "scatter_add" else reduce
    how = _REDUCED.get(reduce or "", "none")

    def scattered(x: Value, values: Value, reduction: str) -> Value:
        return n.onnx("ScatterElements", x, index, values, axis=axis, reduction=reduction)

    if not include_self:
        x = scattered(x, n.const(np.full(updates.shape, _neutral(how, x.dtype)), x.dtype), "none")
    if how in ("mul", "max", "min"):
        found = n.on_host("ScatterElements", x, index, updates, axis=axis, reduction=how)
    else:
        found = scattered(x, updates, how)
    if reduce == "mean":
        ones = n.op("fill_like", updates, value=1.0)
        counts = scattered(n.op("fill_like", x, value=float(include_self)), ones, "add")
        found = n.op("div", found, n.op("clip", counts, minimum=1.0))
    return n.reshaped(found, []) if is_single else found


def _full(n: Aten, dims: Any, value: Any) -> Value:
    dtype = n.dtypes[0]
    check_fill(dims, dtype.itemsize, n.name)
    return n.const(np.full([int(dim) for dim in dims], value, dtype))


@aten("zeros", "ones", "full", "empty", "scalar_tensor", "new_zeros", "new_ones", "new_full",
      "new_empty", "empty_strided", "new_empty_strided")  # fmt: skip
def _filled(n: Aten) -> Value:
    if n.name == "scalar_tensor":
        return n.const(n["s"], n.dtypes[0])
    kind = n.name.removeprefix("new_")
    value = n["fill_value"] if kind == "full" else int(kind == "ones")
    value = n.array(value) if isinstance(value, Value) else value
    likes = n.get("likes", [None] * len(n["size"]))
    known = [dim if like is None else 1 for dim, like in zip(n["size"], likes, strict=True)]
    return n.grown(_full(n, known, value))


@aten("zeros_like", "ones_like", "full_like", "empty_like")
def _filled_like(n: Aten) -> Value:
    kind = n.name.removesuffix("_like")
    value = n["fill_value"] if kind == "full" else int(kind == "ones")
    x = n["self"]
    return n.op("fill_like", n.cast(x, n.dtypes[0]), value=float(value))


@aten("fill")
def _fill(n: Aten, x: Value, value: Any) -> Value:
    if not isinstance(value, Value):
        return n.op("fill_like", x, value=float(value))
    return spread(n, n.cast(value, x.dtype), x)


@aten("_local_scalar_dense", "item")
def _number(n: Aten, x: Value) -> Value:
    return x


@aten("arange")
def _arange(n: Aten) -> Value:
    start, step = n.get("start", 0), n.get("step", 1)
    like = n.get("likes", [None])[0]
    if like is not None and (start, step) == (0, 1):
        return n.cast(n.op("positions", like[0], axis=like[1]), n.dtypes[0])
    return n.const(np.arange(start, n["end"], step), n.dtypes[0])


@aten("linspace")
def _linspace(n: Aten, start: Any, end: Any, steps: int) -> Value:
    start, end = (n.array(one) if isinstance(one, Value) else one for one in (start, end))
    return n.const(np.linspace(start, end, steps), n.dtypes[0])


@aten("eye")
def _eye(n: Aten, rows: int, m: int | None = None) -> Value:
    return n.const(np.eye(rows, m), n.dtypes[0])
