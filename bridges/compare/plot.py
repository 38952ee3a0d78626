"""A plot of errors, layer by layer, as SVG: a bar for each layer on a logarithmic scale."""

from __future__ import annotations

import html
import math
import os

from ...framework.base.atomic import PathLike, write_atomically
from ...framework.base.errors import VariableError
from ...framework.base.untrusted.values import plain
from .comparison import DIFFERS, MADE_UP, SCALED, Comparison, LayerRow

_WIDTH, _NAMES, _TOP, _BOTTOM = 960, 330, 58, 30
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
<style>body{margin:1em;color-scheme:light dark;font:13px system-ui,sans-serif}
svg{max-width:100%;height:auto}</style></head>
<body>@plot@<pre>@text@</pre></body></html>
"""
_CLASSES = {DIFFERS: "differs", SCALED: "made", MADE_UP: "made"}


def write(found: Comparison, path: PathLike) -> None:
    """Write a plot as `.svg`, or as an `.html` page with the table. See `Comparison.plot`."""
    name = os.fspath(path)
    ending = os.path.splitext(name)[1].lower()
    if ending not in (".svg", ".html"):
        raise VariableError(f"{name}: a plot is written as .svg or .html")
    text = svg_of(found)
    if ending == ".html":
        title = " and ".join(_text(each) for each in found.titles)
        parts = {"title": title, "plot": text, "text": _text(str(found), whole=True)}
        pieces = _PAGE.split("@")
        text = "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))
    write_atomically(name, text.encode("utf-8", "replace"))


def svg_of(found: Comparison) -> str:
    """The plot as SVG."""
    rows, first = found.rows, found.first_divergence
    height = _ROW if len(rows) <= _MOST_NAMED else _THIN
    bottom = _TOP + height * len(rows)
    low, high = _range(found)
    scale = (_WIDTH - _NAMES - 70) / (high - low)

    def x_of(error: float) -> float:
        return _NAMES + (math.log10(min(max(error, 10.0**low), 10.0**high)) - low) * scale

    titles = " and ".join(_text(title) for title in found.titles)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}"'
        f' width="{_WIDTH}" height="{bottom + _BOTTOM}" role="img">',
        f"<title>{titles}</title><style>{_STYLE}</style>",
        f'<text x="10" y="20">{titles}</text>',
        f'<text class="f" x="10" y="38">{_text(_told(found))}</text>',
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
        kind = _CLASSES.get(row.state, "same")
        lines.append(
            f'<rect class="{kind}" x="{_NAMES}" y="{y + 1}" width="{max(width, 1.5):.1f}"'
            f' height="{height - 2}"><title>{_text(_tip(row))}</title></rect>'
        )
        if height == _ROW or row is first:
            mark = ' class="first"' if row is first else ""
            name = row.title if len(row.title) <= _LONGEST else f"{row.title[: _LONGEST - 1]}…"
            lines.append(
                f'<text{mark} x="{_NAMES - 8}" y="{y + height - 5}" text-anchor="end">'
                f"{_text(name)}</text>"
            )
        if height == _ROW:
            lines.append(
                f'<text class="f" x="{_NAMES + max(width, 1.5) + 5:.1f}" y="{y + 13}">'
                f"{_number(row.error)}</text>"
            )
    if found.tolerance > 0:
        x = x_of(found.tolerance)
        lines.append(f'<line class="t" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>')
        lines.append(
            f'<text class="f" x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">tolerance'
            f" {found.tolerance:g}</text>"
        )
    return "\n".join([*lines, "</svg>"])


def _range(found: Comparison) -> tuple[int, int]:
    """Powers of ten that hold all errors and the tolerance."""
    errors = [row.error for row in found.rows] + [found.tolerance]
    finite = [max(error, _FLOOR) for error in errors if 0 < error < math.inf] or [_FLOOR]
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    return low - 1, max(high, low) + 1


def _told(found: Comparison) -> str:
    first = found.first_divergence
    where = f"they part ways at {first.title}" if first else "no layer differs"
    grey = (
        "; grey: folded otherwise" if any(r.state in (SCALED, MADE_UP) for r in found.rows) else ""
    )
    return f"{found.inputs}; largest error of each layer; {where}{grey}"


def _tip(row: LayerRow) -> str:
    shapes = " and ".join(str(list(shape)) for shape in row.shapes)
    at = f" at {list(row.place)}: {row.values[0]:.7g}, {row.values[1]:.7g}" if row.place else ""
    return (
        f"{row.title} ({row.kind}) {shapes}; error {row.error:.3g}, mean {row.mean_error:.3g}{at}"
    )


def _number(error: float) -> str:
    return "0" if error == 0 else f"{error:.1e}" if error < math.inf else "infinite"


def _text(text: str, *, whole: bool = False) -> str:
    """Text of a file as text of a document; `whole` keeps its lines."""
    kept = text if whole else plain(text)
    return html.escape("".join(c if c.isprintable() or c == "\n" else " " for c in kept))
