"""The functions of BrainScript's library, as its files declare them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from ..brainscript.language.printer import print_expression
from ..brainscript.language.syntax import (
    Access,
    Apply,
    Array,
    Expression,
    Identifier,
    If,
    Lambda,
    Member,
    New,
    Record,
    String,
)
from ..brainscript.library import REDESIGNED, compiled_library


@dataclass(frozen=True)
class LibraryFunction:
    """A function, or a value, of the library.

    Attributes:
        name: as a network calls it: `DenseLayer`, `BS.Sequences.Gather`.
        usage: the name with its parameters and their defaults; a value has none.
        operation: of the node that it makes; empty where it makes several or none.
        doc: what its file says in front of it.
        file: `layers.bs`.
    """

    name: str
    usage: str
    operation: str
    doc: str
    file: str


@cache
def library_functions() -> dict[str, LibraryFunction]:
    """All functions of the library that files may use, by name, in the order of its files."""
    values: dict[str, Member] = {}
    for member, _ in compiled_library(REDESIGNED):
        _collect(member, "", values)
    return {
        name: LibraryFunction(
            name,
            name + _parameters(name, values),
            _operation(name, values[name].value, values),
            _comment(member),
            member.source.name.rpartition("/")[2],
        )
        for name, member in values.items()
        if not name.rpartition(".")[2].startswith("_")
    }


def _collect(member: Member, prefix: str, values: dict[str, Member]) -> None:
    name = f"{prefix}{member.name}"
    if isinstance(member.value, Record):
        for inner in member.value.members:
            _collect(inner, f"{name}.", values)
    else:
        values[name] = member


def _parameters(name: str, values: dict[str, Member]) -> str:
    member = values[name]
    value = member.value
    if isinstance(value, Identifier | Access):
        return f" = {print_expression(value)}"
    if isinstance(value, New) and value.type == "NodeFunction":
        settings = _settings(value)
        names = _string(settings, "parameters") or _string(settings, "inputs")
        options = settings.get("options")
        defaults = options.members if isinstance(options, Record) else ()
        words = [*names.split(), *map(_default, defaults), 'tag = ""']
        return f" ({', '.join(words)})"
    if isinstance(value, New) and value.type == "Overload":
        return " or".join(_parameters(name, values) for name in _overloaded(value))
    if not isinstance(value, Lambda):
        return ""
    text = member.source.text[member.at + len(member.name) :].lstrip()
    opens, closes = (" {", "}") if text.startswith("{") else (" (", ")")
    words = [*value.parameters, *map(_default, value.optional)]
    return f"{opens}{', '.join(words)}{closes}"


def _default(member: Member) -> str:
    try:
        return f"{member.name} = {print_expression(member.value)}"
    except ValueError:  # a function of several parameters has no text of its own
        return f"{member.name} = ..."


def _overloaded(value: New) -> list[str]:
    functions = _settings(value).get("functions")
    items = functions.items if isinstance(functions, Array) else ()
    return [item.name for item in items if isinstance(item, Identifier)]


def _operation(name: str, value: Expression, values: dict[str, Member]) -> str:
    """The operation of the one node that a function makes, by itself or by another function."""
    while isinstance(value, Lambda | If):
        value = value.body if isinstance(value, Lambda) else value.then
    if isinstance(value, Apply):
        if any(isinstance(argument, Apply) for argument in value.arguments):
            return ""  # these are nodes, too
        value = value.function
    if isinstance(value, New):
        if value.type == "Overload":
            first = _overloaded(value)[0]
            return _operation(first, values[first].value, values)
        is_node = value.type in ("NodeFunction", "ComputationNode")
        return _string(_settings(value), "operation") if is_node else ""
    if not isinstance(value, Identifier | Access):
        return ""
    within = name.rpartition(".")[0]
    called = print_expression(value)
    for full in (f"{within}.{called}", called):
        if full in values and full != name:
            return _operation(full, values[full].value, values)
    return ""


def _settings(value: New) -> dict[str, Expression]:
    argument = value.argument
    members = argument.members if isinstance(argument, Record) else ()
    return {member.name: member.value for member in members}


def _string(settings: dict[str, Expression], name: str) -> str:
    value = settings.get(name)
    if isinstance(value, If):  # Input is sparse where its option says so
        value = value.otherwise
    return value.value if isinstance(value, String) else ""


def _comment(member: Member) -> str:
    """The lines of comment directly above a member."""
    line = member.location.line
    source = member.source
    above = (source.line(number).strip() for number in range(line - 1, 0, -1))
    lines = [text.lstrip("# ") for text in takewhile(lambda text: text.startswith("#"), above)]
    text = " ".join(reversed(lines))
    return "" if text.startswith("---") or text.startswith("Functions that make") else text


__all__ = ["LibraryFunction", "library_functions"]
