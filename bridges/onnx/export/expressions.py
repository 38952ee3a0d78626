"""Scalar expressions of elementwise operators as ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from ....framework.base.dtypes import is_float
from ....framework.fusion.scalars.array_idioms import Idiom, idiom, simplified
from ....framework.fusion.scalars.expression import Tree, fold, parse
from ....framework.fusion.scalars.pointwise import formulas, operands
from ....operators.math.elementwise import mish
from ....operators.names import names_of
from ...inference.idioms import OURS, forms_in
from ..files.tensors import number_of
from .emission import Emission

_SIGNS: Final = {
    "+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "&&": "And", "||": "Or", "==": "Equal",
    "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual",
}  # fmt: skip
_COMPARED: Final = ("==", "<", "<=", ">", ">=")
_CONDITIONS: Final = ("isinf", "isnan")
_EXTRA: Final = (("clip", 3), ("maximum", 2), ("minimum", 2), ("sign", 1), ("softplus", 1))
# Sixteen nodes, where opsets without Mish want three.
_MISH: Final = Idiom(parse(mish.expressions["out"]), parse("x * tanh(softplus(x))", _EXTRA))
_IDIOMS: Final = (_MISH,) + tuple(
    idiom(form, instead, functions=_EXTRA)
    for form, instead in {
        "a < s ? s : a > t ? t : a": "clip(a, s, t)",
        "a < b ? b : a": "maximum(a, b)",
        "a > b ? b : a": "minimum(a, b)",
        "a != a": "isnan(a)",
        "a != 0 && (a < 0) != (b < 0)": "sign(a) * sign(b) < 0",
        "a / (1 + exp(-b))": "a * (1 / (1 + exp(-b)))",
        "(a < 0 ? a : 0) - log1p(exp(-fabs(a)))": "-softplus(-a)",
        "a == b ? a + 0.6931471805599453 : (a > b ? a : b) + log1p(exp(-fabs(a - b)))": (
            "maximum(a, b) + softplus(minimum(a, b) - maximum(a, b))"
        ),
        # What ONNX lacks.
        "cbrt(a)": "sign(a) * pow(fabs(a), 1 / 3)",
        "erfc(a)": "1 - erf(a)",
        "exp2(a)": "pow(2, a)",
        "expm1(a)": "exp(a) - 1",
        "log1p(a)": "log(a + 1)",
        "log2(a)": f"log(a) / {math.log(2)}",
        "log10(a)": f"log(a) / {math.log(10)}",
        "round(a)": "sign(a) * floor(fabs(a) + 0.5)",
        "trunc(a)": "sign(a) * floor(fabs(a))",
        "isfinite(a)": "!(isinf(a) || isnan(a))",
        "signbit(a)": "a < 0 || 1 / a < 0",
        "copysign(a, b)": "signbit(b) ? -fabs(a) : fabs(a)",
        "fmax(a, b)": "isnan(a) || b > a ? b : a",
        "fmin(a, b)": "isnan(a) || b < a ? b : a",
        "fma(a, b, c)": "a * b + c",
        "hypot(a, b)": "sqrt(a * a + b * b)",
        "atan2(a, b)": (
            f"b == 0 ? sign(a) * {math.pi / 2}"
            f" : b < 0 ? atan(a / b) + (a < 0 ? -{math.pi} : {math.pi}) : atan(a / b)"
        ),
    }.items()
)


@dataclass(frozen=True)
class _Part:
    """The value of a part of an expression.

    Attributes:
        value: in the graph; "" for a number, which becomes a constant where a node reads it.
        is_truth: whether it is of booleans.
    """

    value: str
    number: float = math.nan
    is_truth: bool = False


class _Printer:
    """Adds the nodes of one expression; equal ones once.

    Args:
        e: the operator. values: by the names that the expression has for them.
        dtype: of numbers.
    """

    def __init__(self, e: Emission, values: Mapping[str, _Part], dtype: np.dtype) -> None:
        self._e = e
        self._values = values
        self._dtype = dtype
        self._known: dict[tuple[Any, ...], str] = {}

    def print(self, tree: Tree, is_truth: bool) -> str:
        """The value of an expression; what reads no input is as large as the first one."""
        whole = simplified(tree, forms_in("onnx", self._e.graph.opset) + _IDIOMS)
        value = (self._truth if is_truth else self._number)(fold(whole, self._part))
        if whole[0] != "num":
            return value
        return self._node(
            "Expand", value, self._node("Shape", next(iter(self._values.values())).value)
        )

    def _node(self, op_type: str, *inputs: str | None, **attributes: Any) -> str:
        key = op_type, inputs, tuple(attributes.items())
        if key not in self._known:
            self._known[key] = self._e.node(op_type, *inputs, **attributes)
        return self._known[key]

    def _number(self, part: _Part) -> str:
        if part.is_truth:
            return self._node("Cast", part.value, to=number_of(self._dtype))
        return part.value or self._e.const(part.number, self._dtype)

    def _truth(self, part: _Part) -> str:
        if part.is_truth:
            return part.value
        if not part.value:
            return self._e.const(bool(part.number), np.bool_)
        return self._node("Cast", part.value, to=number_of(np.dtype(np.bool_)))

    def _part(self, tree: Tree, below: Sequence[_Part]) -> _Part:
        kind = tree[0]
        if kind == "num":
            return _Part("", tree[1])
        if kind == "var":
            return self._values[tree[1]]
        if kind == "call":
            return self._call(tree[1], below)
        if kind == "unary":
            if tree[1] == "!":
                return _Part(self._node("Not", self._truth(below[0])), is_truth=True)
            return _Part(self._node("Neg", self._number(below[0])))  # `+` is folded away
        if kind == "binary":
            return self._binary(tree[1], *below)
        if kind == "choose":
            both = all(part.is_truth for part in below[1:])
            yes, no = map(self._truth if both else self._number, below[1:])
            return _Part(self._node("Where", self._truth(below[0]), yes, no), is_truth=both)
        terms = [self._number(part) for part in below]
        if is_float(self._dtype):
            return _Part(self._node("Sum", *terms))
        return _Part(reduce(partial(self._node, "Add"), terms))

    def _binary(self, sign: str, left: _Part, right: _Part) -> _Part:
        both = left.is_truth and right.is_truth
        if sign == "!=":
            if both:
                return _Part(self._node("Xor", left.value, right.value), is_truth=True)
            equal = self._node("Equal", self._number(left), self._number(right))
            return _Part(self._node("Not", equal), is_truth=True)
        is_logic = sign in ("&&", "||")
        wanted = self._truth if is_logic or (both and sign == "==") else self._number
        value = self._node(_SIGNS[sign], wanted(left), wanted(right))
        return _Part(value, is_truth=is_logic or sign in _COMPARED)

    def _call(self, function: str, below: Sequence[_Part]) -> _Part:
        if function == "clip":
            x, *limits = below
            given = [None if math.isinf(one.number) else self._number(one) for one in limits]
            return _Part(self._node("Clip", x.value, *given) if any(given) else x.value)
        op_type = function.removeprefix(OURS)
        name = names_of(op_type).get("onnx")
        if name is None or name.since > self._e.graph.opset:
            self._e.refuse(f"ONNX has no function {function!r}, which its expression calls")
        first = len(below) - len(name.attrs)
        numbers = zip(name.attrs, (part.number for part in below[first:]), strict=True)
        values = map(self._number, below[:first])
        value = self._node(name.name, *values, **name.fixed, **dict(numbers))
        return _Part(value, is_truth=op_type in _CONDITIONS)


def print_expressions(e: Emission) -> None:
    """Emit an operator from its scalar expressions.

    Raises:
        ExpressionError: they do not say what it computes; see `formulas`.
        RefusedError: they call a function that ONNX lacks.
    """
    trees = formulas(e.op)
    outputs = e.op.outputs
    dtypes = [
        spec[1]
        for name in (*e.op.output_vars(), *e.op.input_vars())
        if (spec := e.values.spec_of(name))
    ]
    dtype = next((one for one in dtypes if one != np.bool_), np.dtype(np.int32))
    values = {name: _read(e, variable) for name, variable in operands(e.op).items()}
    for slot, tree in trees.items():
        is_truth = bool(outputs.get(slot)) and e.dtype(slot) == np.bool_
        value = _Printer(e, values, dtype).print(tree, is_truth)
        e.set(slot, value)
        values[slot] = next((_read(e, name) for name in outputs.get(slot, ())), _Part(value))


def _read(e: Emission, variable: str) -> _Part:
    spec = e.values.spec_of(variable)
    return _Part(e.values.name_of(variable), is_truth=spec is not None and spec[1] == np.bool_)
