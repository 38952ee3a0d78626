"""The command `ops`: operators and layers by topic, and all about one of them."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import click

_PACKAGE = __name__.partition(".")[0]
_BUILDER = "builder"
_INTERNAL = {
    "gradients": "Gradients of operators, which the backward pass appends.",
    "nnet3": "Operators of Kaldi's nnet3, and their gradients.",
    "cntk": "Operators of CNTK, and their gradients.",
}
"""Topics of what users do not call by name, which only --all lists, and their titles."""

_WIDTH = 98


class _Line(NamedTuple):
    """A line of the list: where it belongs, and what it says."""

    topic: str
    family: str
    name: str
    doc: str


@click.command()
@click.argument("name", metavar="[NAME|WORD]", required=False)
@click.option(
    "--all", "every", is_flag=True, help="Also list gradients and the operators of nnet3 and CNTK."
)
def ops(name: str | None, every: bool) -> None:
    """List the layers and operators by topic; with NAME, print all about that one.

    Layers and operators are methods of NetBuilder; optimizers and schedules are named in its
    method add_optimization. Any other WORD is searched for in the names of PyTorch, Keras, Paddle,
    CNTK, Kaldi and Vosk, and in the descriptions of layers and operators.
    """
    lines = _all_about(name) if name is not None else _listed(every)
    for line in lines:
        click.echo(line)


def _listed(every: bool) -> Iterator[str]:
    """The list: topics, families within them, a line for each operator or method."""
    topics: dict[str, dict[str, list[_Line]]] = {}
    for line in (*_methods(), *_operators()):
        if every or line.topic not in _INTERNAL:
            topics.setdefault(line.topic, {}).setdefault(line.family, []).append(line)
    names = [line.name for parts in topics.values() for lines in parts.values() for line in lines]
    width = max(map(len, names))
    own = sorted(topics.keys() - {_BUILDER, *_INTERNAL})
    for topic in (_BUILDER, *own, *(topic for topic in _INTERNAL if topic in topics)):
        yield f"{topic}: {_title(topic)}"
        for family, lines in sorted(topics[topic].items()):
            yield f"  {family}"
            for line in lines:
                doc = textwrap.shorten(line.doc, _WIDTH - 6 - width, placeholder=" ...")
                yield f"    {line.name:{width}}  {doc}"


def _methods() -> Iterator[_Line]:
    """Layers and other functions that are methods of NetBuilder."""
    from ..builder.methods import BUILDER_METHODS

    for name, function in sorted(BUILDER_METHODS.items()):
        module = function.__module__
        topic = _BUILDER if module.startswith(f"{_PACKAGE}.") else module.partition(".")[0]
        yield _Line(topic, module.rpartition(".")[2], name, _sentence(function.__doc__ or ""))


def _operators() -> Iterator[_Line]:
    """All registered operators."""
    from ...framework.ir.registry import lookup, operator_types

    for name in operator_types():
        entry = lookup(name)
        topic, family = _place(entry)
        if name.endswith("_grad") and topic not in _INTERNAL:
            family = f"{topic}.{family}"
            topic = "gradients"
        yield _Line(topic, family, name, _sentence(entry.doc))


def _place(entry: Any) -> tuple[str, str]:
    """The topic and the family of an operator, from the module that registers it."""
    path = entry.module.split(".")
    if path[0] == _PACKAGE:
        path = path[2:] if path[1:2] == ["operators"] else path[1:]
    return path[0] or "other", ".".join(path[1:]) or "operators"


def _title(topic: str) -> str:
    """What a topic holds: the first sentence of its package's text."""
    if topic in _INTERNAL:
        return _INTERNAL[topic]
    if topic == _BUILDER:
        return "Layers, and other methods of NetBuilder that are more than one operator."
    module = sys.modules.get(f"{_PACKAGE}.operators.{topic}") or sys.modules.get(topic)
    return _sentence(module.__doc__ or "" if module else "") or "Operators of another package."


def _sentence(text: str) -> str:
    """The first sentence of a text, on one line."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]


# One of them


def _all_about(name: str) -> Iterator[str]:
    """Signature and text of a layer, and of the operator of the same name; of a word that is
    neither, the names and descriptions that have it.

    Raises:
        UnknownOperatorError: nothing is found.
    """
    from ...framework.base.errors import UnknownOperatorError, nearest, spelled
    from ...framework.ir.registry import lookup, operator_types
    from ..builder import NetBuilder
    from ..builder.methods import BUILDER_METHODS
    from ..builder.typed_names import elsewhere

    own = {
        key: value
        for key, value in vars(NetBuilder).items()
        if inspect.isfunction(value) and not key.startswith("_")
    }
    methods: Mapping[str, Callable[..., Any]] = {**own, **BUILDER_METHODS}
    types = operator_types()
    name = spelled(name, {*methods, *types})
    if name not in methods and name not in types:
        found = list(_found(name))
        if found:
            yield from found
            return
        ours = elsewhere(name)
        hint = f"; write b.{ours}" if ours else nearest(name, {*methods, *types})
        raise UnknownOperatorError(f"no layer or operator {name!r}{hint}")
    if name in methods:
        yield from _method_lines(name, methods[name])
    if name in types:
        if name in methods:
            yield ""
        entry = lookup(name)
        yield from _proto_lines(entry.to_proto(), ".".join(_place(entry)))
        yield from (f"{slot} = {text}" for slot, text in entry.expressions.items())
        yield from stands_for(entry)
    if also := "; ".join(_names_elsewhere(name)):
        yield from textwrap.wrap(f"also: {also}", _WIDTH, subsequent_indent="  ")


def _found(word: str) -> Iterator[str]:
    """The names of other systems that a word finds, and the operators whose description has it."""
    from ..coming_from.rows import search

    for row in search(word):
        yield from textwrap.wrap(row.line, _WIDTH, subsequent_indent="  ")
    letters = word.casefold()
    for line in (*_methods(), *_operators()):
        if line.topic not in _INTERNAL and letters in line.doc.casefold():
            yield textwrap.shorten(f"b.{line.name}: {line.doc}", _WIDTH, placeholder=" ...")


def stands_for(entry: Any) -> Iterator[str]:
    """The operators that a composite is short for, with its slots for variables."""
    from ...framework.base.errors import OpscopeError
    from ...framework.ir.desc import make_op
    from ...framework.ir.operation import expand_op
    from ...framework.ir.printer import op_text

    if entry.expand is None:
        return
    inputs, outputs = (
        {slot.name: [slot.name] for slot in slots} for slots in (entry.inputs, entry.outputs)
    )
    try:
        plain = expand_op(make_op(entry.type, inputs, outputs))
    except OpscopeError:  # an attribute without a default decides
        return
    yield "stands for"
    yield from (f"  {op_text(op).removesuffix('  #forward')}" for op in plain)


def _names_elsewhere(name: str) -> Iterator[str]:
    """What other systems call an operator or a layer, a part for each system."""
    from ...operators.names import SYSTEMS, names_of
    from ..coming_from.rows import called_elsewhere

    for system, called in names_of(name).items():
        if system != "torch":
            yield f"{SYSTEMS[system]} {called.cell}"
    for peer, names in called_elsewhere(name).items():
        yield f"{peer} {', '.join(names)}"


def _method_lines(name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield f"{name}  (method of NetBuilder, {function.__module__})"
    yield ""
    signature = inspect.signature(function)
    _, *parameters = signature.parameters.values()
    shown = list(_parameters(parameters))
    result = signature.return_annotation
    line = f"  b.{name}({', '.join(shown)}) -> {result}"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield f"  b.{name}("
        yield from (f"      {part}," for part in shown)
        yield f"  ) -> {result}"
    yield ""
    yield from textwrap.indent(inspect.cleandoc(function.__doc__ or ""), "  ").splitlines()


def _parameters(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Parameters as they are written, annotations without quotes."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    keywords = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            keywords = True
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "*"
        given = parameter.default is not inspect.Parameter.empty
        default = f" = {parameter.default!r}" if given else ""
        star = stars.get(parameter.kind, "")
        yield f"{star}{parameter.name}: {parameter.annotation}{default}"


def _proto_lines(proto: Any, family: str) -> Iterator[str]:
    yield f"{proto.type}  ({family})"
    for paragraph in proto.doc.strip().split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, 98, initial_indent="  ", subsequent_indent="  ")
    for title, slots in (("inputs", proto.inputs), ("outputs", proto.outputs)):
        if slots:
            yield ""
            yield title
            yield from _table((slot.name, _slot_flags(slot), slot.doc) for slot in slots)
    if proto.attrs:
        yield ""
        yield "attributes"
        yield from _table((attr.name, _attr_type(attr), attr.doc) for attr in proto.attrs)
    yield ""
    yield f"gradient: {proto.gradient or 'none'}"
    if proto.source:
        yield f"source: {proto.source}"


_SLOT_FLAGS = ("duplicable", "optional", "intermediate", "shape_only")


def _slot_flags(slot: Any) -> str:
    flags = [flag.replace("_", " ") for flag in _SLOT_FLAGS if getattr(slot, flag)]
    if slot.inplace:
        flags.append(f"may be {slot.inplace}'s memory")
    return ", ".join(flags)


def _attr_type(attr: Any) -> str:
    from ...framework.ir.messages import decode_attr

    parts = [attr.type]
    if attr.choices:
        parts.append("one of " + ", ".join(attr.choices))
    if attr.HasField("minimum"):
        parts.append(f">= {attr.minimum:g}")
    if attr.HasField("maximum"):
        parts.append(f"<= {attr.maximum:g}")
    if attr.HasField("default_value"):
        value = decode_attr(attr.default_value)
        parts.append(f"default {list(value) if isinstance(value, tuple) else value!r}")
    return ", ".join(parts)


def _table(table: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    rows = list(table)
    first = max(len(row[0]) for row in rows)
    for name, facts, doc in rows:
        text = f"[{facts}] {doc}" if facts else doc
        indent = " " * (first + 4)
        head = f"  {name:{first}}  "
        yield from textwrap.wrap(text, 98, initial_indent=head, subsequent_indent=indent) or [head]
