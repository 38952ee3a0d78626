"""Elementwise operators: arithmetic, comparisons, logic, bits, activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....framework.ir.registry import lookup
from .....operators.math.powers import raised
from .....operators.names import names_in
from ..calls import KINDS, Attributes, Call, Kind, Sizes, Value, evaluates, lowers
from .linear import in_floats


def _zero_like(n: Call) -> Value:
    return n.const(0, n[0].dtype)


# -- two inputs ----------------------------------------------------------------------------------


def _pair(n: Call) -> tuple[Value, Value]:
    """The inputs, the second broadcast as opsets before 7 do it: along `axis`."""
    x, y = n[0], n[1]
    if n.version < 7 and n.attr("broadcast", 0) and y.ndim < x.ndim:
        axis = n.attr("axis", x.ndim - y.ndim)
        y = n.reshape(y, [*y.shape, *(1,) * (x.ndim - axis - y.ndim)])
    return x, y


def by_name(n: Call) -> Value:
    """The rule of what the table of names has, where no other rule takes its place."""
    name = n.ours
    values = _pair(n) if len(n.inputs) == 2 else [n[number] for number in range(len(n.inputs))]
    defaults = lookup(name.type).attr_specs
    attrs = {ours: n.attr(theirs, defaults[ours].default) for theirs, ours in name.attrs.items()}
    return n.op(name.type, *values, outs=("out",), **attrs)


for _name, (_first, *_) in names_in("onnx").items():
    if _first.is_plain:
        KINDS.setdefault(("", _name), Kind(lower=by_name))


@lowers("Add")
def _add(n: Call) -> Value:
    """A sum; of zero, which Paddle's exporter writes for an assignment, the other input."""
    x, y = _pair(n)
    for value, other in ((x, y), (y, x)):
        one = None if other.is_parameter or isinstance(other, Sizes) else other.array
        if one is not None and one.size == 1 and other.ndim <= value.ndim and not one.any():
            return value
    return n.op("add", x, y)


@lowers("Div")
def _div(n: Call) -> Value:
    x, y = _pair(n)
    if x.is_float:
        return n.op("div", x, y)
    rest = n.op("fmod", x, y)  # whole numbers are divided towards zero
    return n.op("floor_divide", n.op("sub", x, rest), y)


@lowers("Pow")
def _pow(n: Call) -> Value:
    x, y = _pair(n)
    if y.array is not None and y.array.size == 1 and y.ndim <= x.ndim and not y.is_parameter:
        power = raised(n.op, x, y.array.item(), x.is_float)
        if power is not None:
            return power
    if not x.is_float:
        return n.cast(n.op("pow", *(n.cast(value, np.float64) for value in (x, y))), x.dtype)
    return n.op("pow", x, n.cast(y, x.dtype))


@lowers("Mod")
def _mod(n: Call) -> Value:
    return n.op("fmod" if n.attr("fmod", 0) else "mod", n[0], n[1])


for _name, _ufunc in {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "BitwiseNot": np.bitwise_not,
}.items():
    evaluates(_name)(lambda n, *args, ufunc=_ufunc: ufunc(*args))


@evaluates("BitShift")
def _bit_shift(n: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    shift = np.left_shift if n.attr("direction", "") == "LEFT" else np.right_shift
    return shift(x, y)


@lowers("Max", "Min", "Sum", "Mean")
def _many(n: Call) -> Value:
    op = "add" if n.node.op in ("Sum", "Mean") else n.ours.type
    total = n[0]
    for number in range(1, len(n.inputs)):
        total = n.op(op, total, n[number])
    if n.node.op == "Mean":
        total = n.op("scale", total, scale=1 / len(n.inputs))
    return total


@lowers("IsInf")
def _is_inf(n: Call) -> Value:
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if not up and not down:
        return n.const(np.zeros(n[0].shape, bool))
    truth = n.op("isinf", n[0])
    if up and down:
        return truth
    return n.op("logical_and", truth, n.op("greater" if up else "less", n[0], _zero_like(n)))


# -- activations with attributes -------------------------------------------------------------------


@lowers("ThresholdedRelu")
def _thresholded(n: Call) -> Value:
    above = n.op("greater", n[0], n.const(n.attr("alpha", 1.0), n[0].dtype))
    return n.op("where", above, n[0], _zero_like(n))


@lowers("Selu")
def _selu(n: Call) -> Value:
    alpha, gamma = n.attr("alpha", 1.6732632423543772), n.attr("gamma", 1.0507009873554805)
    return n.op("scale", n.op("elu", n[0], alpha=alpha), scale=gamma)


@lowers("Shrink")
def _shrink(n: Call) -> Value:
    x = in_floats(n, n[0])
    bias, bound = n.attr("bias", 0.0), n.attr("lambd", 0.5)
    low = n.op("less", x, n.const(-bound, x.dtype))
    high = n.op("greater", x, n.const(bound, x.dtype))
    inner = n.op("where", high, n.op("scale", x, bias=-bias), n.const(0, x.dtype))
    return n.cast(n.op("where", low, n.op("scale", x, bias=bias), inner), n[0].dtype)


@lowers("Swish")
def _swish(n: Call) -> Value:
    alpha = n.attr("alpha", 1.0)
    if alpha == 1:
        return n.op("silu", n[0])
    return n.op("mul", n[0], n.op("sigmoid", n.op("scale", n[0], scale=alpha)))


@lowers("PRelu")
def _prelu(n: Call) -> Value:
    x = n[0]
    zero = _zero_like(n)
    below = n.op("mul", n.op("minimum", x, zero), n[1])
    return n.op("add", n.op("maximum", x, zero), below)


@lowers("Clip")
def _clip(n: Call) -> Value:
    x = n[0]
    if n.version < 11:
        given = n.attr("min"), n.attr("max")
    else:
        given = n.known(1), n.known(2)
    low, high = (None if g is None else np.asarray(g).reshape(-1)[0] for g in given)
    if x.is_float and (low is None or high is None or low <= high):
        limits: dict[str, Any] = {}
        if low is not None:
            limits["minimum"] = float(low)
        if high is not None:
            limits["maximum"] = float(high)
        return n.op("clip", x, **limits) if limits else x
    for op, limit in ("maximum", low), ("minimum", high):  # of whole numbers, or limits that cross
        if limit is not None:
            x = n.op(op, x, limit.astype(x.dtype))
    return x
