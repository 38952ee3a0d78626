"""BrainScript's operators on numbers, strings, booleans, records, arrays, functions and nodes.

Source: BrainScriptEvaluator.cpp (InfixOps, EvaluateNodeOp). Editing records with `+`, `-` and
`with` is from the notes on the redesigned language, where CNTK itself has no code for it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.errors import nearest
from ..network.network import Network
from ..network.nodes.node import Node
from .edits import refuse_pending, with_members, without_members
from .failures import Failure
from .language.syntax import Expression, If, Infix, Unary
from .nodes import constant, make_node
from .values import (
    Array,
    Composition,
    Function,
    Instance,
    Path,
    Record,
    Value,
    check_text,
    expect_boolean,
    expect_integer,
    type_name,
)


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * _sign(b)


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


def _remainder(a: float, b: float) -> float:
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def _power(a: float, b: float) -> float:
    with np.errstate(all="ignore"):  # C's pow: an infinity, with its sign, is a value
        return float(np.float64(a) ** b)


_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_NUMBERS: dict[str, Callable[[float, float], Any]] = {
    **_COMPARE,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
    "**": _power,
}
_STRINGS: dict[str, Callable[[str, str], Any]] = {**_COMPARE, "+": operator.add}
_BOOLEANS: dict[str, Callable[[bool, bool], bool]] = {
    **_COMPARE,
    "&&": operator.and_,
    "||": operator.or_,
    "^": operator.xor,
}
# The operation of a node that an operator between nodes makes.
_NODES = {
    "*": "Times",
    "+": "Plus",
    "-": "Minus",
    ".*": "ElementTimes",
    "<": "Less",
    "==": "Equal",
    ">": "Greater",
    ">=": "GreaterEqual",
    "!=": "NotEqual",
    "<=": "LessEqual",
    "&&": "ElementTimes",
}


def _wrong_types(expression: Infix, left: Value, right: Value) -> Failure:
    return Failure(
        f"operator {expression.operator} cannot be applied to these operands"
        f" ({type_name(left)} and {type_name(right)})",
        expression,
    )


def _make_infix(symbol: str) -> Callable[[Infix, Value, Value, Record, Path], Value]:
    on_numbers = _NUMBERS.get(symbol)
    on_strings = _STRINGS.get(symbol)
    on_booleans = _BOOLEANS.get(symbol)
    on_others = _OTHERS.get(symbol)

    def operate(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> Value:
        kind = left.__class__
        if kind is right.__class__:
            if kind is float and on_numbers is not None:
                return on_numbers(left, right)
            if kind is str and on_strings is not None:
                check_text(scope.session, len(left) + len(right), e)
                return on_strings(left, right)
            if kind is bool and on_booleans is not None:
                return on_booleans(left, right)
        if kind is Node or right.__class__ is Node:
            return _node_infix(e, left, right, scope, path)
        if on_others is not None:
            return on_others(e, left, right, scope, path)
        raise _wrong_types(e, left, right)

    return operate


# --- nodes


def _node_infix(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> Value:
    symbol = e.operator
    scalar = isinstance(left, float) or isinstance(right, float)
    if symbol == "/":
        return _node_quotient(e, left, right, scope, path)
    operation = _NODES.get(symbol)
    if operation is None:
        raise _wrong_types(e, left, right)
    if symbol == "&&":
        if right is False:
            return right
        if scalar:
            raise Failure("operator && is not applicable to numbers", e)
    elif isinstance(left, bool) or isinstance(right, bool):
        raise Failure(f"operator {symbol} is not applicable to booleans", e)
    if symbol == "*" and scalar:
        operation = "ElementTimes"
    return _node(e, operation, (left, right), scope, path)


def _node_quotient(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> Value:
    """CNTK has `1 / x` and `x / number`; `number / x` and `x / y` follow from them."""
    if isinstance(right, float):
        return _node(e, "ElementTimes", (left, _divide(1.0, right)), scope, path)
    if isinstance(left, float) and left == 1:
        return _node(e, "Reciprocal", (right,), scope, path)
    raise Failure("division with a ComputationNode is only supported for 1/x and x/number", e)


def _node(
    e: Expression, operation: str, operands: tuple[Value, ...], scope: Record, path: Path
) -> Node:
    session = scope.session
    inputs = [_as_node(e, operand, scope, path) for operand in operands]
    attributes = {"outputRank": 1, "inferInputRankToMap": -1} if operation == "Times" else {}
    return make_node(session, operation, path, inputs, attributes, e)


def _as_node(e: Expression, value: Value, scope: Record, path: Path) -> Node:
    """A node, or a constant of one element for a number or a boolean."""
    if isinstance(value, Node):
        return value
    if isinstance(value, (float, bool)):
        return constant(scope.session, float(value), (1,), path, e)
    raise Failure(f"a ComputationNode and a {type_name(value)} cannot be combined", e)


def node_if(
    e: If, condition: Node, then: Value, otherwise: Value, scope: Record, path: Path
) -> Node:
    """`if node then a else b` chooses element by element."""
    if {type(then), type(otherwise)} == {float, bool}:
        raise Failure("'then' and 'else' cannot mix number and boolean", e)
    return _node(e, "If", (condition, then, otherwise), scope, path)


def unary(e: Unary, value: Value, scope: Record, path: Path) -> Value:
    """`-x`, `+x` and `!x`."""
    if isinstance(value, Node):
        if e.operator == "+":
            return value
        if e.operator == "-":
            return _node(e, "Negate", (value,), scope, path)
        return _node(e, "Minus", (1.0, value), scope, path)
    if e.operator == "!":
        return not expect_boolean(value, e.operand)
    if isinstance(value, float):
        return -value if e.operator == "-" else value
    raise Failure(f"operator {e.operator} cannot be applied to a {type_name(value)}", e)


def member_of_node(node: Node, name: str, where: Expression) -> Value:
    """`node.name`, `.operation`, `.dim`, `.dims` and `.inputs` (also `.PlusArgs` of a Plus).

    `.INPUT`, the first input that is no parameter, and `.OUTDIM` are from the 2015 notes.
    """
    if name == "name":
        return node.name
    if name == "operation":
        return node.operation
    if name in ("inputs", node.operation + "Args"):
        return Array(list(node.inputs))
    if name in ("input", "INPUT") and node.inputs:
        data = [i for i in node.inputs if i is not None and not i.is_parameter]
        return (data or node.inputs)[0]
    if name in ("dim", "dims", "OUTDIM"):
        shape = node.shape
        if shape is None and (node.is_input or node.is_parameter):
            shape = node.attributes["shape"]
        if shape is None or not math.prod(shape):
            raise Failure(f"{node.name}.{name}: the node's dimensions are not known yet", where)
        if name == "dims":
            return Array([float(d) for d in shape])
        return float(math.prod(shape))
    hint = nearest(name, ("name", "operation", "dim", "dims", "input", "inputs"))
    raise Failure(f"unknown identifier {name!r}: a node has no such member{hint}", where)


def member_of_network(network: Network, name: str, where: Expression) -> Node:
    """A node of a network by its name; `_` may take the place of `.` in it."""
    if name in network:
        return network.find(name)
    for node in network.nodes.values():
        if node.name.replace(".", "_") == name:
            return node
    hint = nearest(name, network.nodes)
    raise Failure(f"unknown identifier {name!r}: the network has no such node{hint}", where)


# --- records, arrays, functions


def _edit(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> Value:
    change = without_members if e.operator == "-" else with_members
    if isinstance(left, Record) and isinstance(right, Record):
        return change(left, right, path, e)
    if isinstance(left, Instance) and isinstance(right, Record):
        result = change(left.record, right, path, e)
        refuse_pending(result)
        return left.with_record(result)
    raise _wrong_types(e, left, right)


def _same(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> bool:
    """Objects other than numbers, strings and booleans are equal if they are the same."""
    if isinstance(left, (float, str, bool)) or isinstance(right, (float, str, bool)):
        raise _wrong_types(e, left, right)
    return (left is right) == (e.operator == "==")


def _compose(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> Value:
    if isinstance(left, Function) and isinstance(right, Function):
        return Composition(left, right)
    raise _wrong_types(e, left, right)


def _shift(e: Infix, left: Value, right: Value, scope: Record, path: Path) -> Value:
    """`array << n` drops the first n elements; all of them if there are fewer."""
    if not isinstance(left, Array):
        raise _wrong_types(e, left, right)
    count = expect_integer(right, e.right)
    if left.first != 0 or count < 0:
        raise Failure("<< takes an array that begins with index 0, and no negative number", e)
    scope.session.spend(len(left.items) >> 3, e)
    return Array(left.items[count:])


_OTHERS = {
    "+": _edit,
    "-": _edit,
    "with": _edit,
    "==": _same,
    "!=": _same,
    ">>": _compose,
    "<<": _shift,
}

INFIX = {symbol: _make_infix(symbol) for symbol in (*_NUMBERS, *_BOOLEANS, *_OTHERS, *_NODES)}
