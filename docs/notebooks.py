"""Notebooks of the tutorials, made from the blocks of their pages while the site is built."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.append(str(DOCS.parent / "tests"))  # where the blocks of pages are found and run
from doc_blocks import Block, blocks  # noqa: E402

_DOORS = re.compile(r'<div class="doors".*?^</div>', re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]+)\]\((?!https?:)[^)]+\)")


@functools.cache
def tutorials() -> frozenset[str]:
    """The names of the pages that the front page leads to, without their ending."""
    doors = _DOORS.search((DOCS / "index.md").read_text(encoding="utf-8"))
    assert doors is not None
    return frozenset(re.findall(r"\]\((\w+)\.md", doors[0]))


def write(site: Path) -> None:
    """Write the notebooks of all tutorials below a site."""
    folder = site / "notebooks"
    folder.mkdir(exist_ok=True)
    for name in tutorials():
        text = json.dumps(notebook(DOCS / f"{name}.md"), indent=1, ensure_ascii=False)
        (folder / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")


def linked(html: str, name: str) -> str:
    """The text of a tutorial as HTML, with a link to its notebook below the title."""
    link = f'<a href="../notebooks/{name}.ipynb" download>This page as a notebook</a>'
    return html.replace("</h1>", f'</h1><p class="source">{link}</p>', 1)


def notebook(page: Path) -> dict[str, Any]:
    """A page as a notebook of format 4.5: its blocks as cells, with the outputs that it shows."""
    cells = list(_cells(page))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(page: Path) -> Iterator[dict[str, Any]]:
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    at = 0
    code: dict[str, Any] | None = None
    for block in blocks(page):
        yield from _prose(lines[at : block.line - 1])
        at = block.line + block.text.count("\n") + 1
        source = _source(block)
        if source is not None:
            code = _cell("code", source, execution_count=None, outputs=[])
            yield code
        elif not block.language and code is not None:
            output = {"output_type": "stream", "name": "stdout", "text": _lines(block.text)}
            code["outputs"].append(output)
        else:
            yield _cell("markdown", f"```{block.language}\n{block.text}```")
    yield from _prose(lines[at:])


def _source(block: Block) -> str | None:
    """The code of a block; None for one that is only shown."""
    if block.path:
        return None if block.before else f"%%writefile {block.path}\n{block.text}"
    if block.language == "sh":
        return f"%%sh\n{block.text}"
    return block.text if block.language == "python" else None


def _prose(lines: list[str]) -> Iterator[dict[str, Any]]:
    """Text between blocks; a notebook has neither the other pages nor their images."""
    text = _LINK.sub(r"\1", "".join(lines)).strip()
    if text:
        yield _cell("markdown", text)


def _cell(kind: str, text: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": _lines(text.rstrip()), **more}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
