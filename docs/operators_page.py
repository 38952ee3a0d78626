"""Fills reference pages while mkdocs builds: operators by the registry, programs by their help."""

from __future__ import annotations

from typing import Any

OPERATORS = "reference/operators.md"
PROGRAMS = "reference/nnet3_programs.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs hook: the page's text, followed by one section for each operator or program."""
    if page.file.src_uri == OPERATORS:
        return _operators(markdown)
    return _programs(markdown) if page.file.src_uri == PROGRAMS else markdown


def _programs(markdown: str) -> str:
    import click

    from opscope.python_api.cli.main import kaldi_programs, main

    wanted = {*kaldi_programs(), "nnet3", "nnet3-compile", "nnet3-xconfig-to-config", "links"}
    context = click.Context(main, info_name="opscope")
    sections = [markdown]
    for name in main.list_commands(context):
        if name not in wanted:
            continue
        command = main.get_command(context, name)
        if hasattr(command, "usage"):
            text = command.usage()
        else:
            with click.Context(command, context, name) as inner:
                text = command.get_help(inner)
        sections.append(f"## {name}\n\n```text\n{text}\n```")
    return "\n\n".join(sections)


def _operators(markdown: str) -> str:
    from opscope.framework.ir.registry import lookup
    from opscope.python_api.builder.operator_methods import describe, method_types

    sections = [markdown]
    for name in method_types():
        sections.append(f"## {name}\n\n```text\n{describe(lookup(name))}\n```")
    return "\n\n".join(sections)
