"""Reductions, running sums, and functions along an axis: softmax, argmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..calls import Attributes, Call, Value, lowers


def _axes(n: Attributes, given: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    """The axes of a reduction; None where nothing is reduced."""
    if not given:
        return None if n.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({n.axis(int(axis), rank) for axis in given}))


_AROUND = {  # what comes before a sum, and after it
    "ReduceL1": ("abs", ""),
    "ReduceL2": ("square", "sqrt"),
    "ReduceSumSquare": ("square", ""),
    "ReduceLogSum": ("", "log"),
}


@lowers(*_AROUND, *(f"Reduce{kind}" for kind in "LogSumExp Max Mean Min Prod Sum".split()))
def _reduce(n: Call) -> Value:
    x = n[0]
    given = n.ints("axes") if n.get(1) is None else n.known_ints(1)
    axes = _axes(n, given, x.ndim)
    before, after = _AROUND.get(n.node.op, ("", ""))
    reduce = "reduce_sum" if n.node.op in _AROUND else n.ours.type
    keepdims = bool(n.attr("keepdims", 1))
    if axes and 0 in x.shape:
        return _of_nothing(n, axes, keepdims)
    value = x
    if not x.is_float and (after or reduce in ("reduce_mean", "logsumexp")):
        value = n.cast(x, np.float64)
    value = n.op(before, value) if before else value
    if axes:
        value = n.op(reduce, value, axes=list(axes), keepdims=keepdims)
    value = n.op(after, value) if after else value
    return n.cast(value, x.dtype)


def _of_nothing(n: Call, axes: Sequence[int], keepdims: bool) -> Value:
    """What a reduction gives where there are no elements."""
    x = n[0]
    op = n.node.op
    fill: Any = {"ReduceProd": 1, "ReduceMean": math.nan}.get(op, 0)
    if op in ("ReduceLogSum", "ReduceLogSumExp"):
        fill = -math.inf
    elif op in ("ReduceMax", "ReduceMin"):
        most = op == "ReduceMin"
        if x.dtype.kind in "iu":
            fill = np.iinfo(x.dtype).max if most else np.iinfo(x.dtype).min
        else:
            fill = most if x.dtype == bool else math.inf if most else -math.inf
    shape = [1 if k in axes else dim for k, dim in enumerate(x.shape) if keepdims or k not in axes]
    return n.const(np.full(shape, fill), x.dtype)


# -- arguments -------------------------------------------------------------------------------------


@lowers("ArgMax", "ArgMin")
def _arg(n: Call) -> Value:
    x = n[0]
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    last = bool(n.attr("select_last_index", 0))
    x = n.op("flip", x, axes=[axis]) if last else x
    index = n.op(n.ours.type, x, axis=axis, keepdims=bool(n.attr("keepdims", 1)))
    return n.op("sub", n.const(x.shape[axis] - 1, index.dtype), index) if last else index


@lowers("TopK")
def _top_k(n: Call) -> list[Value]:
    x = n[0]
    axis = n.axis(n.attr("axis", -1), n[0].ndim)
    given = n.known_ints(1) if n.version >= 10 else [n.attr("k", 0)]
    count = (given or [0])[0]
    size = x.shape[axis]
    if not 0 <= count <= size:
        n.fail(f"{count} of {size} elements are wanted")
    if count == 0:
        shape = [0 if k == axis else dim for k, dim in enumerate(x.shape)]
        return [n.const(np.zeros(shape), x.dtype), n.const(np.zeros(shape), np.int64)]
    if n.attr("largest", 1):
        return n.op("top_k", x, k=count, axis=axis, outs=("values", "ids"))
    order = n.op("argsort", x, axis=axis)
    order = n.op("slice", order, axes=[axis], starts=[0], ends=[count])
    return [n.op("take_along_axis", x, order, axis=axis), order]


# -- running sums ----------------------------------------------------------------------------------


@lowers("CumSum", "CumProd")
def _running(n: Call) -> Value:
    total = n.op(
        n.node.op.lower(),
        n[0],
        axis=n.axis((n.known_ints(1) or [0])[0], n[0].ndim),
        exclusive=bool(n.attr("exclusive", 0)),
        reverse=bool(n.attr("reverse", 0)),
    )
    return n.cast(total, n[0].dtype)


# -- along an axis ---------------------------------------------------------------------------------


@lowers("Softmax", "LogSoftmax", "Hardmax")
def _softmax(n: Call) -> Value:
    x = n[0]
    if 0 in x.shape:
        return n.const(np.zeros(x.shape), x.dtype)
    axis = n.axis(n.attr("axis", -1 if n.version >= 13 else 1), x.ndim)
    if n.version >= 13 or axis == x.ndim - 1:
        return n.op(n.ours.type, x, axis=axis)
    flat = n.reshape(x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])
    return n.reshape(n.op(n.ours.type, flat, axis=1), x.shape)


@lowers("LpNormalization")
def _lp(n: Call) -> Value:
    x = n[0]
    axis = n.axis(n.attr("axis", -1), n[0].ndim)
    if n.attr("p", 2) == 1:
        size = n.op("reduce_sum", n.op("abs", x), axes=[axis], keepdims=True)
    else:
        size = n.op("norm", x, axes=[axis], keepdims=True)
    one = n.const(1, x.dtype)
    size = n.op("where", n.op("equal", size, n.const(0, x.dtype)), one, size)
    return n.op("div", x, size)
