"""`opscope nnet3 components`: the component types of nnet3, and all about one of them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

_PACKAGE = __name__.partition(".")[0]
_WIDTH = 98


@click.command()
@click.argument("type", required=False)
def components(type: str | None) -> None:
    """List the component types of nnet3 by family; with TYPE, tell all about one."""
    for line in _listed() if type is None else describe_component(type):
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
    yield f"component name=NAME type={type} KEY=VALUE ..."
    yield ""
    yield from text.splitlines()
    rows = key_rows(COMPONENTS[type].keys)
    yield ""
    yield "Keys:"
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
    for kind in sorted({row[1] for row in rows} & {"ints", "columns", "offsets"}):
        yield f"{kind}: {TYPES[kind]}."


def _listed() -> Iterator[str]:
    """The families, and a line for each type."""
    families = component_families()
    width = max(len(name) for names in families.values() for name in names)
    for family, names in families.items():
        yield family
        for name in names:
            told = textwrap.shorten(component_text(name), _WIDTH - 4 - width, placeholder=" ...")
            yield f"  {name:{width}}  {told}"
