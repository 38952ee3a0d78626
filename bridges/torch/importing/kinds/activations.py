"""Functions of one tensor: activations, exponentials, rounding, conversions, dropout."""

from __future__ import annotations

import math

import numpy as np

from .....framework.base.dtypes import is_float
from .....framework.ir.registry import lookup
from ....onnx.importing.calls import Value
from ..calls import Aten, add_names, aten

_ROUND = ("ceil", "floor", "round", "trunc")
_TESTS = ("isfinite", "isinf", "isnan")


def by_name(n: Aten) -> Value:
    """The rule of what the table of names has, where no other rule takes its place."""
    name = n.ours
    slots = lookup(n.ours.type).input_slots
    tensors = list(n.given)[: len(slots)]
    values = [n.tensor(one, None if n.dtypes[0] == np.bool_ else n.dtypes[0]) for one in tensors]
    for other in n.given.keys() - {*tensors, *name.attrs, *name.fixed, "dtype"}:
        n.refuse_unless(not n.get(other), f"{other}={n.get(other)!r} is not supported")
    if name.type in _ROUND and not is_float(values[0].dtype):
        return values[0]
    if name.type in _TESTS and not is_float(values[0].dtype):
        return n.op("fill_like", n.cast(values[0], np.bool_), value=float(name.type == "isfinite"))
    kinds = {spec.name: spec.scalar_type or float for spec in lookup(name.type).attrs}
    attrs = {ours: kinds[ours](n[theirs]) for theirs, ours in name.attrs.items()}
    if "axis" not in attrs or values[0].ndim:
        return n.op(name.type, *values, **attrs)
    # A single number is a line of one.
    lines = [n.reshaped(one, [1]) for one in values]
    return n.reshaped(n.op(name.type, *lines, **attrs), [])


add_names(by_name)


@aten("round")
def _round(n: Aten, x: Value, decimals: int = 0) -> Value:
    if not is_float(x.dtype):
        return x
    if not decimals:
        return n.op("round", x)
    ten = n.const(10.0 ** abs(decimals), x.dtype)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return n.op(back, n.op("round", n.op(there, x, ten)), ten)


@aten("alias", "clone", "conj_physical", "contiguous", "lift_fresh_copy", "lift_fresh")
def _same(n: Aten) -> Value:
    return n["self"]


@aten("log_sigmoid_forward")
def _log_sigmoid(n: Aten) -> list[Value]:
    return [n.op("log_sigmoid", n["self"])]


@aten("_safe_softmax")
def _safe_softmax(n: Aten, x: Value, dim: int) -> Value:
    x = n.cast(x, n.dtypes[0])  # rows that are all masked give zeros
    seen = n.op("not_equal", x, n.const(-np.inf, x.dtype))
    seen = n.op("reduce_any", seen, axes=[dim % x.ndim], keepdims=True)
    zero = n.const(0, x.dtype)
    return n.op("where", seen, n.op("softmax", n.op("where", seen, x, zero), axis=dim), zero)


@aten("elu")
def _elu(n: Aten, x: Value) -> Value:
    alpha = float(n["alpha"])
    scale, inner = n.get("scale", 1), n.get("input_scale", 1)
    if inner == 1:
        y = n.op("elu", x, alpha=alpha)
        return y if scale == 1 else n.op("scale", y, scale=float(scale))
    n.fail(f"input_scale {inner}")


@aten("hardsigmoid")
def _hard_sigmoid(n: Aten) -> Value:
    return n.op("hard_sigmoid", n["self"], alpha=1 / 6, beta=0.5)


@aten("softplus")
def _softplus(n: Aten) -> Value:
    x = n["self"]
    beta, threshold = float(n["beta"]), float(n["threshold"])
    y = n.op("softplus", x, beta=beta)
    # Above the threshold PyTorch takes x itself: from 15 on no float32 holds the difference.
    if threshold >= 15:
        return y
    above = n.op("greater", n.op("scale", x, scale=beta), n.const(threshold, x.dtype))
    return n.op("where", above, x, y)


@aten("prelu", "_prelu_kernel")
def _prelu(n: Aten, x: Value, weight: Value) -> Value:
    return n.op("prelu", x, n.reshaped(weight, [math.prod(weight.shape)]))


@aten("threshold")
def _threshold(n: Aten, x: Value) -> Value:
    keep = n.op("greater", x, n.const(n["threshold"], x.dtype))
    return n.op("where", keep, x, n.const(n["value"], x.dtype))


@aten("hardshrink", "softshrink")
def _shrink(n: Aten, x: Value) -> Value:
    lambd = float(n["lambd"])
    if n.name == "softshrink":
        inside = n.op("clip", x, minimum=-lambd, maximum=lambd)
        return n.op("sub", x, inside)
    keep = n.op("greater", n.op("abs", x), n.const(lambd, x.dtype))
    return n.op("where", keep, x, n.const(0, x.dtype))


@aten("glu")
def _glu(n: Aten) -> Value:
    return n.op("glu", n["self"], axis=n.axis("dim", n["self"].ndim))


@aten("dropout", "feature_dropout", "native_dropout")
def _dropout(n: Aten, x: Value, p: float, train: bool = True) -> Value | list[Value]:
    y = x
    if train and p:
        y = n.op("dropout", x, p=float(p), channels=n.name == "feature_dropout")
    if n.name == "native_dropout":
        n.refuse_unless(not n.wants(1), "its mask is read")
        return [y]
    return y


@aten("to", "_to_copy", "type_as", "_to_dtype")
def _to(n: Aten) -> Value:
    return n.cast(n["self"], n.dtypes[0])
