"""Fills reference pages while mkdocs builds, from what the package says of itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

EXPLAINED = {
    "NetDesc": "A net as a protobuf message; [the saved format](../format.md).",
    "OpDesc": "An operator of a `NetDesc`: type, slots, attributes, role, source line.",
    "VarDesc": "A variable of a `NetDesc`: name, dtype, dimensions, kind, initialiser.",
    "cntk": "CNTK's configs, networks, readers; see the section CNTK.",
    "framework": "Scopes, nets, operators' registry, files; see the pages below.",
    "metrics": "Metrics that are counted over a whole pass; see [training](training.md).",
    "nnet3": "Kaldi's networks; see [nnet3](nnet3.md).",
    "operators": "The operators; see [their page](operators.md).",
    "proto": "`net.proto` and what is generated from it.",
    "python_api": "NetBuilder, training, generation, the command line.",
}
"""Names of the face without a docstring of their own that tells enough, and without an entry."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs hook: the page's text, followed by what is generated for it."""
    fill = FILLED.get(page.file.src_uri)
    return "\n\n".join([markdown, *fill()]) if fill else markdown


def _face() -> Iterator[str]:
    """A row for each public name of `opscope`, with a link to its entry."""
    import opscope

    rows = ["| name | |", "|---|---|"]
    for name in sorted(opscope.__all__, key=str.lower):
        if name in EXPLAINED:
            rows.append(f"| `{name}` | {EXPLAINED[name]} |")
            continue
        found = getattr(opscope, name)
        module = inspect.ismodule(found)
        target = found.__name__ if module else f"{found.__module__}.{found.__qualname__}"
        rows.append(f"| [`{name}`][{target}] | {_sentence(found)} |")
    yield "\n".join(rows)


def _builder() -> Iterator[str]:
    """An entry for each function that is a method of NetBuilder, by the module it is written in."""
    from opscope.python_api.builder.methods import BUILDER_METHODS

    modules: dict[str, list[str]] = {}
    for name, function in sorted(BUILDER_METHODS.items()):
        modules.setdefault(function.__module__, []).append(name)
    for module, names in sorted(modules.items(), key=lambda entry: entry[0].rpartition(".")[2]):
        title = module.rpartition(".")[2].replace("_", " ").capitalize()
        yield f"## {title}"
        yield from (f"::: {module}.{name}" for name in names)


def _switches() -> Iterator[str]:
    """A row for each environment switch."""
    from opscope.framework.base.settings import SWITCHES

    rows = ["| variable | default | values | what it does |", "|---|---|---|---|"]
    for switch in SWITCHES.values():
        values = ", ".join(f"`{choice}`" for choice in switch.choices) or "text"
        default = f"`{switch.default}`" if switch.default else "empty"
        rows.append(f"| `{switch.name}` | {default} | {values} | {switch.doc} |")
    yield "\n".join(rows)


def _initialisers() -> Iterator[str]:
    """A row for each initialiser that has a name, and the operators that fill besides."""
    from opscope.framework.ir.registry import operator_types
    from opscope.python_api.builder.initializers import INITIALIZERS

    rows = ["| name | operator | attributes |", "|---|---|---|"]
    for name, (operator, attrs) in INITIALIZERS.items():
        told = ", ".join(f"{key}={value!r}" for key, value in attrs.items())
        rows.append(f'| `"{name}"` | `{operator}` | {told} |')
    yield "\n".join(rows)
    fillers = [name for name in operator_types() if name.endswith("_random")]
    yield "Operators that fill: " + ", ".join(f"`{name}`" for name in fillers) + "."


def _programs() -> Iterator[str]:
    """The help of each program of Kaldi's."""
    import click

    from opscope.python_api.cli.main import kaldi_programs, main

    wanted = {*kaldi_programs(), "nnet3", "nnet3-compile", "nnet3-xconfig-to-config", "links"}
    context = click.Context(main, info_name="opscope")
    for name in main.list_commands(context):
        if name not in wanted:
            continue
        command = main.get_command(context, name)
        if hasattr(command, "usage"):
            text = command.usage()
        else:
            with click.Context(command, context, name) as inner:
                text = command.get_help(inner)
        yield f"## {name}\n\n```text\n{text}\n```"


def _operators() -> Iterator[str]:
    """The operators that are methods of NetBuilder, by topic; then optimizers and schedules."""
    from opscope.framework.ir.registry import lookup, operator_types
    from opscope.python_api.builder.operator_methods import describe, method_types

    updates = [name for name in operator_types() if lookup(name).module.startswith(_OPTIM)]
    topics: dict[str, list[str]] = {}
    for name in (*method_types(), *updates):
        module = lookup(name).module
        topic = module.removeprefix(_OPERATORS).partition(".")[0]
        if module.startswith(_OPERATORS) and name not in topics.setdefault(topic, []):
            topics[topic].append(name)
    for topic, names in sorted(topics.items()):
        yield f"## {topic}"
        for name in names:
            yield f"### {name}\n\n```text\n{describe(lookup(name))}\n```"


_OPERATORS = "opscope.operators."
_OPTIM = f"{_OPERATORS}optim."

FILLED: dict[str, Callable[[], Iterator[str]]] = {
    "reference/builder.md": _builder,
    "reference/face.md": _face,
    "reference/switches.md": _switches,
    "reference/initialisers.md": _initialisers,
    "reference/nnet3_programs.md": _programs,
    "reference/operators.md": _operators,
}
"""The pages that are filled, and by what."""


def _sentence(found: object) -> str:
    """The first sentence of a docstring, as a cell of a table."""
    text = " ".join((inspect.getdoc(found) or "").split())
    return re.split(r"(?<=\.)\s", text)[0].replace("|", "\\|")
