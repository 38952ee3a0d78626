"""Elementwise operators: arithmetic, comparisons, logic, bits, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers

_Function = Callable[..., Any]


def _unary(name: str, function: _Function, op: str = "", **attrs: Any) -> None:
    """An operator of one input: by NumPy and, where there is one, by an operator of a net."""
    evaluates(name)(lambda n, x: np.asarray(function(x)).astype(x.dtype))
    if op:
        lowers(name)(lambda n: n.op(op, n[0], **attrs))


def _half(function: _Function) -> _Function:
    """The function on float32 copies of floats of 16 bits."""

    def on(x: np.ndarray) -> np.ndarray:
        small = x.dtype.itemsize == 2 and x.dtype.kind not in "iu"
        return function(x.astype(np.float32)) if small else function(x)

    return on


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.reshape(-1).tolist()]).reshape(x.shape)


for _name, _function, _op in (
    ("Abs", np.abs, "abs"),
    ("Acos", np.arccos, "acos"),
    ("Acosh", np.arccosh, "acosh"),
    ("Asin", np.arcsin, "asin"),
    ("Asinh", np.arcsinh, "asinh"),
    ("Atan", np.arctan, "atan"),
    ("Atanh", np.arctanh, "atanh"),
    ("Ceil", np.ceil, "ceil"),
    ("Cos", np.cos, "cos"),
    ("Cosh", np.cosh, "cosh"),
    ("Erf", _erf, "erf"),
    ("Exp", np.exp, "exp"),
    ("Floor", np.floor, "floor"),
    ("Log", np.log, "log"),
    ("Neg", np.negative, "neg"),
    ("Reciprocal", lambda x: 1 / x, "reciprocal"),
    ("Relu", lambda x: np.maximum(x, 0), "relu"),
    ("Round", np.rint, "round"),
    ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), "sigmoid"),
    ("Sign", np.sign, "sign"),
    ("Sin", np.sin, "sin"),
    ("Sinh", np.sinh, "sinh"),
    ("Softplus", lambda x: np.logaddexp(x, 0), "softplus"),
    ("Softsign", lambda x: x / (1 + np.abs(x)), "softsign"),
    ("Sqrt", np.sqrt, "sqrt"),
    ("Tan", np.tan, "tan"),
    ("Tanh", np.tanh, "tanh"),
    ("Not", np.logical_not, "logical_not"),
    ("Mish", lambda x: x * np.tanh(np.logaddexp(x, 0)), "mish"),
    ("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "hard_swish"),
):
    _unary(_name, _half(_function), _op)


# -- two inputs ----------------------------------------------------------------------------------


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return x / y
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "i":  # towards zero, as C does
        quotient += (quotient < 0) & (quotient * y != x)
    return quotient


def _limited(n: Attributes, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The second of two arrays broadcast as opsets before 7 do it: along `axis`."""
    if n.version < 7 and n.attr("broadcast", 0) and y.ndim < x.ndim:
        axis = n.attr("axis", x.ndim - y.ndim)
        y = y.reshape(y.shape + (1,) * (x.ndim - axis - y.ndim))
    return x, y


def _binary(name: str, function: _Function, op: str, *, only: str = "") -> None:
    """An operator of two inputs.

    Args:
        only: kinds of dtypes that the net's operator serves; "" all.
    """

    def evaluate(n: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(function(*_limited(n, x, y)))

    def lower(n: Call) -> Value:
        x, y = n[0], n[1]
        if n.version < 7 or x.dtype != y.dtype or (only and x.dtype.kind not in only):
            raise NotHere
        return n.op(op, x, y)

    evaluates(name)(evaluate)
    if op:
        lowers(name)(lower)


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.power(x, y.astype(np.float64) if y.dtype.kind in "iu" else y).astype(x.dtype)


_FLOATS = "fV"  # bfloat16 is of kind V
for _name, _function, _op, _only in (
    ("Add", np.add, "add", ""),
    ("Sub", np.subtract, "sub", ""),
    ("Mul", np.multiply, "mul", ""),
    ("Div", _divide, "div", _FLOATS),
    ("Pow", _power, "pow", _FLOATS),
    ("Equal", np.equal, "equal", ""),
    ("Greater", np.greater, "greater", ""),
    ("GreaterOrEqual", np.greater_equal, "greater_equal", ""),
    ("Less", np.less, "less", ""),
    ("LessOrEqual", np.less_equal, "less_equal", ""),
    ("And", np.logical_and, "logical_and", ""),
    ("Or", np.logical_or, "logical_or", ""),
    ("Xor", np.logical_xor, "logical_xor", ""),
    ("BitwiseAnd", np.bitwise_and, "", ""),
    ("BitwiseOr", np.bitwise_or, "", ""),
    ("BitwiseXor", np.bitwise_xor, "", ""),
):
    _binary(_name, _function, _op, only=_only)


@lowers("Pow")
def _pow(n: Call) -> Value:
    x, y = n[0], n[1]
    if not x.is_float:
        raise NotHere
    if y.array is not None and y.array.size == 1 and y.ndim <= x.ndim and not y.is_parameter:
        power = float(y.array.reshape(-1)[0])
        if power == 2:
            return n.op("square", x)
        if power == 0.5:
            return n.op("sqrt", x)
    if y.dtype != x.dtype:
        y = n.const(y.array, x.dtype) if y.array is not None else n.op("cast", y, dtype=x.dtype)
    return n.op("pow", x, y)


@evaluates("BitwiseNot")
def _bitwise_not(n: Attributes, x: np.ndarray) -> np.ndarray:
    return np.bitwise_not(x)


@evaluates("BitShift")
def _bit_shift(n: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    shift = np.left_shift if n.attr("direction", "") == "LEFT" else np.right_shift
    return shift(x, y)


@evaluates("Mod")
def _mod_on_host(n: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.fmod(x, y) if n.attr("fmod", 0) else np.mod(x, y)


@lowers("Mod")
def _mod(n: Call) -> Value:
    if not n[0].is_float and n[0].dtype != np.int64 and n[0].dtype != np.int32:
        raise NotHere
    return n.op("fmod" if n.attr("fmod", 0) else "mod", n[0], n[1])


def _folded(function: _Function) -> _Function:
    def evaluate(n: Attributes, *args: np.ndarray) -> np.ndarray:
        return reduce(function, args)

    return evaluate


evaluates("Max")(_folded(np.maximum))
evaluates("Min")(_folded(np.minimum))
evaluates("Sum")(_folded(np.add))


@evaluates("Mean")
def _mean_on_host(n: Attributes, *args: np.ndarray) -> np.ndarray:
    return reduce(np.add, args) / args[0].dtype.type(len(args))


@lowers("Max", "Min", "Sum", "Mean")
def _many(n: Call) -> Value:
    op = {"Max": "maximum", "Min": "minimum"}.get(n.node.op, "add")
    total = n[0]
    for number in range(1, len(n.inputs)):
        total = n.op(op, total, n[number])
    if n.node.op == "Mean":
        total = n.op("scale", total, scale=1 / len(n.inputs))
    return total


@evaluates("IsNaN")
def _is_nan(n: Attributes, x: np.ndarray) -> np.ndarray:
    return np.isnan(x)


@lowers("IsNaN")
def _is_nan_here(n: Call) -> Value:
    return n.op("isnan", n[0])


@evaluates("IsInf")
def _is_inf(n: Attributes, x: np.ndarray) -> np.ndarray:
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    return np.isinf(x) & ((x > 0) * bool(up) | (x < 0) * bool(down))


@lowers("IsInf")
def _is_inf_here(n: Call) -> Value:
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    made, zero = n.op("isinf", n[0]), n.const(0, n[0].dtype)
    if up and down:
        return made
    if not up and not down:
        raise NotHere
    return n.op("logical_and", made, n.op("greater" if up else "less", n[0], zero))


# -- activations with attributes -------------------------------------------------------------------


def _activation(name: str, evaluate: _Function, lower: _Function) -> None:
    evaluates(name)(lambda n, x: np.asarray(evaluate(n, x)).astype(x.dtype))
    lowers(name)(lower)


_activation(
    "LeakyRelu",
    lambda n, x: np.where(x > 0, x, x * n.attr("alpha", 0.01)),
    lambda n: n.op("leaky_relu", n[0], alpha=n.attr("alpha", 0.01)),
)
_activation(
    "Elu",
    lambda n, x: np.where(x > 0, x, n.attr("alpha", 1.0) * np.expm1(x)),
    lambda n: n.op("elu", n[0], alpha=n.attr("alpha", 1.0)),
)
_activation(
    "Celu",
    lambda n, x: (
        np.maximum(x, 0) + np.minimum(0, n.attr("alpha", 1.0) * np.expm1(x / n.attr("alpha", 1.0)))
    ),
    lambda n: n.op("celu", n[0], alpha=n.attr("alpha", 1.0)),
)
_activation(
    "HardSigmoid",
    lambda n, x: np.clip(n.attr("alpha", 0.2) * x + n.attr("beta", 0.5), 0, 1),
    lambda n: n.op("hard_sigmoid", n[0], alpha=n.attr("alpha", 0.2), beta=n.attr("beta", 0.5)),
)


def _zero_like(n: Call) -> Value:
    return n.const(0, n[0].dtype)


_activation(
    "ThresholdedRelu",
    lambda n, x: np.where(x > n.attr("alpha", 1.0), x, 0),
    lambda n: n.op(
        "where",
        n.op("greater", n[0], n.const(n.attr("alpha", 1.0), n[0].dtype)),
        n[0],
        _zero_like(n),
    ),
)


def _selu_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    alpha, gamma = n.attr("alpha", 1.6732632423543772), n.attr("gamma", 1.0507009873554805)
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


def _selu(n: Call) -> Value:
    alpha, gamma = n.attr("alpha", 1.6732632423543772), n.attr("gamma", 1.0507009873554805)
    return n.op("scale", n.op("elu", n[0], alpha=alpha), scale=gamma)


_activation("Selu", _selu_on_host, _selu)


def _shrink_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    bias, bound = n.attr("bias", 0.0), n.attr("lambd", 0.5)
    return np.where(x < -bound, x + bias, np.where(x > bound, x - bias, 0))


def _shrink(n: Call) -> Value:
    x, dtype = n[0], n[0].dtype
    if not x.is_float:
        raise NotHere
    bias, bound = n.attr("bias", 0.0), n.attr("lambd", 0.5)
    low = n.op("less", x, n.const(-bound, dtype))
    high = n.op("greater", x, n.const(bound, dtype))
    inner = n.op("where", high, n.op("scale", x, bias=-bias), _zero_like(n))
    return n.op("where", low, n.op("scale", x, bias=bias), inner)


_activation("Shrink", _shrink_on_host, _shrink)


def _gelu_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    if n.attr("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


_activation(
    "Gelu",
    _gelu_on_host,
    lambda n: n.op("gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu_erf", n[0]),
)


def _swish(n: Call) -> Value:
    alpha = n.attr("alpha", 1.0)
    if alpha == 1:
        return n.op("silu", n[0])
    return n.op("mul", n[0], n.op("sigmoid", n.op("scale", n[0], scale=alpha)))


_activation("Swish", lambda n, x: x / (1 + np.exp(-n.attr("alpha", 1.0) * x)), _swish)


@evaluates("PRelu")
def _prelu_on_host(n: Attributes, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, x * slope).astype(x.dtype)


@lowers("PRelu")
def _prelu(n: Call) -> Value:
    x, slope = n[0], n[1]
    if not x.is_float:
        raise NotHere
    zero = _zero_like(n)
    below = n.op("mul", n.op("minimum", x, zero), slope)
    return n.op("add", n.op("maximum", x, zero), below)


@evaluates("Clip")
def _clip_on_host(n: Attributes, x: np.ndarray, low: Any = None, high: Any = None) -> np.ndarray:
    if n.version < 11:
        low, high = n.attr("min"), n.attr("max")
    if low is not None:
        x = np.maximum(x, np.asarray(low).astype(x.dtype))
    if high is not None:
        x = np.minimum(x, np.asarray(high).astype(x.dtype))
    return x


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


@evaluates("Where")
def _where_on_host(
    n: Attributes, condition: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    return np.where(condition, x, y)


@lowers("Where")
def _where(n: Call) -> Value:
    return n.op("where", n[0], n[1], n[2])
