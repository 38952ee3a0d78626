"""Arithmetic, comparisons, logic and selection, with PyTorch's rules for dtypes."""

from __future__ import annotations

import math

import numpy as np

from .....framework.base.dtypes import is_float
from .....operators.math.powers import raised
from ....onnx.importing.calls import Attributes, Kind, Value, array_of
from ..calls import RULES, Aten, Ref, aten, aten_of

_SYMBOLIC = {
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "truediv": lambda a, b: a / b,
    "neg": lambda a: -a,
    "and_": lambda a, b: a & b,
    "or_": lambda a, b: a | b,
    "sym_not": lambda a: not a,
    "sym_ite": lambda a, b, c: b if a else c,
    "sym_float": float,
    "sym_int": math.trunc,
    "sym_sum": lambda *a: sum(*a),
    "trunc": math.trunc,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "sym_max": max,
    "sym_min": min,
    "pow": lambda a, b: a**b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
"""Python's operators on sizes, as a graph names them."""


def _sizes(n: Attributes, *arrays: np.ndarray) -> np.ndarray:
    given = n.node.attrs["arguments"].values()
    numbers = [arrays[one.number].item() if isinstance(one, Ref) else one for one in given]
    return array_of(_SYMBOLIC[n.node.op](*numbers))


for _name in _SYMBOLIC:
    RULES["size", _name] = Kind(evaluate=_sizes, takes_sizes=True)


@aten("sym_size")
def _size(n: Aten, x: Value) -> Value:
    return n.const(x.shape[n.axis("dim", x.ndim)], np.int64)


@aten("sym_numel")
def _numel(n: Aten) -> Value:
    return n.const(math.prod(n["self"].shape), np.int64)


def _pair(n: Aten) -> tuple[Value, Value]:
    """Both inputs, of the dtype of the result."""
    return n.tensor("self", n.dtypes[0]), n.tensor("other", n.dtypes[0])


def _plain(n: Aten, name: str) -> float | None:
    """A number that a scale of floats can take; None: it is a tensor, or the result whole."""
    if not is_float(n.dtypes[0]) or not isinstance(n["self"], Value):
        return None
    number = n.number(name)
    return None if number is None else float(number)


@aten("add", "sub", "rsub")
def _add(n: Aten, alpha: float = 1) -> Value:
    number = _plain(n, "other")
    if number is not None:
        x = n.tensor("self", n.dtypes[0])
        if n.name == "rsub":
            return n.op("scale", x, scale=-float(alpha), bias=number)
        return n.op("scale", x, bias=float(alpha) * (number if n.name == "add" else -number))
    x, y = _pair(n)
    if n.name == "rsub":
        x, y = y, x
    y = times(n, y, alpha)
    if y.dtype == np.bool_:
        return n.op("logical_or", x, y)
    return n.op("sub" if n.name != "add" else "add", x, y)


def times(n: Aten, x: Value, factor: float) -> Value:
    """A tensor times a number, in the tensor's dtype."""
    if factor == 1:
        return x
    if is_float(x.dtype):
        return n.op("scale", x, scale=float(factor))
    return n.op("mul", x, n.const(factor, x.dtype))


@aten("mul")
def _mul(n: Aten) -> Value:
    number = _plain(n, "other")
    if number is not None:
        return n.op("scale", n.tensor("self", n.dtypes[0]), scale=number)
    x, y = _pair(n)
    return n.op("logical_and" if x.dtype == np.bool_ else "mul", x, y)


@aten("div", "true_divide", "divide")
def _div(n: Aten) -> Value:
    mode = n.get("rounding_mode")
    if mode == "floor":
        return n.op("floor_divide", *_pair(n))
    number = _plain(n, "other")
    if number and mode is None:
        x = n.tensor("self", n.dtypes[0])
        return n.op("div", x, n.const(number, x.dtype))
    x, y = _pair(n)
    if mode is None:
        return n.op("div", x, y)
    if is_float(n.dtypes[0]):
        return n.op("trunc", n.op("div", x, y))
    wide = n.op("div", n.cast(x, np.float64), n.cast(y, np.float64))
    return n.cast(n.op("trunc", wide), n.dtypes[0])


@aten("pow")
def _pow(n: Aten) -> Value:
    dtype = n.dtypes[0]
    power = n["exponent"]
    if isinstance(power, Value) or not isinstance(n["self"], Value):
        return _raised(n, n.tensor("self", dtype), n.tensor("exponent", dtype))
    x = n.tensor("self", dtype)
    by_products = raised(n.op, x, power, is_float(dtype))
    return _raised(n, x, n.const(power, dtype)) if by_products is None else by_products


def _raised(n: Aten, x: Value, y: Value) -> Value:
    if is_float(x.dtype):
        return n.op("pow", x, y)
    n.refuse_unless(n.array(y).min(initial=0) >= 0, "a whole number to a negative power")
    return n.exact(np.power, x, y)


@aten_of("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
def _compare(n: Aten) -> Value:
    x, y = n["self"], n["other"]
    if not isinstance(y, Value):
        dtype = x.dtype
        if isinstance(y, float) and not is_float(dtype):
            dtype = np.dtype(np.float32)
        elif dtype == np.bool_ and not isinstance(y, bool):
            dtype = np.dtype(np.int64)
        return n.op(n.ours.type, n.cast(x, dtype), n.const(y, dtype))
    dtype = _common(x, y)
    return n.op(n.ours.type, n.cast(x, dtype), n.cast(y, dtype))


def _common(x: Value, y: Value) -> np.dtype:
    """The dtype in which two tensors meet."""
    if is_float(x.dtype) != is_float(y.dtype):
        return x.dtype if is_float(x.dtype) else y.dtype
    if x.ndim and not y.ndim and is_float(x.dtype):
        return x.dtype
    return np.result_type(x.dtype, y.dtype)


@aten_of("logical_and", "logical_not", "logical_or", "logical_xor")
def _logic(n: Aten) -> Value:
    values = [n.tensor(name) for name in n.given]
    if not n.name.startswith("logical") and any(value.dtype != np.bool_ for value in values):
        word = n.name.strip("_").removeprefix("bitwise_")
        return n.on_host(f"Bitwise{word.title()}", *values)
    return n.op(n.ours.type, *(n.cast(value, np.bool_) for value in values))


@aten("where")
def _where(n: Aten) -> Value:
    n.refuse_unless(n.has("self"), "positions of what holds depend on data")
    x, y = n.tensor("self", n.dtypes[0]), n.tensor("other", n.dtypes[0])
    return n.op("where", n.cast(n["condition"], np.bool_), x, y)


@aten("masked_fill")
def _masked_fill(n: Aten) -> Value:
    x, value = n["self"], n["value"]
    value = n.cast(value, x.dtype) if isinstance(value, Value) else n.const(value, x.dtype)
    return n.op("where", n.cast(n["mask"], np.bool_), value, x)


def extreme(n: Aten, op: str, x: Value, y: Value) -> Value:
    """`maximum` or `minimum` of two tensors of one dtype, which may be of truth values."""
    if x.dtype == np.bool_:
        op = {"maximum": "logical_or", "minimum": "logical_and"}[op]
    return n.op(op, x, y)


@aten("maximum", "minimum")
def _extreme(n: Aten) -> Value:
    return extreme(n, n.name, *_pair(n))


@aten("fmax", "fmin")
def _number_of_two(n: Aten) -> Value:
    """The extreme of two, or the one that is a number where the other is NaN."""
    x, y = _pair(n)
    both = extreme(n, {"fmax": "maximum", "fmin": "minimum"}[n.name], x, y)
    if not is_float(x.dtype):
        return both
    return n.op("where", n.op("isnan", x), y, n.op("where", n.op("isnan", y), x, both))


def _is_negative(n: Aten, x: Value) -> Value:
    """Whether the sign is a minus, which -0 has as well."""
    zero = n.const(0, x.dtype)
    negative = n.op("less", x, zero)
    if not is_float(x.dtype):
        return negative
    one = n.const(1, x.dtype)
    below = n.op("less", n.op("div", one, x), zero)
    return n.op("where", n.op("equal", x, zero), below, negative)


@aten("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
def _shift(n: Aten) -> Value:
    left = n.name in ("bitwise_left_shift", "__lshift__")
    return n.on_host("BitShift", *_pair(n), direction="LEFT" if left else "RIGHT")


@aten("signbit")
def _sign_bit(n: Aten, x: Value) -> Value:
    return n.op("fill_like", x, value=0.0) if x.dtype == np.bool_ else _is_negative(n, x)


@aten("angle")
def _angle(n: Aten) -> Value:
    """Real numbers have the angle 0, and pi where they are negative."""
    x = n.tensor("self", n.dtypes[0])
    zero = n.const(0, x.dtype)
    turned = n.op("where", n.op("less", x, zero), n.const(math.pi, x.dtype), zero)
    return n.op("where", n.op("isnan", x), x, turned)


@aten("copysign")
def _copy_sign(n: Aten) -> Value:
    size = n.op("abs", n.tensor("self", n.dtypes[0]))
    return n.op("where", _is_negative(n, n.tensor("other", n.dtypes[0])), n.op("neg", size), size)


@aten("sign", "sgn")
def _sign(n: Aten, x: Value) -> Value:
    if x.dtype == np.bool_:
        return x
    sign = n.op("sign", x)
    return n.op("where", n.op("isnan", x), n.const(0, x.dtype), sign) if is_float(x.dtype) else sign


@aten("clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6")
def _clamp(n: Aten) -> Value:
    x = n.tensor("self", n.dtypes[0])
    if n.name == "relu6":
        return n.op("relu6", x)
    least, most = n.get("min", n.get("min_val")), n.get("max", n.get("max_val"))
    if isinstance(least, Value) or isinstance(most, Value) or not is_float(x.dtype):
        for op, bound in (("maximum", least), ("minimum", most)):
            if bound is not None:
                value = bound if isinstance(bound, Value) else n.const(bound)
                x = extreme(n, op, x, n.cast(value, x.dtype))
        return x
    limits = {}
    if least is not None:
        limits["minimum"] = float(least)
    if most is not None:
        limits["maximum"] = float(most)
    return n.op("hard_tanh" if n.name == "hardtanh" else "clip", x, **limits)


@aten("addcmul", "addcdiv")
def _addc(n: Aten) -> Value:
    dtype = n.dtypes[0]
    a, b = n.tensor("tensor1", dtype), n.tensor("tensor2", dtype)
    term = n.op("mul" if n.name == "addcmul" else "div", a, b)
    return n.op("add", n.tensor("self", dtype), times(n, term, n.get("value", 1)))


@aten("lerp")
def _lerp(n: Aten) -> Value:
    x, y = n["self"], n["end"]
    away = n.op("sub", y, x)
    weight = n["weight"]
    if isinstance(weight, Value):
        return n.op("add", x, n.op("mul", away, weight))
    return n.op("add", x, n.op("scale", away, scale=float(weight)))
