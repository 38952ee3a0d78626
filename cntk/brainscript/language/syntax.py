"""The parse tree of BrainScript.

Every expression knows the place of its text (`source` and `at`, an offset), which does not count
when two trees are compared. Macros are lambdas: `F (a, b = 1) = e` is the member `F` with a
`Lambda`; `x[i:a..b] = e` is the member `x` with a `Range` over the lambda `i => e`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self, TypeVar

from ...base.text import Location, Source

_SHOWN = 8  # levels of a tree that repr shows
Node = TypeVar("Node", bound="Expression | Member")


class LibrarySource(Source):
    """The text of a file of the library; errors rather point at the user's own text."""


class CntkSource(LibrarySource):
    """The text of a file of CNTK's standard library, which is in the released language."""


@dataclass(slots=True, repr=False)
class Expression:
    """Base of all expressions."""

    source: Source = field(compare=False, repr=False)
    at: int = field(compare=False, repr=False)

    @property
    def location(self) -> Location:
        return self.source.locate(self.at)

    def __repr__(self) -> str:
        return _shown(self, _SHOWN)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return _copied(self, memo)

    def children(self) -> Iterator[Expression]:
        """The expressions directly inside."""
        for name in _fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, Expression):
                yield value
            elif isinstance(value, tuple):
                for item in value:
                    if isinstance(item, Member):
                        yield item.value
                    elif isinstance(item, Expression):
                        yield item


@dataclass(slots=True, repr=False)
class Member:
    """`name = value`: an item of a record, a named argument, or an optional parameter.

    In a record the name may have dots: `a.b.c = value` changes the member `c` of the record `a.b`.
    """

    source: Source = field(compare=False, repr=False)
    at: int = field(compare=False, repr=False)
    name: str
    value: Expression

    @property
    def location(self) -> Location:
        return self.source.locate(self.at)

    def __repr__(self) -> str:
        return _shown(self, _SHOWN)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return _copied(self, memo)


@dataclass(slots=True, repr=False)
class Number(Expression):
    value: float


@dataclass(slots=True, repr=False)
class String(Expression):
    value: str


@dataclass(slots=True, repr=False)
class Boolean(Expression):
    value: bool


@dataclass(slots=True, repr=False)
class Identifier(Expression):
    name: str


@dataclass(slots=True, repr=False)
class Record(Expression):
    """`[ a = 1 ; b = 2 ]` or, with `braces`, `{ a = 1 ; b = 2 }`."""

    members: tuple[Member, ...]
    braces: bool = field(default=False, compare=False)


@dataclass(slots=True, repr=False)
class Array(Expression):
    """`a : b : c`, or `[| a ; b |]`."""

    items: tuple[Expression, ...]


@dataclass(slots=True, repr=False)
class Range(Expression):
    """`array [first .. last] (initializer)`."""

    first: Expression
    last: Expression
    initializer: Expression


@dataclass(slots=True, repr=False)
class Lambda(Expression):
    """Positional parameters by name, optional ones with their defaults, and the body."""

    parameters: tuple[str, ...]
    optional: tuple[Member, ...]
    body: Expression


@dataclass(slots=True, repr=False)
class Apply(Expression):
    """`function (arguments, name = value)`, or with `braces` `function {...}`."""

    function: Expression
    arguments: tuple[Expression, ...]
    named: tuple[Member, ...]
    braces: bool = field(default=False, compare=False)


@dataclass(slots=True, repr=False)
class Access(Expression):
    """`record.name`; its place is where the name stands."""

    record: Expression
    name: str


@dataclass(slots=True, repr=False)
class Index(Expression):
    """`array[index]`."""

    array: Expression
    index: Expression


@dataclass(slots=True, repr=False)
class Unary(Expression):
    """`-x`, `+x` or `!x`."""

    operator: str
    operand: Expression


@dataclass(slots=True, repr=False)
class Infix(Expression):
    """`left operator right`; its place is where the operator stands."""

    operator: str
    left: Expression
    right: Expression


@dataclass(slots=True, repr=False)
class If(Expression):
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(slots=True, repr=False)
class Delete(Expression):
    """`delete` as the value of a member: the record that is changed loses the member."""


@dataclass(slots=True, repr=False)
class New(Expression):
    """`new class argument`."""

    type: str
    argument: Expression


# Infix operators by how tightly they bind. `^` is the exclusive or of booleans.
PRECEDENCE = {
    **dict.fromkeys(("*", "/", ".*", "**", "%"), 10),
    **dict.fromkeys(("+", "-", "with"), 9),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 8),
    "&&": 7,
    **dict.fromkeys(("||", "^"), 6),
    **dict.fromkeys((">>", "<<"), 5),
    ":": 4,
    "=>": 0,
}
POSTFIX = 99  # x.a, x[i], x(...), x{...}
UNARY = 90


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(spec.name for spec in fields(kind) if spec.name not in ("source", "at"))


def _shown(value: object, levels: int) -> str:
    """A tree as Python writes it, `...` for what lies deeper than so many levels."""
    if isinstance(value, tuple):
        items = [_shown(item, levels) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if not isinstance(value, (Expression, Member)):
        return repr(value)
    if not levels:
        return "..."
    parts = [f"{name}={_shown(getattr(value, name), levels - 1)}" for name in _fields(type(value))]
    return f"{type(value).__name__}({', '.join(parts)})"


def _copied(root: Node, memo: dict[int, Any]) -> Node:
    """A tree with nodes of its own, made without recursion; places of texts are shared."""
    nodes: list[Expression | Member] = []
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple):
            stack.extend(value)
        elif isinstance(value, (Expression, Member)) and id(value) not in memo:
            memo[id(value)] = object.__new__(type(value))
            nodes.append(value)
            stack.extend(getattr(value, name) for name in _fields(type(value)))
    for node in nodes:
        copy = memo[id(node)]
        copy.source = node.source
        copy.at = node.at
        for name in _fields(type(node)):
            setattr(copy, name, _in_copy(getattr(node, name), memo))
    return memo[id(root)]


def _in_copy(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple([_in_copy(item, memo) for item in value])
    return memo[id(value)] if isinstance(value, (Expression, Member)) else value


def height(root: Expression) -> int:
    """Levels of expressions, found without recursion."""
    tallest = 0
    stack = [(root, 1)]
    while stack:
        expression, level = stack.pop()
        tallest = max(tallest, level)
        stack.extend((child, level + 1) for child in expression.children())
    return tallest
