"""Sums, means, extremes, orders and running sums."""

from __future__ import annotations

import math

import numpy as np

from .....framework.base.dtypes import is_float
from ....onnx.importing.calls import Value
from ..calls import Aten, aten, aten_of
from .arithmetic import extreme


@aten_of(
    "logsumexp", "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min",
    "reduce_prod", "reduce_sum",
)  # fmt: skip
def _reduce(n: Aten, x: Value) -> Value:
    if n.name in ("any", "all"):
        x = n.cast(x, np.bool_)
    elif is_float(n.dtypes[0]):
        x = n.cast(x, n.dtypes[0])
    axes = n.axes("dim", x.ndim)
    if not x.ndim:
        return n.cast(x, n.dtypes[0])
    reduced = n.op(n.ours.type, x, axes=axes, keepdims=bool(n.get("keepdim", False)))
    return n.cast(reduced, n.dtypes[0])


@aten("var", "std", "var_mean")
def _spread(n: Aten, x: Value) -> Value | list[Value]:
    axes = n.axes("dim", x.ndim)
    keep = bool(n.get("keepdim", False))
    correction = n.get("correction", 1 if n.get("unbiased", True) else 0)
    n.refuse_unless(float(correction).is_integer(), f"correction {correction}")
    op = "reduce_std" if n.name == "std" else "reduce_var"
    deviation = n.op(op, x, axes=axes, keepdims=keep, ddof=int(correction))
    if n.name != "var_mean":
        return deviation
    return [deviation, n.op("reduce_mean", x, axes=axes, keepdims=keep)]


def _alone(n: Aten, x: Value) -> list[Value]:
    """The one number of a tensor without axes, and its place, where others have a line of them."""
    return [x, n.const(0, np.int64)]


@aten("max", "min")
def _extreme(n: Aten, x: Value) -> Value | list[Value]:
    kind = n.name
    if n.has("other"):
        pair = n.cast(x, n.dtypes[0]), n.cast(n["other"], n.dtypes[0])
        return extreme(n, f"{kind}imum", *pair)
    if not x.ndim:
        return _alone(n, x) if n.has("dim") else x
    if not n.has("dim"):
        return n.op(f"reduce_{kind}", x, axes=list(range(x.ndim)))
    axis = n.axis("dim", x.ndim)
    keep = bool(n["keepdim"])
    best = n.op(f"reduce_{kind}", x, axes=[axis], keepdims=keep)
    return [best, n.op(f"arg{kind}", x, axis=axis, keepdims=keep) if n.wants(1) else None]  # type: ignore[list-item]


@aten("argmax", "argmin")
def _arg(n: Aten, x: Value) -> Value:
    if not x.ndim:
        return n.const(0, np.int64)
    if not n.has("dim"):
        x = n.reshaped(x, [math.prod(x.shape)])
    axis = n.axis("dim", x.ndim) if n.has("dim") else 0
    return n.op(n.name, x, axis=axis, keepdims=bool(n["keepdim"]))


@aten("cumsum", "cumprod")
def _running(n: Aten, x: Value, dim: int) -> Value:
    x = n.cast(x, n.dtypes[0])
    return n.cast(n.op(n.name, x, axis=dim % x.ndim), n.dtypes[0]) if x.ndim else x


@aten("cummax", "cummin")
def _extreme_so_far(n: Aten, x: Value, dim: int) -> list[Value]:
    """Entries by places that are found on the host: which entry it is depends on data."""
    held = n.array(x)
    if not x.ndim:
        return _alone(n, x)
    best = (np.maximum if n.name == "cummax" else np.minimum).accumulate(held, axis=dim)
    line = [-1 if axis == dim % x.ndim else 1 for axis in range(x.ndim)]
    places = np.arange(x.shape[dim]).reshape(line)
    places = np.where((held == best) | np.isnan(held), places, 0)
    ids = n.const(np.maximum.accumulate(places, axis=dim), np.int64)
    return [n.op("take_along_axis", x, ids, axis=dim % x.ndim), ids]


@aten("topk")
def _topk(n: Aten, x: Value, k: int, dim: int, largest: bool) -> list[Value]:
    if not x.ndim:
        return _alone(n, x)
    if largest:
        return n.op("top_k", x, outs=("values", "ids"), k=k, axis=dim)
    low, ids = n.op("top_k", n.op("neg", x), outs=("values", "ids"), k=k, axis=dim)
    return [n.op("neg", low), ids]


@aten("sort")
def _sort(n: Aten, x: Value, dim: int, descending: bool) -> list[Value]:
    if not x.ndim:
        return _alone(n, x)
    return n.op("sort", x, outs=("out", "ids"), axis=dim, descending=descending)


@aten("argsort")
def _argsort(n: Aten, x: Value, dim: int, descending: bool) -> Value:
    if not x.ndim:
        return n.const(0, np.int64)
    return n.op("argsort", x, axis=dim, descending=descending)
