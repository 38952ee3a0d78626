"""Texts about the kinds of nodes, for `opscope cntk nodes` and the reference."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import NamedTuple

from ...framework.base.errors import UnknownOperatorError, nearest
from ...framework.ir.registry import operator_types
from ..lower.table import TABLE
from ..network.catalog import kind as find_kind
from ..network.catalog import load_plugins, ndl_function
from ..network.nodes.attributes import REQUIRED, AttributeSpec
from ..network.nodes.kind import KINDS
from ..network.nodes.node import Kind, NdlFunction
from .library import LibraryFunction, library_functions

_PACKAGE = __name__.partition(".")[0]
_WIDTH = 98


class Row(NamedTuple):
    """An attribute or an option in texts."""

    name: str
    type: str
    default: str
    doc: str


def node_families() -> dict[str, list[Kind]]:
    """All kinds, plugged-in ones too, by the module that computes them."""
    load_plugins()
    families: dict[str, list[Kind]] = {}
    for kind in sorted(dict.fromkeys(KINDS.values()), key=lambda one: one.operation.lower()):
        families.setdefault(_family(kind), []).append(kind)
    return dict(sorted(families.items()))


def find(name: str) -> Kind | LibraryFunction:
    """The kind of an operation, of an older name of one, or of a function of NDL or BrainScript;
    the function itself where it makes more than a node.

    Raises:
        UnknownOperatorError: there is none; with the nearest names.
    """
    load_plugins()
    if name in KINDS:
        return KINDS[name]
    function = ndl_function(name)
    if function is not None:
        return find_kind(function.operation)
    library = library_functions()
    if name in library:
        return KINDS.get(library[name].operation) or library[name]
    raise UnknownOperatorError(
        f"no operation or function is called {name!r}{nearest(name, {*KINDS, *library})}"
    )


def head_of(kind: Kind) -> str:
    """The operation with its inputs: `Times (left, right)`."""
    return f"{kind.operation} ({', '.join(kind.reads)})"


def attribute_rows(kind: Kind) -> list[Row]:
    """The attributes of a kind."""
    return [_row(name, spec) for name, spec in kind.attributes.items()]


def option_rows(kind: Kind, function: NdlFunction) -> list[Row]:
    """The options of a function of NDL; one that is an attribute has its words."""
    rows = []
    for name, spec in function.options.items():
        row = _row(name, spec)
        own = kind.attributes.get(name)
        rows.append(row if row.doc or own is None else row._replace(doc=own.doc))
    return rows


def ndl_usage(function: NdlFunction) -> str:
    """How NDL calls a function."""
    inputs = KINDS[function.operation].reads
    return function.usage or f"{function.name}({', '.join(inputs)})"


def brainscript_usages(operation: str) -> list[str]:
    """How BrainScript calls the functions that make a node of an operation."""
    kind = KINDS[operation]
    functions = library_functions().values()
    return [f.usage for f in functions if KINDS.get(f.operation) is kind]


def operators_of(operation: str) -> list[str]:
    """The operators that nodes of an operation become, as the function that lowers them names
    them, including operators of parts that it shares with others."""
    function = TABLE.get(operation)
    words: set[str] = set()
    if function is not None:
        _named(function, operation, words, set())
    return sorted(words & set(operator_types()))


def describe_name(name: str) -> Iterator[str]:
    """The lines about a name: what the kind computes, its names, its attributes and options.

    Raises:
        UnknownOperatorError: nothing has this name; with the nearest names.
    """
    named = find(name)
    return _function_lines(named) if isinstance(named, LibraryFunction) else _kind_lines(named)


def _function_lines(function: LibraryFunction) -> Iterator[str]:
    yield from _wrapped(function.usage, "  ")
    yield ""
    where = f"BrainScript's library, in {function.file}"
    text = f"A function of {where}, that makes several nodes or none. {function.doc}"
    yield from _wrapped(text, "")


def _kind_lines(kind: Kind) -> Iterator[str]:
    yield head_of(kind)
    yield ""
    yield from textwrap.wrap(kind.doc or "It has no words of its own.", _WIDTH)
    yield ""
    if kind.aliases:
        yield f"Older names: {', '.join(kind.aliases)}"
    for function in kind.ndl:
        usage = ndl_usage(function)
        others = [name for name in function.names if not usage.startswith(f"{name}(")]
        also = f"   also {', '.join(others)}" if others else ""
        yield from _wrapped(f"NDL: {usage}{also}", "  ")
    for usage in brainscript_usages(kind.operation):
        yield from _wrapped(f"BrainScript: {usage}", "  ")
    operators = operators_of(kind.operation)
    if operators:
        yield from _wrapped(f"Operators: {', '.join(operators)}", "  ")
    if kind.attributes:
        yield ""
        yield "Attributes:"
        yield from _table(attribute_rows(kind))
    for function in kind.ndl:
        rows = option_rows(kind, function)
        if rows:
            yield ""
            yield f"Options of {function.name} in NDL:"
            yield from _table(rows)


def _row(name: str, spec: AttributeSpec) -> Row:
    kinds = " or ".join(spec.choices) if spec.choices else spec.type
    return Row(name, kinds, _shown(spec.default), spec.doc)


def _shown(value: object) -> str:
    if value is REQUIRED:
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ":".join(map(_shown, value)) or "none"
    return str(value) if value not in ("", None) else "none"


def _family(kind: Kind) -> str:
    """The module of `lower/kinds` that computes a kind, or another package's module."""
    function = TABLE.get(kind.operation)
    module = kind.rule.__module__ if function is None else function.__module__
    own = module.startswith(f"{_PACKAGE}.")
    return module.rpartition(".")[2] if own else module


def list_kinds() -> Iterator[str]:
    """The families, and a line for each kind."""
    families = node_families()
    width = max(len(kind.operation) for kinds in families.values() for kind in kinds)
    for family, kinds in families.items():
        yield family
        for kind in kinds:
            doc = textwrap.shorten(kind.doc, _WIDTH - 4 - width, placeholder=" ...")
            yield f"  {kind.operation:{width}}  {doc}"


def _table(rows: list[Row]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, type_, default, doc in rows:
        known = default if default == "required" else f"default {default}"
        head = f"  {name:{widths[0]}}  {type_:{widths[1]}}  "
        yield from _wrapped(f"{head}{known}{': ' if doc else ''}{doc}", " " * (len(head) + 2))


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _named(function: FunctionType, operation: str, words: set[str], seen: set[object]) -> None:
    """Collect the strings in a function and in the functions of its module that it calls; from a
    table by operation only this operation's entry."""
    if function in seen:
        return
    seen.add(function)
    for code in _codes(function.__code__):
        words.update(text for text in code.co_consts if isinstance(text, str))
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, Mapping):
                if operation in value:
                    chosen = [value[operation]]
                else:  # of other operations, or by something else than an operation
                    chosen = [] if value.keys() <= KINDS.keys() else list(value.values())
                words.update(text for text in chosen if isinstance(text, str))
            elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
                _named(value, operation, words, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
