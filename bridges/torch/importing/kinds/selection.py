"""Entries by indexes: index, gather, scatter; and tensors made of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from ....onnx.importing.calls import Value
from ..calls import Aten, aten
from .shapes import spread


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
    axis = dim % max(x.ndim, 1)
    if src is None:
        src = n.const(np.full([1] * x.ndim, value), x.dtype)
        src = n.op("expand", src, shape=list(index.shape))
    for each in range(x.ndim):
        src = n.part(src, each, 0, index.shape[each])
    src = n.cast(src, x.dtype)
    reduce = "sum" if n.name == "scatter_add" else reduce
    how = _REDUCED.get(reduce or "", "none")

    def scattered(x: Value, values: Value, reduction: str) -> Value:
        return n.onnx("ScatterElements", x, index, values, axis=axis, reduction=reduction)

    if not include_self:
        x = scattered(x, n.const(np.full(src.shape, _neutral(how, x.dtype)), x.dtype), "none")
    if how in ("mul", "max", "min"):
        return n.on_host("ScatterElements", x, index, src, axis=axis, reduction=how)
    total = scattered(x, src, how)
    if reduce != "mean":
        return total
    ones = n.op("fill_like", src, value=1.0)
    counts = scattered(n.op("fill_like", x, value=float(include_self)), ones, "add")
    return n.op("div", total, n.op("clip", counts, minimum=1.0))


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
def _linspace(n: Aten) -> Value:
    ends = (n.array(one) if isinstance(one, Value) else one for one in (n["start"], n["end"]))
    return n.const(np.linspace(*ends, n["steps"]), n.dtypes[0])


@aten("eye")
def _eye(n: Aten) -> Value:
    return n.const(np.eye(n["n"], n.get("m")), n.dtypes[0])
