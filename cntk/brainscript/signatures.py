"""The functions of the library with their parameters and comments, for the reference page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .language.printer import print_expression
from .language.syntax import Access, Expression, Identifier, Index, Lambda, Member, New, String
from .language.syntax import Record as RecordText
from .library import compiled_library

_HEADING = re.compile(r"# --- (.*)")


@dataclass(frozen=True)
class FunctionText:
    """A function or constant of the library.

    Attributes:
        topic: the heading that it stands under.
        name: with the name spaces around it.
        signatures: `name (parameters)`, one for each way to call it; the name alone of a constant.
        doc: the comment above it.
    """

    topic: str
    name: str
    signatures: tuple[str, ...]
    doc: str


def library_functions(names: tuple[str, ...]) -> Iterator[FunctionText]:
    """The functions of the library's files in the order of the text, also in name spaces;
    without those that begin with `_`."""
    members = {member.name: member.value for member, _ in compiled_library(names)}
    for member, _ in compiled_library(names):
        yield from _functions(member, "", members)


def _functions(
    member: Member, prefix: str, members: dict[str, Expression]
) -> Iterator[FunctionText]:
    if member.name.startswith("_"):
        return
    name = prefix + member.name
    value = member.value
    if isinstance(value, RecordText):
        inside = {**members, **{inner.name: inner.value for inner in value.members}}
        for inner in value.members:
            yield from _functions(inner, f"{name}.", inside)
        return
    topic, doc = _comments(member)
    signatures = tuple(_signatures(name, value, members))
    yield FunctionText(topic, name, signatures, doc or _kind_of(value))


def _kind_of(value: Expression) -> str:
    """What is said about a function that has no comment and makes one node."""
    while isinstance(value, Lambda):
        value = value.body
    if not isinstance(value, New) or value.type not in ("NodeFunction", "ComputationNode"):
        return ""
    members = value.argument.members if isinstance(value.argument, RecordText) else ()
    kind = next((m.value for m in members if m.name == "operation"), None)
    return f"A node of the kind {kind.value}." if isinstance(kind, String) else ""


def _signatures(name: str, value: Expression, members: dict[str, Expression]) -> Iterator[str]:
    if isinstance(value, Lambda):
        optional = (f"{m.name} = {print_expression(m.value)}" for m in value.optional)
        yield _call(name, [*value.parameters, *optional])
    elif isinstance(value, New) and isinstance(value.argument, RecordText):
        inside = {m.name: m.value for m in value.argument.members}
        if value.type == "NodeFunction":
            words = inside.get("parameters", inside["inputs"])
            assert isinstance(words, String)
            options = inside.get("options")
            given = options.members if isinstance(options, RecordText) else ()
            optional = (f"{m.name} = {print_expression(m.value)}" for m in given)
            yield _call(name, [*words.value.split(), *optional, 'tag = ""'])
        elif value.type == "Overload":
            for function in inside["functions"].children():
                if isinstance(function, Identifier) and function.name in members:
                    yield from _signatures(name, members[function.name], members)
    elif isinstance(value, (Identifier, Access, Index)):
        target = members.get(value.name) if isinstance(value, Identifier) else None
        if target is None or target is value:
            yield f"{name} = {print_expression(value)}"
        else:
            yield from _signatures(name, target, members)
    else:
        yield name


def _call(name: str, parameters: list[str]) -> str:
    return f"{name} ({', '.join(' '.join(p.split()) for p in parameters)})"


def _comments(member: Member) -> tuple[str, str]:
    """The heading above a member, and the comment right above it."""
    lines = member.source.text[: member.at].split("\n")[:-1]
    topic = next((m.group(1) for m in map(_HEADING.match, reversed(lines)) if m), "")
    doc: list[str] = []
    while lines and lines[-1].strip().startswith("#") and not _HEADING.match(lines[-1]):
        doc.insert(0, lines.pop().strip().lstrip("# "))
    return topic, " ".join(doc)
