"""Reductions, running sums, and functions along an axis: softmax, argmax; losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers


def _axes(n: Attributes, given: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    """The axes of a reduction; None where nothing is reduced."""
    if not given:
        return None if n.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({n.axis(int(axis), rank) for axis in given}))


def _largest(dtype: np.dtype, sign: int) -> Any:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.max if sign > 0 else info.min
    if dtype.kind == "b":
        return sign > 0
    return np.inf * sign


def _maximum(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.max(x, axis=axis, keepdims=keepdims, initial=_largest(x.dtype, -1))


def _minimum(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.min(x, axis=axis, keepdims=keepdims, initial=_largest(x.dtype, 1))


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


_FUNCTIONS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceProd": np.prod,
    "ReduceMax": _maximum,
    "ReduceMin": _minimum,
    "ReduceL1": lambda x, axis, keepdims: np.sum(np.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: np.sum(x * x, axis=axis, keepdims=keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: np.log(np.sum(x, axis=axis, keepdims=keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
}
_STEPS = {  # operators of a net: before, the reduction, after
    "ReduceSum": ("", "reduce_sum", ""),
    "ReduceMean": ("", "reduce_mean", ""),
    "ReduceProd": ("", "reduce_prod", ""),
    "ReduceMax": ("", "reduce_max", ""),
    "ReduceMin": ("", "reduce_min", ""),
    "ReduceL1": ("abs", "reduce_sum", ""),
    "ReduceL2": ("square", "reduce_sum", "sqrt"),
    "ReduceSumSquare": ("square", "reduce_sum", ""),
    "ReduceLogSum": ("", "reduce_sum", "log"),
    "ReduceLogSumExp": ("", "logsumexp", ""),
}


_OF_INTEGERS = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1")


@evaluates(*_FUNCTIONS)
def _reduce_on_host(n: Attributes, x: np.ndarray, axes: Any = None) -> np.ndarray:
    found = _axes(n, n.ints("axes") if axes is None else list(axes.reshape(-1)), x.ndim)
    if found is None:
        # nothing is reduced; what is done to elements still is
        found = ()
    made = _FUNCTIONS[n.node.op](x, axis=found, keepdims=bool(n.attr("keepdims", 1)))
    return np.asarray(made).astype(x.dtype)


@lowers(*_FUNCTIONS)
def _reduce(n: Call) -> Value:
    x = n[0]
    if 0 in x.shape or (not x.is_float and n.node.op not in _OF_INTEGERS):
        raise NotHere
    given = n.ints("axes") if n.get(1) is None else n.known_ints(1)
    axes = _axes(n, given, x.ndim)
    before, reduce, after = _STEPS[n.node.op]
    value = n.op(before, x) if before else x
    if axes and reduce:
        value = n.op(reduce, value, axes=list(axes), keepdims=bool(n.attr("keepdims", 1)))
        value = value if value.dtype == x.dtype else n.op("cast", value, dtype=x.dtype)
    return n.op(after, value) if after else value


# -- arguments -------------------------------------------------------------------------------------


@evaluates("ArgMax", "ArgMin")
def _arg_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    axis = n.axis(n.attr("axis", 0), x.ndim)
    find = np.argmax if n.node.op == "ArgMax" else np.argmin
    if n.attr("select_last_index", 0):
        found = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
    else:
        found = find(x, axis=axis)
    return (np.expand_dims(found, axis) if n.attr("keepdims", 1) else found).astype(np.int64)


@lowers("ArgMax", "ArgMin")
def _arg(n: Call) -> Value:
    if n.attr("select_last_index", 0):
        raise NotHere
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    op = n.node.op.lower()
    return n.op(op, n[0], axis=axis, keepdims=bool(n.attr("keepdims", 1)))


@evaluates("TopK")
def _top_k_on_host(n: Attributes, x: np.ndarray, k: Any = None) -> tuple[np.ndarray, ...]:
    axis = n.axis(n.attr("axis", -1), x.ndim)
    count = n.attr("k", 0) if k is None else int(k.reshape(-1)[0])
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"{count} of {x.shape[axis]} elements are wanted")
    if n.attr("largest", 1):
        order = (
            x.shape[axis]
            - 1
            - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        )
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    order = np.take(order, np.arange(count), axis=axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


@lowers("TopK")
def _top_k(n: Call) -> list[Value]:
    x = n[0]
    count = n.known_ints(1) if n.version >= 10 else [n.attr("k", 0)]
    if not n.attr("largest", 1) or not x.is_float or not count or count[0] < 1:
        raise NotHere
    axis = n.axis(n.attr("axis", -1), x.ndim)
    return n.op("top_k", x, k=count[0], axis=axis, outs=("values", "ids"))


# -- running sums ----------------------------------------------------------------------------------


@evaluates("CumSum", "CumProd")
def _running_on_host(n: Attributes, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    at = n.axis(int(axis.reshape(-1)[0]), x.ndim)
    back = n.attr("reverse", 0)
    is_sum = n.node.op == "CumSum"
    given = np.flip(x, at) if back else x
    made = (np.cumsum if is_sum else np.cumprod)(given, axis=at, dtype=x.dtype)
    if n.attr("exclusive", 0):
        made = np.roll(made, 1, at)
        first = [slice(None)] * x.ndim
        first[at] = slice(0, 1)
        made[tuple(first)] = 0 if is_sum else 1
    return np.flip(made, at) if back else made


@lowers("CumSum", "CumProd")
def _running(n: Call) -> Value:
    axis = n.known_ints(1)
    if not axis:
        raise NotHere
    made = n.op(
        n.node.op.lower(),
        n[0],
        axis=n.axis(axis[0], n[0].ndim),
        exclusive=bool(n.attr("exclusive", 0)),
        reverse=bool(n.attr("reverse", 0)),
    )
    return made if made.dtype == n[0].dtype else n.op("cast", made, dtype=n[0].dtype)


# -- along an axis ---------------------------------------------------------------------------------


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Softmax of an array."""
    top = np.max(x, axis=axis, keepdims=True)
    made = np.exp(x - np.where(np.isfinite(top), top, 0))
    return made / np.sum(made, axis=axis, keepdims=True)


def _hardmax(x: np.ndarray, axis: int) -> np.ndarray:
    made = np.zeros_like(x)
    np.put_along_axis(made, np.argmax(x, axis=axis, keepdims=True), 1, axis)
    return made


@evaluates("Softmax", "LogSoftmax", "Hardmax")
def _softmax_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    axis = n.axis(n.attr("axis", -1 if n.version >= 13 else 1), x.ndim)
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    flat = wide
    if n.version < 13:
        flat = wide.reshape(int(np.prod(x.shape[:axis])), -1)
        axis = 1
    if n.node.op == "Hardmax":
        made = _hardmax(flat, axis)
    elif n.node.op == "Softmax":
        made = softmax(flat, axis)
    else:
        made = flat - _log_sum_exp(flat, axis, True)
    return made.reshape(x.shape).astype(x.dtype)


@lowers("Softmax", "LogSoftmax", "Hardmax")
def _softmax(n: Call) -> Value:
    x = n[0]
    op = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}[n.node.op]
    axis = n.axis(n.attr("axis", -1 if n.version >= 13 else 1), x.ndim)
    if n.version >= 13 or axis == x.ndim - 1:
        return n.op(op, x, axis=axis)
    flat = n.op("reshape", x, shape=[int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))])
    return n.op("reshape", n.op(op, flat, axis=1), shape=list(x.shape))


@evaluates("LpNormalization")
def _lp_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    axis = n.axis(n.attr("axis", -1), x.ndim)
    if n.attr("p", 2) == 1:
        size = np.sum(np.abs(x), axis=axis, keepdims=True)
    else:
        size = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)


@lowers("LpNormalization")
def _lp(n: Call) -> Value:
    x, axis = n[0], n.axis(n.attr("axis", -1), n[0].ndim)
    if n.attr("p", 2) == 1:
        size = n.op("reduce_sum", n.op("abs", x), axes=[axis], keepdims=True)
    else:
        size = n.op("norm", x, axes=[axis], keepdims=True)
    one = n.const(1, x.dtype)
    size = n.op("where", n.op("equal", size, n.const(0, x.dtype)), one, size)
    return n.op("div", x, size)


# -- losses, as training graphs hold them ----------------------------------------------------------


def _loss(n: Attributes, logs: np.ndarray, labels: np.ndarray, weight: Any) -> np.ndarray:
    """The negative log-likelihood of [N, C, ...] for labels [N, ...]."""
    ignored = n.attr("ignore_index")
    skip = np.zeros(labels.shape, bool) if ignored is None else labels == ignored
    ids = np.where(skip, 0, labels)
    picked = -np.take_along_axis(logs, np.expand_dims(ids, 1), 1)[:, 0]
    weights = np.ones(labels.shape, logs.dtype) if weight is None else weight[ids]
    weights = np.where(skip, 0, weights).astype(logs.dtype)
    losses = picked * weights
    how = n.attr("reduction", "mean")
    if how == "none":
        return losses
    if how == "sum":
        return np.asarray(losses.sum(dtype=logs.dtype))
    if weight is None and ignored is None:
        return np.asarray(losses.mean(dtype=logs.dtype))
    return np.asarray(losses.sum() / weights.sum()).astype(logs.dtype)


@evaluates("NegativeLogLikelihoodLoss")
def _likelihood(n: Attributes, x: np.ndarray, labels: np.ndarray, weight: Any = None) -> np.ndarray:
    return _loss(n, x, labels, weight)


@evaluates("SoftmaxCrossEntropyLoss")
def _cross_entropy(
    n: Attributes, x: np.ndarray, labels: np.ndarray, weight: Any = None
) -> tuple[np.ndarray, ...]:
    top = x - x.max(axis=1, keepdims=True)
    logs = (top - np.log(np.exp(top).sum(axis=1, keepdims=True))).astype(x.dtype)
    return _loss(n, logs, labels, weight), logs
