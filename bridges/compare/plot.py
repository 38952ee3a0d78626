"""A plot of errors, layer by layer, as SVG: a bar for each layer on a logarithmic scale."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...framework.base.errors import VariableError
from ...framework.base.files.atomic import PathLike, write_atomically

_WIDTH, _NAMES, _TOP, _BOTTOM = 960, 330, 76, 30
_ROW, _THIN, _MOST_NAMED = 18, 5, 150
"""Pixels of a layer, and of one in a plot of more than `_MOST_NAMED`, where few have names."""
_FLOOR = 1e-16
_LONGEST = 46
_STYLE = """
svg{background:#fff;font:12px system-ui,sans-serif}
text{fill:#222}.f{fill:#777}.g{stroke:#ddd}.t{stroke:#b45309;stroke-dasharray:5 4}
.same{fill:#3b82a6}.differs{fill:#c2410c}.made{fill:#a8a29e}.first{font-weight:600;fill:#c2410c}
@media (prefers-color-scheme:dark){svg{background:#17191c}text{fill:#e5e5e5}.f{fill:#999}
.g{stroke:#33373d}.same{fill:#5fa8cc}.differs,.first{fill:#f97316}.made{fill:#6b6862}}
"""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>@title@</title>
<style>:root{color-scheme:light dark}body{margin:1em;font:13px system-ui,sans-serif}
svg{max-width:100%;height:auto}</style></head>
<body>@plot@<pre>@text@</pre></body></html>
"""


@dataclass(frozen=True)
class Bar:
    """A layer in a plot.

    Attributes:
        name: beside the bar. error: its length. kind: `same`, `differs` or `made`: its color.
        tip: shown when the pointer is over it. is_first: whether its name stands out.
    """

    name: str
    error: float
    kind: str
    tip: str
    is_first: bool


def write(path: PathLike, plot: str, title: str, text: str) -> None:
    """Write a plot as `.svg`, or as an `.html` page with a text below.

    Raises:
        VariableError: the path ends with something else. SaveError: it cannot be written.
    """
    name = os.fspath(path)
    ending = os.path.splitext(name)[1].lower()
    if ending not in (".svg", ".html"):
        raise VariableError(f"{name}: a plot is written as .svg or .html")
    if ending == ".html":
        parts = {"title": _text(title), "plot": plot, "text": _text(text)}
        pieces = _PAGE.split("@")
        plot = "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))
    write_atomically(name, plot.encode("utf-8", "replace"))


def svg_of(title: str, subtitle: str, rows: Sequence[Bar], tolerance: float) -> str:
    """The plot as SVG."""
    height = _ROW if len(rows) <= _MOST_NAMED else _THIN
    bottom = _TOP + height * len(rows)
    low, high = _range([*(row.error for row in rows), tolerance])
    scale = (_WIDTH - _NAMES - 70) / (high - low)

    def x_of(error: float) -> float:
        return _NAMES + (math.log10(min(max(error, 10.0**low), 10.0**high)) - low) * scale

    shown = _text(title)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}"'
        f' width="{_WIDTH}" height="{bottom + _BOTTOM}" role="img">',
        f"<title>{shown}</title><style>{_STYLE}</style>",
        f'<text x="10" y="20">{shown}</text>',
        f'<text class="f" x="10" y="38">{_text(subtitle)}</text>',
    ]
    step = max(1, (high - low) // 8)
    for power in range(low, high + 1, step):
        x = x_of(10.0**power)
        lines.append(f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{bottom}"/>')
        lines.append(
            f'<text class="f" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">1e{power}</text>'
        )
    for at, row in enumerate(rows):
        y = _TOP + at * height
        width = x_of(row.error) - _NAMES
        lines.append(
            f'<rect class="{row.kind}" x="{_NAMES}" y="{y + 1}" width="{max(width, 1.5):.1f}"'
            f' height="{height - 2}"><title>{_text(row.tip)}</title></rect>'
        )
        if height == _ROW or row.is_first:
            mark = ' class="first"' if row.is_first else ""
            name = row.name if len(row.name) <= _LONGEST else f"{row.name[: _LONGEST - 1]}…"
            lines.append(
                f'<text{mark} x="{_NAMES - 8}" y="{y + height - 5}" text-anchor="end">'
                f"{_text(name)}</text>"
            )
        if height == _ROW:
            lines.append(
                f'<text class="f" x="{_NAMES + max(width, 1.5) + 5:.1f}" y="{y + 13}">'
                f"{_number(row.error)}</text>"
            )
    if tolerance > 0:
        x = x_of(tolerance)
        lines.append(f'<line class="t" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>')
        lines.append(
            f'<text class="f" x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">tolerance'
            f" {tolerance:g}</text>"
        )
    return "\n".join([*lines, "</svg>"])


def _range(errors: Sequence[float]) -> tuple[int, int]:
    """Powers of ten that hold all errors."""
    finite = [max(error, _FLOOR) for error in errors if 0 < error < math.inf] or [_FLOOR]
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    return low - 1, max(high, low) + 1


def _number(error: float) -> str:
    return "0" if error == 0 else f"{error:.1e}" if error < math.inf else "infinite"


def _text(text: str) -> str:
    """Text of a file as text of a document, with its lines."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else " " for c in text))
