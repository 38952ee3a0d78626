"""Scalar expressions of elementwise operators as PyTorch text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....framework.fusion.scalars.array_idioms import idiom, simplified
from ....framework.fusion.scalars.expression import Tree, fold
from ....operators.names import Name, names_in, names_of
from ...inference.idioms import OURS, forms_in

_ATOM, _NOT, _TIMES, _PLUS, _AND, _OR, _COMPARE = 7, 6, 5, 4, 3, 2, 1
_STRENGTHS: Final = {
    "*": _TIMES, "/": _TIMES, "+": _PLUS, "-": _PLUS, "&&": _AND, "||": _OR,
    "==": _COMPARE, "!=": _COMPARE, "<": _COMPARE, ">": _COMPARE, "<=": _COMPARE, ">=": _COMPARE,
}  # fmt: skip


_FUNCTIONS: Final = {
    "round": "({0}.sign() * ({0}.abs() + 0.5).floor())",
    "cbrt": "({0}.sign() * {0}.abs().pow(1 / 3))",
    "tgamma": "torch.special.gammaln({0}).exp()",
    "fma": "({0} * {1} + {2})",
    **{name: f"torch.{name}({{0}}, {{1}})" for name in "copysign fmax fmin hypot".split()},
}
"""Functions that are no operators, and that PyTorch has not as a method of the same name."""
_CONDITIONS: Final = frozenset("isfinite isinf isnan signbit".split())
_TAKE_NUMBERS: Final = frozenset(("fmod", "fma", "pow"))
"""Functions of several arguments that take plain numbers, too."""
_IDIOMS: Final = (idiom("a < s ? s : a > t ? t : a", "clip(a, s, t)", functions=(("clip", 3),)),)
_LOGIC: Final = {"&&": "&", "||": "|"}


@dataclass(frozen=True)
class Text:
    """A part of an expression.

    Attributes:
        text: in Python. strength: of what binds it.
        is_number: whether it is one, not a tensor.
        is_condition: whether it is a tensor of booleans.
    """

    text: str
    strength: int = _ATOM
    is_number: bool = False
    is_condition: bool = False

    def within(self, strength: int) -> str:
        """The text as an operand of an operator."""
        return self.text if self.strength >= strength else f"({self.text})"


def number_text(value: float, is_float: bool = True) -> str:
    """A number in as few digits as tell it."""
    if math.isnan(value):
        return "torch.nan"
    if math.isinf(value):
        return "torch.inf" if value > 0 else "-torch.inf"
    return repr(float(value)) if is_float else repr(int(value))


def called(name: Name, values: Sequence[str], numbers: Mapping[str, str]) -> str:
    """The text of a call of what PyTorch has for an operator.

    Args:
        values: of its input slots, in order. numbers: its attributes.
    """
    if not name.name[-1].isalnum():
        return f" {name.name} ".join(values)
    given = [
        numbers[ours] if theirs == ours else f"{theirs}={numbers[ours]}"
        for theirs, ours in name.attrs.items()
    ]
    if names_in("torch")[name.read[0]][0] is not name:
        given += [f"{theirs}={json.dumps(value)}" for theirs, value in name.fixed.items()]
    if "." in name.name:
        return f"{name.name}({', '.join([*values, *given])})"
    return f"{values[0]}.{name.name}({', '.join([*values[1:], *given])})"


class Printer:
    """Prints the expression of an operator.

    Args:
        values: by the names that trees have for them.
        like: a tensor of the dtype and shape of elements. is_float: whether these are floats.
    """

    def __init__(self, values: Mapping[str, Text], like: str, is_float: bool = True) -> None:
        self._values = values
        self._like = like
        self._is_float = is_float

    def print(self, tree: Tree, is_condition: bool = False) -> str:
        """The text of a tree; what depends on no input is as large as the first one.

        Args:
            tree: with numbers in place of attributes, and what follows from these done.
            is_condition: whether booleans are wanted.
        """
        printed = fold(simplified(tree, forms_in("torch") + _IDIOMS), self._part)
        if printed.is_number:
            return f"torch.full_like({self._like}, {printed.text})"
        return (self._condition if is_condition else self._value)(printed).text

    def _number(self, value: float) -> Text:
        text = number_text(value, self._is_float)
        return Text(text, _NOT if text.startswith("-") else _ATOM, is_number=True)

    def _value(self, part: Text) -> Text:
        """A condition as a tensor of zeros and ones."""
        if part.is_condition:
            return Text(f"{part.within(_ATOM)}.to({self._like}.dtype)")
        return part

    def _condition(self, part: Text) -> Text:
        if part.is_condition:
            return part
        return Text(f"{part.within(_PLUS)} != 0", _COMPARE, is_condition=True)

    def _part(self, tree: Tree, below: Sequence[Text]) -> Text:
        kind = tree[0]
        if kind == "num":
            return self._number(tree[1])
        if kind == "var":
            return self._values[tree[1]]
        if kind == "call":
            return self._call(tree[1], below)
        if kind == "unary":
            return self._unary(tree[1], below[0])
        if kind == "binary":
            return self._binary(tree[1], *below)
        if kind == "sum":
            return Text(" + ".join(self._value(one).within(_PLUS) for one in below), _PLUS)
        return self._choice(*below)

    def _choice(self, condition: Text, yes: Text, no: Text) -> Text:
        text = f"torch.where({self._condition(condition).text}"
        if yes.is_condition and no.is_condition:
            return Text(f"{text}, {yes.text}, {no.text})", is_condition=True)
        text += f", {self._value(yes).text}, {self._value(no).text})"
        both = yes.is_number and no.is_number
        return Text(f"{text}.to({self._like}.dtype)" if both else text)

    def _unary(self, sign: str, operand: Text) -> Text:
        if sign == "!":
            return Text(f"~{self._condition(operand).within(_NOT)}", _NOT, is_condition=True)
        return Text(f"-{self._value(operand).within(_NOT)}", _NOT)  # `+` is folded away

    def _binary(self, sign: str, left: Text, right: Text) -> Text:
        strength = _STRENGTHS[sign]
        if sign in ("&&", "||"):
            x, y = (self._condition(one).within(strength + 1) for one in (left, right))
            return Text(f"{x} {_LOGIC[sign]} {y}", strength, is_condition=True)
        if strength == _COMPARE:
            both = left.is_condition and right.is_condition
            x, y = (left, right) if both else (self._value(left), self._value(right))
            text = f"{x.within(_OR)} {sign} {y.within(_OR)}"
            return Text(text, strength, is_condition=True)
        x, y = self._value(left), self._value(right)
        return Text(f"{x.within(strength)} {sign} {y.within(strength + 1)}", strength)

    def _call(self, name: str, given: Sequence[Text]) -> Text:
        values = [self._value(one) for one in given]
        if name == "clip":
            ends = zip(("min", "max"), values[1:], strict=True)
            limits = [f"{end}={one.text}" for end, one in ends if not one.text.endswith("inf")]
            whole = f"{values[0].within(_ATOM)}.clamp({', '.join(limits)})"
            return Text(whole) if limits else values[0]
        op_type = name.removeprefix(OURS)
        takes = op_type in _TAKE_NUMBERS and not all(one.is_number for one in values)
        if op_type != name:
            text = self._called(names_of(op_type)["torch"], values, takes)
        else:
            values = values if takes else [self._tensor(one) for one in values]
            template = _FUNCTIONS.get(name, f"{{0}}.{name}()")
            is_call = template.startswith("torch.")
            text = template.format(*(v.text if is_call else v.within(_ATOM) for v in values))
        return Text(text, is_condition=op_type in _CONDITIONS)

    def _called(self, name: Name, given: Sequence[Text], takes: bool) -> str:
        count = len(given) - len(name.attrs)
        values = [one if takes else self._tensor(one) for one in given[:count]]
        numbers = zip(name.attrs.values(), (one.text for one in given[count:]), strict=True)
        first = values[0].within(0 if "." in name.name else _ATOM)
        return called(name, [first, *(one.text for one in values[1:])], dict(numbers))

    def _tensor(self, part: Text) -> Text:
        """A number as a tensor, where a function takes nothing else."""
        if not part.is_number:
            return part
        return Text(f"{self._like}.new_tensor({part.text})")
