"""The syntax tree of NDL, and its text form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..base.text import Location, Text
from ..config.scan import bracketed
from ..config.value import parse_double

INDENT = "    "


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A number, a name (`L1.act`), or a bare string as in `init=uniform`."""

    text: Text

    @property
    def string(self) -> str:
        return self.text.string

    @property
    def number(self) -> float | None:
        """The value of a number, None for a name."""
        return parse_double(self.text.string)

    def __str__(self) -> str:
        return quoted(self.text.string)


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """`(a, b)`, `{5, 5, 3}` or `a:b:c` in brackets."""

    text: Text
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return bracketed([str(item) for item in self.items], "{}")


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """`name=value` among the parameters of a call, or with a default in a macro's definition."""

    name: Text
    value: Expression

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """`Times(W, x)`: of a node function or a macro."""

    text: Text
    function: Text
    parameters: tuple[Expression, ...] = ()
    options: tuple[Option, ...] = ()

    def __str__(self) -> str:
        inside = [str(part) for part in (*self.parameters, *self.options)]
        return f"{self.function}{bracketed(inside)}"


Expression = Word | Array | Call


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """`name = expression`; without a name in macros of one line."""

    name: Text | None
    value: Expression

    def __str__(self) -> str:
        return f"{self.name} = {self.value}" if self.name is not None else str(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Macro:
    """`Name(a, b, c=1) { ... }`.

    Attributes:
        parameters: words, and options for those with a default.
        one_line: written `Name(a, b) = ...`: calls in it need no name.
    """

    name: Text
    parameters: tuple[Word | Option, ...]
    body: Script
    one_line: bool

    def names(self) -> list[str]:
        """The names of the parameters."""
        return [p.string if isinstance(p, Word) else p.name.string for p in self.parameters]

    def __str__(self) -> str:
        header = f"{self.name}{bracketed([str(p) for p in self.parameters])}"
        between = " = " if self.one_line else "\n"
        body = "".join(f"{INDENT}{line}\n" for line in str(self.body).splitlines())
        return f"{header}{between}{{\n{body}}}"


Statement = Assignment | Macro


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """Statements in order."""

    statements: tuple[Statement, ...] = field(default=())

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.statements)

    def __str__(self) -> str:
        return "".join(f"{statement}\n" for statement in self.statements)

    @property
    def assignments(self) -> list[Assignment]:
        return [s for s in self.statements if isinstance(s, Assignment)]

    @property
    def macros(self) -> list[Macro]:
        return [s for s in self.statements if isinstance(s, Macro)]


def place(tree: Expression | Option) -> Location | None:
    """Where an expression starts."""
    return tree.name.locate() if isinstance(tree, Option) else tree.text.locate()


def quoted(string: str) -> str:
    """A word as it has to be written: in quotes where it would otherwise be cut."""
    plain = string and not any(c in ' \t\r\n,;:*"[]{}()=#' for c in string)
    return string if plain else f'"{string}"'


def format_script(script: Script) -> str:
    """A script as text; parsing it gives the same tree."""
    return f"[\n{''.join(f'{INDENT}{line}' + chr(10) for line in str(script).splitlines())}]\n"
