"""Elementwise operators: functions, arithmetic, comparisons, gates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..emission import Emission, emits

_SAME = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softsign": "Softsign", "selu": "Selu",
    "hard_swish": "HardSwish", "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin",
    "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "cos": "Cos", "cosh": "Cosh", "erf": "Erf",
    "exp": "Exp", "log": "Log", "neg": "Neg", "reciprocal": "Reciprocal", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan",
}  # fmt: skip
_WHOLE = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}
_WITH_ATTRS = {
    "elu": ("Elu", "alpha"),
    "celu": ("Celu", "alpha"),
    "leaky_relu": ("LeakyRelu", "alpha"),
    "hard_sigmoid": ("HardSigmoid", "alpha", "beta"),
}
_TWO = {
    "add": "Add", "sub": "Sub", "div": "Div", "pow": "Pow",
    "maximum": "Max", "minimum": "Min",
}  # fmt: skip
_COMPARED = {
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual", "not_equal": "Equal",
}  # fmt: skip
_LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}


@emits(*_SAME)
def plain(e: Emission) -> None:
    e.set("out", e.node(_SAME[e.op.type], e["x"]))


@emits(*_WHOLE)
def whole(e: Emission) -> None:
    e.set("out", e.node(_WHOLE[e.op.type], e["x"]) if e.is_float() else e["x"])


@emits(*_WITH_ATTRS)
def with_attrs(e: Emission) -> None:
    op_type, *names = _WITH_ATTRS[e.op.type]
    given: dict[str, Any] = {name: float(e.attrs[name]) for name in names}
    e.set("out", e.node(op_type, e["x"], **given))


@emits("assign", "stop_gradient", "dropout", "cntk.with_sequences")
def passed_on(e: Emission) -> None:
    e.set("out", e["x"])


def _clipped(e: Emission, least: float, most: float) -> str:
    given = [None if math.isinf(one) else e.const(one) for one in (least, most)]
    return e["x"] if given == [None, None] else e.node("Clip", e["x"], *given)


@emits("clip", "hard_tanh")
def clip(e: Emission) -> None:
    e.set("out", _clipped(e, e.attrs["minimum"], e.attrs["maximum"]))


@emits("relu6")
def relu6(e: Emission) -> None:
    e.set("out", _clipped(e, 0.0, 6.0))


@emits("log_sigmoid")
def log_sigmoid(e: Emission) -> None:
    e.set("out", e.node("Neg", e.node("Softplus", e.node("Neg", e["x"]))))


@emits("mish")
def mish(e: Emission) -> None:
    e.set("out", e.node("Mul", e["x"], e.node("Tanh", e.node("Softplus", e["x"]))))


@emits("silu")
def silu(e: Emission) -> None:
    e.set("out", e.node("Mul", e["x"], e.node("Sigmoid", e["x"])))


@emits("softplus")
def softplus(e: Emission) -> None:
    beta = e.attrs["beta"]
    if beta == 1:
        e.set("out", e.node("Softplus", e["x"]))
        return
    inner = e.node("Softplus", e.node("Mul", e["x"], e.const(beta)))
    e.set("out", e.node("Div", inner, e.const(beta)))


@emits("gelu_erf")
def gelu_erf(e: Emission) -> None:
    inner = e.node("Erf", e.node("Mul", e["x"], e.const(math.sqrt(0.5))))
    half = e.node("Mul", e["x"], e.const(0.5))
    e.set("out", e.node("Mul", half, e.node("Add", inner, e.const(1.0))))


@emits("gelu_tanh")
def gelu_tanh(e: Emission) -> None:
    cube = e.node("Mul", e.node("Mul", e["x"], e["x"]), e["x"])
    inner = e.node("Add", e["x"], e.node("Mul", cube, e.const(0.044715)))
    inner = e.node("Tanh", e.node("Mul", inner, e.const(math.sqrt(2 / math.pi))))
    half = e.node("Mul", e["x"], e.const(0.5))
    e.set("out", e.node("Mul", half, e.node("Add", inner, e.const(1.0))))


@emits("exp2")
def exp2(e: Emission) -> None:
    e.set("out", e.node("Pow", e.const(2.0), e["x"]))


@emits("expm1")
def expm1(e: Emission) -> None:
    e.set("out", e.node("Sub", e.node("Exp", e["x"]), e.const(1.0)))


@emits("log1p")
def log1p(e: Emission) -> None:
    e.set("out", e.node("Log", e.node("Add", e["x"], e.const(1.0))))


@emits("log2", "log10")
def other_logarithms(e: Emission) -> None:
    base = 2 if e.op.type == "log2" else 10
    e.set("out", e.node("Div", e.node("Log", e["x"]), e.const(math.log(base))))


@emits("rsqrt")
def rsqrt(e: Emission) -> None:
    e.set("out", e.node("Reciprocal", e.node("Sqrt", e["x"])))


@emits("square")
def square(e: Emission) -> None:
    e.set("out", e.node("Mul", e["x"], e["x"]))


@emits("trunc")
def trunc(e: Emission) -> None:
    cut = e.node("Floor", e.node("Abs", e["x"])) if e.is_float() else ""
    e.set("out", e.node("Mul", e.node("Sign", e["x"]), cut) if cut else e["x"])


@emits("scale")
def scale(e: Emission) -> None:
    found = e["x"]
    if e.attrs["scale"] != 1:
        found = e.node("Mul", found, e.const(e.attrs["scale"]))
    if e.attrs["bias"]:
        found = e.node("Add", found, e.const(e.attrs["bias"]))
    e.set("out", found)


@emits("increment")
def increment(e: Emission) -> None:
    e.set("out", e.node("Add", e["x"], e.const(e.attrs["value"])))


@emits("cast")
def cast(e: Emission) -> None:
    e.set("out", e["x"] if e.dtype("x") == e.attrs["dtype"] else e.cast(e["x"], e.attrs["dtype"]))


@emits(*_TWO)
def two(e: Emission) -> None:
    e.set("out", e.node(_TWO[e.op.type], e["x"], e["y"]))


@emits("mul")
def mul(e: Emission) -> None:
    """Factors of dropout are ones at inference."""
    x, y = e.op.inputs["x"][0], e.op.inputs["y"][0]
    if e.values.is_ones(y):
        e.set("out", e["x"])
    elif e.values.is_ones(x):
        e.set("out", e["y"])
    else:
        e.set("out", e.node("Mul", e["x"], e["y"]))


@emits("sum")
def sum_of_several(e: Emission) -> None:
    first, *others = e.list("x")
    if others and e.is_float():
        e.set("out", e.node("Sum", first, *others))
        return
    for other in others:
        first = e.node("Add", first, other)
    e.set("out", first)


def _comparable(e: Emission) -> tuple[str, str]:
    """Both operands; order is not defined for booleans."""
    if e.dtype("x") == np.bool_:
        return e.cast(e["x"], np.int32), e.cast(e["y"], np.int32)
    return e["x"], e["y"]


@emits(*_COMPARED)
def compare(e: Emission) -> None:
    found = e.node(_COMPARED[e.op.type], *_comparable(e))
    e.set("out", e.node("Not", found) if e.op.type == "not_equal" else found)


@emits(*_LOGICAL)
def logical(e: Emission) -> None:
    both = [e.as_bool(e[slot], e.dtype(slot)) for slot in ("x", "y")]
    e.set("out", e.node(_LOGICAL[e.op.type], *both))


@emits("logical_not")
def logical_not(e: Emission) -> None:
    e.set("out", e.node("Not", e.as_bool(e["x"], e.dtype("x"))))


@emits("isnan", "isinf", "isfinite")
def special_numbers(e: Emission) -> None:
    if not e.is_float():
        same = e.node("Equal", e["x"], e["x"])
        e.set("out", same if e.op.type == "isfinite" else e.node("Not", same))
    elif e.op.type == "isfinite":
        odd = e.node("Or", e.node("IsInf", e["x"]), e.node("IsNaN", e["x"]))
        e.set("out", e.node("Not", odd))
    else:
        e.set("out", e.node("IsNaN" if e.op.type == "isnan" else "IsInf", e["x"]))


@emits("where")
def where(e: Emission) -> None:
    condition = e.as_bool(e["condition"], e.dtype("condition"))
    e.set("out", e.node("Where", condition, e["x"], e["y"]))


@emits("glu")
def glu(e: Emission) -> None:
    axis = e.axis()
    half = e.shape("x")[axis] // 2
    if half < 0:
        e.refuse("the size of the axis that it halves is not known; declare it")
    first, gate = e.split(e["x"], axis, [half, half])
    e.set("out", e.node("Mul", first, e.node("Sigmoid", gate)))


@emits("prelu")
def prelu(e: Emission) -> None:
    slope, rank = e["w"], e.rank("x")
    if e.shape("w") != (1,) and rank > 2:
        slope = e.reshape(slope, -1, *(1,) * (rank - 2))
    if rank:
        e.set("out", e.node("PRelu", e["x"], slope))
    else:
        e.set("out", e.squeeze(e.node("PRelu", e.unsqueeze(e["x"], 0), slope), 0))


@emits("atan2")
def atan2(e: Emission) -> None:
    """By quadrants, from the arctangent of x / y."""
    zero, pi = e.const(0.0), e.const(math.pi)
    x, y = e["x"], e["y"]
    angle = e.node("Atan", e.node("Div", x, y))
    turn = e.node("Where", e.node("Less", x, zero), e.const(-math.pi), pi)
    left = e.node("Add", angle, turn)
    upright = e.node("Mul", e.node("Sign", x), e.const(math.pi / 2))
    found = e.node("Where", e.node("Less", y, zero), left, angle)
    e.set("out", e.node("Where", e.node("Equal", y, zero), upright, found))


def _guarded(e: Emission, compute: Any) -> str:
    """Of integers the result is 0 where y is; runtimes stop there."""
    zero, one = e.const(0), e.const(1)
    is_zero = e.node("Equal", e["y"], zero)
    found = compute(e["x"], e.node("Where", is_zero, one, e["y"]))
    return e.node("Where", is_zero, zero, found)


@emits("fmod")
def fmod(e: Emission) -> None:
    def remainder(x: str, y: str) -> str:
        return e.node("Mod", x, y, fmod=1)

    e.set("out", remainder(e["x"], e["y"]) if e.is_float() else _guarded(e, remainder))


@emits("mod")
def mod(e: Emission) -> None:
    if not e.is_float():
        e.set("out", _guarded(e, lambda x, y: e.node("Mod", x, y)))
        return
    zero = e.const(0.0)
    rest = e.node("Mod", e["x"], e["y"], fmod=1)
    other = e.node("Less", e.node("Mul", e.node("Sign", rest), e.node("Sign", e["y"])), zero)
    e.set("out", e.node("Where", other, e.node("Add", rest, e["y"]), rest))


@emits("floor_divide")
def floor_divide(e: Emission) -> None:
    if e.is_float():
        e.set("out", e.node("Floor", e.node("Div", e["x"], e["y"])))
        return

    def quotient(x: str, y: str) -> str:
        return e.node("Div", e.node("Sub", x, e.node("Mod", x, y)), y)

    e.set("out", _guarded(e, quotient))
