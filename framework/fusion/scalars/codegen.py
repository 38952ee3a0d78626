"""Fused loops: their structure, and their operations one by one, which all code is made from.

A `Loop` is the structure of a chain without names and sizes: the same one serves every batch size.
The interpreter and the C code of a loop compute each value by the same operation of its `Graph` on
the same values, so their results have the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base.python.cached import cached_property
from .expression import ExpressionError, Tree, cost, fold, nodes

FULL, ROW, COLUMN, ONE = "full", "row", "column", "one"
"""How an operand meets the loop over rows and columns: element (i, j), (j), (i), or one for all."""

MOST_ARRAYS = {"cpu": 100, "gpu": 48}
"""Most arrays of a kernel. C compilers take 1 s for a hundred and 6 s for two hundred; the
parameters of a CUDA function hold 4 KB, an array of four dimensions takes 80 bytes of them."""

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
}
"""Dtypes that operands of C loops may have; the first two are those of elements."""

HALF_NAMES = ("float16", "bfloat16")
"""Dtypes that loops load as float32 and round where they are stored."""


@dataclass(frozen=True)
class Operand:
    """Something a loop reads or writes."""

    kind: str
    dtype: str


@dataclass(frozen=True)
class Loop:
    """Structure of a fused loop.

    Attributes:
        dtype: of the elements.
        operands: all of them; variables `x0`, `x1`, ... in trees are their values on entry.
        values: expressions computed in order, known as `v0`, `v1`, ... to later ones.
        stores: (operand, name of the value to store there).
    """

    dtype: str
    operands: tuple[Operand, ...]
    values: tuple[Tree, ...]
    stores: tuple[tuple[int, str], ...]

    def loads(self) -> list[int]:
        """Operands whose values are read."""
        mentioned = {node[1] for tree in self.values for node in nodes(tree) if node[0] == "var"}
        mentioned.update(name for _, name in self.stores)
        return [i for i in range(len(self.operands)) if f"x{i}" in mentioned]

    @cached_property
    def work(self) -> int:
        """Rough work of one element, memory traffic included."""
        return sum(map(cost, self.values)) + 2 * len(self.operands)

    @cached_property
    def key(self) -> str:
        """A name that says what the loop computes: equal for equal structures."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:20]


_SIGNS = {
    **{"+": "add", "-": "sub", "*": "mul", "/": "div", "<": "lt", ">": "gt", "<=": "le"},
    **{">=": "ge", "==": "eq", "!=": "ne", "&&": "and", "||": "or"},
}
_TRUTH = frozenset("lt gt le ge eq ne and or not as_truth isnan isinf isfinite signbit".split())
"""Operations that give truth values."""
_COMPARISONS: dict[str, Callable[[float, float], float]] = {
    **{"lt": lambda a, b: float(a < b), "gt": lambda a, b: float(a > b)},
    **{"le": lambda a, b: float(a <= b), "ge": lambda a, b: float(a >= b)},
    **{"eq": lambda a, b: float(a == b), "ne": lambda a, b: float(a != b)},
}
_LIMITS = {"lt": "at_least", "gt": "at_most"}
"""Comparisons, and the operations that choose the second operand where they are true."""
SIGMOID = "sigmoid"
"""The function of the native library that 1 / (1 + exp(-x)) is, in one step."""
_IN_LINE = frozenset("fabs sqrt copysign fmax fmin isnan isinf isfinite signbit".split())
"""Functions that are steps of their own, not calls."""


class Value(NamedTuple):
    """A value of a loop.

    Attributes:
        kind: "literal", "one" (an operand that is one number) and "head" (computed before the loop)
            are fixed; "number", an operand of a column; "array", an operand that is read in place;
            "step", what an operation gives.
    """

    kind: str
    index: int


@dataclass(frozen=True)
class Operation:
    """An operation on blocks. `extra` is the function that it calls, or the operand it loads."""

    name: str
    operands: tuple[Value, ...]
    extra: str | int = ""


@dataclass
class Graph:
    """The operations of a loop in the order of computation; equal ones once.

    Attributes:
        head: (function, its registers) of what is computed before the loop; results have the
            registers after those of literals and operands that are one number.
    """

    loop: Loop
    operations: list[Operation] = field(default_factory=list)
    literals: list[float] = field(default_factory=list)
    head: list[tuple[str, tuple[Value, ...]]] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    _known: dict[Any, Value] = field(default_factory=dict)
    _truths: set[Value] = field(default_factory=set)

    def __post_init__(self) -> None:
        for number, tree in enumerate(self.loop.values):
            self.values[f"v{number}"] = fold(tree, self._value)

    @cached_property
    def stores(self) -> list[tuple[int, Value]]:
        """What is stored: the operand that it is written to, and the value."""
        return [(operand, self.value(name)) for operand, name in self.loop.stores]

    def needed(self) -> list[int]:
        """The operations that results depend on, in the order of computation."""
        needed = {value.index for _, value in self.stores if value.kind == "step"}
        for index in reversed(range(len(self.operations))):
            if index in needed:
                needed.update(o.index for o in self.operations[index].operands if o.kind == "step")
        return sorted(needed)

    def register(self, value: Value) -> int:
        """The number of a value that is known before the loop: literals come first."""
        if value.kind == "literal":
            return value.index
        ones = [i for i, operand in enumerate(self.loop.operands) if operand.kind == ONE]
        if value.kind == "one":
            return len(self.literals) + ones.index(value.index)
        return len(self.literals) + len(ones) + value.index

    def value(self, name: str) -> Value:
        """The value of a name in trees, as a number."""
        return self._number(self.values[name] if name in self.values else self._operand(name))

    def _operand(self, name: str) -> Value:
        index = int(name[1:]) if name[1:].isdecimal() else -1
        if name[:1] != "x" or not 0 <= index < len(self.loop.operands):
            raise ExpressionError(f"a loop reads {name!r}, which it is not given")
        operand = self.loop.operands[index]
        if operand.kind == ONE:
            return Value("one", index)
        if operand.kind == COLUMN:
            return Value("number", index)
        if operand.dtype in HALF_NAMES:
            return self._operation(f"load_{operand.dtype}", (), index)
        return Value("array", index)

    def _value(self, tree: Tree, below: Sequence[Value]) -> Value:
        kind = tree[0]
        if kind == "num":
            return self._literal(tree[1])
        if kind == "var":
            return self.values[tree[1]] if tree[1] in self.values else self._operand(tree[1])
        if kind == "unary":
            if tree[1] == "+":
                return self._number(below[0])
            if tree[1] == "!":
                return self._apply("not", self._truth(below[0]))
            if self._is_truth(below[0]):
                # -(a < b) is 0 in C, where truth values are integers, not the float's -0.
                return self._apply("sub", self._literal(0.0), self._number(below[0]))
            return self._apply("neg", below[0])
        if kind == "binary":
            name = _SIGNS[tree[1]]
            convert = self._truth if name in ("and", "or") else self._number
            return self._apply(name, *map(convert, below))
        if kind == "sum":
            total = self._number(below[0])
            for term in below[1:]:
                total = self._apply("add", total, self._number(term))
            return total
        if kind == "choose":
            if below[0].kind == "literal":  # an attribute that switches something on or off
                return self._number(below[1 if self.literals[below[0].index] else 2])
            choice = self._truth(below[0]), *map(self._number, below[1:])
            return self._limited(*choice) or self._choice(*choice)
        return self._apply(tree[1], *map(self._number, below))

    def _limited(self, truth: Value, then: Value, otherwise: Value) -> Value | None:
        """`x < low ? low : x`, or `high` beside `>`, as one operation, also of an x that is limited
        on the other side already; None where it is another choice."""
        comparison = self.operations[truth.index] if truth.kind == "step" else None
        if comparison is None or comparison.name not in _LIMITS or comparison.operands[1] != then:
            return None
        x = comparison.operands[0]
        if is_fixed(x) or then.kind != "literal":
            return None
        if otherwise != x:
            inner = self.operations[otherwise.index] if otherwise.kind == "step" else None
            if (
                inner is None
                or inner.operands[:1] != (x,)
                or inner.name == _LIMITS[comparison.name]
            ):
                return None
            limits = [self.literals[one.index] for one in (then, *inner.operands[1:])]
            low, high = limits if comparison.name == "lt" else reversed(limits)
            if inner.name not in _LIMITS.values() or not low <= high:
                return None
        return self._operation(_LIMITS[comparison.name], (otherwise, then))

    def _choice(self, truth: Value, then: Value, otherwise: Value) -> Value:
        """A choice; by two comparisons it is two, each of which is one with what it chooses."""
        todo: list[tuple[Value, Value | None, Value | None]] = [(truth, then, otherwise)]
        result: Value | None = None  # of the choice before, which stands where there is None
        while todo:
            truth, *chosen = todo.pop()
            yes, no = (result if one is None else one for one in chosen)
            assert yes is not None and no is not None
            joined = self.operations[truth.index] if truth.kind == "step" else None
            if joined is not None and joined.name in ("and", "or"):
                first, second = joined.operands
                todo.append((first, None, no) if joined.name == "and" else (first, yes, None))
                todo.append((second, yes, no))
            else:
                result = self._apply("choose", truth, yes, no)
        assert result is not None
        return result

    def _literal(self, number: float) -> Value:
        key = repr(number)  # 0.0 and -0.0 are equal as keys, and NaN is not equal to itself
        if key not in self._known:
            self._known[key] = Value("literal", len(self.literals))
            self.literals.append(number)
        return self._known[key]

    def _is_truth(self, value: Value) -> bool:
        return value in self._truths

    def _truth(self, value: Value) -> Value:
        if self._is_truth(value) or is_fixed(value):
            return value
        return self._apply("as_truth", value)

    def _number(self, value: Value) -> Value:
        if value.kind == "step" and self._is_truth(value):
            return self._operation("as_number", (value,))
        return value

    def _apply(self, name: str, *operands: Value) -> Value:
        if name in _COMPARISONS and all(one.kind == "literal" for one in operands):
            # Of attributes: what is chosen by it is known now.
            return self._literal(
                _COMPARISONS[name](*(self.literals[one.index] for one in operands))
            )
        if all(map(is_fixed, operands)):
            key = name, operands
            if key not in self._known:
                self._known[key] = Value("head", len(self.head))
                self.head.append(key)
            result = self._known[key]
        elif name in ("choose", "and", "or"):
            # Whether a number is true is known before the loop, but a step wants it in a block.
            truths = 1 if name == "choose" else 2
            first = [self._block_truth(one) for one in operands[:truths]]
            result = self._operation(name, (*first, *operands[truths:]))
        elif (x := self._in_sigmoid(name, operands)) is not None:
            result = self._operation("call", (x,), SIGMOID)
        elif name in _SIGNS.values() or name in _IN_LINE or name in _TRUTH or name == "neg":
            result = self._operation(name, operands)
        else:
            # Functions read arrays; a number is written to a buffer before.
            rest = [self._block(one) for one in operands[1:]]
            result = self._operation("call", (self._block(operands[0]), *rest), name)
        if name in _TRUTH:
            self._truths.add(result)
        return result

    def _in_sigmoid(self, name: str, operands: tuple[Value, ...]) -> Value | None:
        """The x of 1 / (1 + exp(-x)); None for other operations."""
        x: Value | None = operands[-1]
        if name != "div" or not self._is_one(operands[0]):
            return None
        for inner, extra in (("add", ""), ("call", "exp"), ("neg", "")):
            operation = self.operations[x.index] if x is not None and x.kind == "step" else None
            if operation is None or (operation.name, operation.extra) != (inner, extra):
                return None
            rest = [one for one in operation.operands if inner != "add" or not self._is_one(one)]
            x = rest[0] if len(rest) == 1 else None
        return x

    def _is_one(self, value: Value) -> bool:
        return value.kind == "literal" and self.literals[value.index] == 1

    def _block(self, value: Value) -> Value:
        if value.kind in ("step", "array"):
            return value
        return self._operation("load_number", (value,))

    def _block_truth(self, value: Value) -> Value:
        return self._operation("as_truth", (value,)) if is_fixed(value) else value

    def _operation(self, name: str, operands: tuple[Value, ...], extra: str | int = "") -> Value:
        operation = Operation(name, operands, extra)
        if operation not in self._known:
            self._known[operation] = Value("step", len(self.operations))
            self.operations.append(operation)
        return self._known[operation]


def is_fixed(value: Value) -> bool:
    """Whether a value is known before the loop."""
    return value.kind in ("literal", "one", "head")
