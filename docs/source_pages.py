"""Links from the reference to the source, and the pages of source that the site holds."""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from opscope.framework.ir.registry import OperatorDef

ROOT = Path(__file__).resolve().parents[1]
_LINKED: set[Path] = set()
_ENTRY = re.compile(r'<h(\d) id="(opscope\.[\w.]+)" class="doc doc-heading">.*?</h\1>', re.DOTALL)
_PARTS = re.compile(r"^(#+ [^\n]+$|```\w*\n.*?^```$)", re.MULTILINE | re.DOTALL)
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{path} - opscope</title>
<meta name="viewport" content="width=device-width, initial-scale=1.0">
<link href="{up}style.css" rel="stylesheet"></head>
<body><main><h1>{path}</h1><p><a href="{up}">opscope</a></p>{code}</main></body></html>
"""


def operator_link(entry: OperatorDef) -> str:
    """The link to the registration of an operator."""
    path = ROOT / (entry.module.removeprefix("opscope.").replace(".", "/") + ".py")
    return f'<p class="source">{_link(path, _line_of(path, entry.type))}</p>'


@functools.cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _line_of(path: Path, op_type: str) -> int:
    """The line that names an operator first; 1 where a loop registers several."""
    named = re.compile(rf'"{op_type}"')
    return next((n for n, line in enumerate(_lines(path), 1) if named.search(line)), 1)


def _link(path: Path, line: int) -> str:
    """A link from a page of the folder `reference` to a line of the source."""
    _LINKED.add(path)
    name = path.relative_to(ROOT).as_posix()
    return f'Source: <a href="../../source/{name}.html#line-{line}">{name}:{line}</a>'


def linked(page: str, works: dict[str, tuple[str, str]]) -> str:
    """A page of the reference whose entries link to their source and to where they are at work."""
    return _ENTRY.sub(lambda match: match[0] + _below(match[2], works), page)


def _below(name: str, works: dict[str, tuple[str, str]]) -> str:
    found = _object(name)
    parts = []
    if inspect.ismodule(found):
        parts.append(_link(Path(str(found.__file__)), 1))
    elif inspect.isclass(found) or inspect.isfunction(found):
        parts.append(
            _link(Path(inspect.getsourcefile(found) or ""), inspect.getsourcelines(found)[1])
        )
    if (at := works.get(name.rpartition(".")[2])) and parts:
        parts.append(f'at work: <a href="../../{at[0]}">{html.escape(at[1])}</a>')
    return f'<p class="source">{"; ".join(parts)}</p>' if parts else ""


def _object(name: str) -> Any:
    """The module, class or function of an entry; None of a property or a field."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        owner, _, last = name.rpartition(".")
        return inspect.unwrap(getattr(_object(owner), last, None))


@functools.cache
def works(docs: Path) -> dict[str, tuple[str, str]]:
    """Where the code of a page, which a test runs, uses a name first: name -> address, heading."""
    found: dict[str, tuple[str, str]] = {}
    order = re.findall(r": (\w+\.md)$", (docs.parent / "mkdocs.yml").read_text(), re.MULTILINE)
    for page in (docs / name for name in order):
        title = heading = anchor = ""
        for part in re.split(_PARTS, page.read_text(encoding="utf-8")):
            if part.startswith("#"):
                heading = part.lstrip("# ").replace("`", "")
                title = title or heading
                anchor = f"#{slug(heading)}" if heading != title else ""
            elif part.startswith("```python"):
                at = f"{page.stem}/{anchor}", title if heading == title else f"{title}, {heading}"
                for name in re.findall(r"(?:\b[a-z]\w*\.|import .*?)\b(\w+)", part):
                    found.setdefault(name, at)
    return found


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def write(site: Path) -> None:
    """Write a page for each file that the reference links to."""
    formatter = HtmlFormatter(lineanchors="line", linenos=False)
    for path in sorted(_LINKED):
        name = path.relative_to(ROOT).as_posix()
        target = site / "source" / f"{name}.html"
        target.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * (name.count("/") + 1)
        code = highlight("\n".join(_lines(path)), PythonLexer(), formatter)
        # Pygments' anchors are links without a text, each a stop of the keyboard.
        code = re.sub(r'<a id="(line-\d+)"[^>]*></a>', r'<span id="\1"></span>', code)
        target.write_text(_PAGE.format(path=name, up=up, code=code), encoding="utf-8")
