"""Fills reference/operators.md from the registry while mkdocs builds."""

from __future__ import annotations

from typing import Any

PAGE = "reference/operators.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs hook: the page's text, followed by one section for each operator."""
    if page.file.src_uri != PAGE:
        return markdown
    from opscope.framework.registry import lookup
    from opscope.python_api.op_methods import describe, method_types

    sections = [markdown]
    for name in method_types():
        sections.append(f"## {name}\n\n```text\n{describe(lookup(name))}\n```")
    return "\n\n".join(sections)
