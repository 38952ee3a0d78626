"""Names of NDL while a script is evaluated: their values, and the calls that led to them.

Also the values of parameters that are no nodes: numbers, strings, arrays, and options.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...framework.base.errors import AttributeTypeError, CycleError, nearest
from ..base.text import Location, located
from ..network.nodes.node import NdlFunction, Node
from .numbering import Numbers
from .syntax import Array, Call, Expression, Macro, Word, place

LONGEST = 150  # names in a chain of definitions


@dataclass(eq=False)
class Instance:
    """A call that was evaluated: a node, or a macro with the scope of its body.

    Attributes:
        name: the dot path.
        scope: of the call.
        node: of a node function; of a macro, the node that it returns, known once it is connected.
        inner: the names inside a macro.
    """

    name: str
    call: Call
    scope: Scope
    node: Node | None = None
    inner: Scope | None = None


@dataclass(frozen=True, eq=False)
class Symbol:
    """A name and its expression, which is evaluated in `scope`."""

    name: str
    value: Expression
    scope: Scope
    location: Location | None


@dataclass(eq=False)
class Scope:
    """The names of a script or of one call of a macro.

    Attributes:
        base: the dot path in front of the names of its nodes.
        symbols: by lower-case name.
        instances: the calls evaluated so far, by their expression.
        names, numbers: of the calls in it.
        last: the call of its last statement.
        macro: the macro whose body this is.
        caller: the scope of the call, and `called_at` its place.
    """

    base: str = ""
    symbols: dict[str, Symbol] = field(default_factory=dict)
    instances: dict[Call, Instance] = field(default_factory=dict)
    names: dict[Call, str] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    last: Call | None = None
    macro: Macro | None = None
    caller: Scope | None = None
    called_at: Location | None = None

    def path(self, name: str) -> str:
        """The dot path of a name of this scope."""
        return f"{self.base}.{name}" if self.base else name

    def callers(self) -> Iterator[Scope]:
        """This scope and those it was called from."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.caller

    def chain(self) -> list[tuple[str, Location | None]]:
        """The macro calls that led here, innermost first, as errors show them."""
        return [
            (f"in macro {scope.macro.name}, called at", scope.called_at)
            for scope in self.callers()
            if scope.macro is not None
        ]

    def find(self, name: str, followed: dict[Symbol, None] | None = None) -> Symbol | None:
        """The symbol of a name or of a dot path; None where there is none (yet)."""
        symbol = self.symbols.get(name.lower())
        if symbol is not None:
            return symbol
        head, dot, rest = name.partition(".")
        symbol = self.symbols.get(head.lower())
        if not dot or symbol is None:
            return None
        followed = {} if followed is None else followed
        _note(symbol, followed)
        reduced = _reduce(symbol.value, symbol.scope, followed)
        if isinstance(reduced, Instance) and reduced.inner is not None:
            return reduced.inner.find(rest, followed)
        return None


# An instance for a call; None for a call that is not evaluated yet; otherwise a number, an array,
# or an undefined word, with the scope of the word.
Value = Instance | tuple[Word | Array, Scope] | None


def reduce(expression: Expression, scope: Scope) -> Value:
    """The value of an expression after following its names.

    Raises:
        CycleError: names are defined by each other.
    """
    return _reduce(expression, scope, {})


def _reduce(expression: Expression, scope: Scope, followed: dict[Symbol, None]) -> Value:
    # A loop, as evaluation is deep in calls already where many macros lie inside one another.
    while isinstance(expression, Word) and expression.number is None:
        symbol = scope.find(expression.string, followed)
        if symbol is None:
            return expression, scope
        _note(symbol, followed)
        expression, scope = symbol.value, symbol.scope
    return scope.instances.get(expression) if isinstance(expression, Call) else (expression, scope)


def _note(symbol: Symbol, followed: dict[Symbol, None]) -> None:
    """Add a symbol to those that lead from name to name."""
    if symbol in followed:
        circle = list(followed)
        names = " -> ".join(s.name for s in [*circle[circle.index(symbol) :], symbol])
        raise located(
            CycleError,
            f"names that stand for each other: {names}",
            symbol.location,
            symbol.scope.chain(),
        )
    if isinstance(symbol.value, Word):
        followed[symbol] = None
        if len(followed) > LONGEST:
            raise located(CycleError, f"more than {LONGEST} names in a row", symbol.location)


def number_of(value: Value) -> float | None:
    """The number that a value is, if it is one."""
    if isinstance(value, tuple) and isinstance(value[0], Word):
        return value[0].number
    return None


def plain(value: Value, parameter: Expression, scope: Scope) -> Any:
    """A parameter as a number, a string, or a list of them.

    Raises:
        AttributeTypeError: it is a node.
    """
    if value is None or isinstance(value, Instance):
        raise located(
            AttributeTypeError,
            f"Scalar expected, '{parameter}' must be a constant or variable that resolves to a "
            "constant",
            place(parameter),
            scope.chain(),
        )
    constant, where = value
    if isinstance(constant, Array):
        return [plain(reduce(item, where), item, where) for item in constant.items]
    number = constant.number
    if number is None:
        return constant.string
    return int(number) if number == number // 1 and abs(number) < 2**63 else number


def read_options(
    call: Call, function: NdlFunction, scope: Scope, warnings: list[str]
) -> dict[str, Any]:
    """The options of a call, without `tag`. Options that the function does not have are ignored,
    as in CNTK, with a warning in `warnings`; so is a minus sign right after the bracket.

    Raises:
        AttributeTypeError: a value is of the wrong type.
    """
    names = {name.lower(): name for name in function.options}
    options = {}
    given = call.text.string[len(call.function.string) :].lstrip()
    if given.startswith("(-"):
        message = (
            f"CNTK takes a '-' right after a bracket for a separator of parameters: '{given[1:40]}"
            f" is read without it; an option, as in value=-1, keeps its sign"
        )
        warnings.append(str(located(AttributeTypeError, message, place(call), scope.chain())))
    for option in call.options:
        name = names.get(option.name.string.lower())
        if name is not None:
            value = plain(reduce(option.value, scope), option.value, scope)
            try:
                options[name] = function.options[name].convert(value)
            except ValueError as error:
                message = f"{function.name}: {option.name}: {error}"
                raise located(AttributeTypeError, message, place(option), scope.chain()) from None
        elif option.name.string.lower() != "tag":
            message = (
                f"{function.name} has no option {option.name}, it is ignored"
                f"{nearest(option.name.string, [*names.values(), 'tag'])}"
            )
            warnings.append(str(located(AttributeTypeError, message, place(option), scope.chain())))
    return options
