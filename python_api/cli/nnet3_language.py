"""`opscope nnet3 components`, `xconfig-layers` and `edits`: the words of nnet3's language, and all
about one of them. The page of the language is made of the same."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

_PACKAGE = __name__.partition(".")[0]
_WIDTH = 98


@click.command()
@click.argument("type", required=False)
def components(type: str | None) -> None:
    """List the component types of nnet3 by family; with TYPE, tell all about one."""
    _echo(_listed_components() if type is None else describe_component(type))


@click.command()
@click.argument("type", required=False)
def xconfig_layers(type: str | None) -> None:
    """List the layer types of xconfigs; with TYPE, tell all about one."""
    from ...nnet3.xconfig.configs import layer_type_of, layer_types

    if type is None:
        _echo(_listed({name: layer_type_of(name).doc for name in layer_types()}))
        return
    layer = layer_type_of(type)
    _echo(_described(f"{type} name=NAME KEY=VALUE ...", layer.doc, layer.keys))


@click.command()
@click.argument("directive", required=False)
def edits(directive: str | None) -> None:
    """List the edit directives of --edits; with DIRECTIVE, tell all about one."""
    from ...nnet3.network.edits import DIRECTIVES, directive_of

    if directive is None:
        _echo(_listed({name: entry.doc for name, entry in DIRECTIVES.items()}))
        return
    entry = directive_of(directive)
    _echo(_described(f"{directive} KEY=VALUE ...", entry.doc, entry.keys))


def _echo(lines: Iterator[str]) -> None:
    for line in lines:
        click.echo(line)


def component_families() -> dict[str, list[str]]:
    """The names of all component types, installed ones too, by the module that holds them."""
    from ...nnet3.components import COMPONENTS
    from ...nnet3.components.base.component import load_plugins

    load_plugins()
    families: dict[str, list[str]] = {}
    for name, kind in sorted(COMPONENTS.items()):
        package, _, module = kind.__module__.rpartition(".")
        own = package.startswith(f"{_PACKAGE}.")
        families.setdefault(module if own else kind.__module__, []).append(name)
    return dict(sorted(families.items()))


def component_text(type: str) -> str:
    """What components of a type compute, from its class.

    Raises:
        FormatError: there is no such type; the message has the nearest names.
    """
    from ...nnet3.components import new_component

    kind = new_component(type).__class__
    return inspect.cleandoc(kind.__doc__ or "")


def key_rows(keys: Sequence[Any]) -> list[tuple[str, str, str, str]]:
    """Name, type, default and meaning of keys; `required` stands for a default that is not."""
    return [(key.shown_name, key.type, key.shown_default, key.doc) for key in keys]


def describe_component(type: str) -> Iterator[str]:
    """The lines about a type: what it computes, then each key with type, default and meaning.

    Raises:
        FormatError: there is no such type; the message has the nearest names.
    """
    from ...nnet3.components import COMPONENTS
    from ...nnet3.language.config import TYPES

    text = component_text(type)
    keys = COMPONENTS[type].keys
    yield from _described(f"component name=NAME type={type} KEY=VALUE ...", text, keys)
    for kind in sorted({key.type for key in keys} & {"ints", "columns", "offsets"}):
        yield f"{kind}: {TYPES[kind].doc}."


def _described(line: str, text: str, keys: Sequence[Any]) -> Iterator[str]:
    """A line, what it is for, and each of its keys with type, default and meaning."""
    yield line
    yield ""
    for paragraph in text.split("\n"):
        yield from textwrap.wrap(paragraph, _WIDTH, break_on_hyphens=False) or [""]
    yield ""
    rows = key_rows(keys)
    yield "Keys:" if rows else "It has no keys."
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    for name, kind, default, doc in rows:
        known = default if default == "required" else f"default {default}"
        head = f"  {name:{widths[0]}}  {kind:{widths[1]}}  "
        yield from textwrap.wrap(
            f"{known}: {doc}" if doc else known,
            _WIDTH,
            initial_indent=head,
            subsequent_indent=" " * (len(head) + 2),
            break_on_hyphens=False,
        )


def _listed_components() -> Iterator[str]:
    """The families, and a line for each type."""
    families = component_families()
    width = max(len(name) for names in families.values() for name in names)
    for family, names in families.items():
        yield family
        yield from _listed({name: component_text(name) for name in names}, width)


def _listed(texts: Mapping[str, str], width: int = 0) -> Iterator[str]:
    """A line for each name, with the beginning of its text."""
    width = max(width, *map(len, texts))
    for name, text in texts.items():
        doc = textwrap.shorten(text, _WIDTH - 4 - width, placeholder=" ...")
        yield f"  {name:{width}}  {doc}"
