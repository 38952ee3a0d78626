"""A profile as a flame graph: an SVG whose widths are times.

Source: B. Gregg, "The Flame Graph", Communications of the ACM 59 (6), 2016.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..view.texts import seconds_text
from .timed import Timed

_WIDTH, _HEIGHT, _MARGIN = 1000.0, 18.0, 24.0
_NARROWEST = 0.4  # pixels: what is narrower is left out
_CHAR = 6.3  # pixels of a letter
_COLORS = ("#e4a15a", "#d98c5f", "#c9b458", "#8fb56a", "#6aa5b5", "#7f93c9", "#b583bd", "#cf7f92")


@dataclass
class _Part:
    """A group, or a row: its seconds with all that is in it."""

    name: str
    seconds: float = 0.0
    parts: dict[str, _Part] = field(default_factory=dict)

    def part(self, name: str) -> _Part:
        return self.parts.setdefault(name, _Part(name))


def flame_graph(title: str, what: str, rows: Iterable[Timed]) -> str:
    """The SVG text. Rows of one group lie above it, ordered by their first operator."""
    whole = _Part(title)
    levels = 1
    for row in rows:
        levels = max(levels, len(row.path) + 2)
        part = whole
        whole.seconds = whole.seconds + row.seconds
        for name in (*row.path, f"{row.name or row.kind} ({row.kind})"):
            part = part.part(name)
            part.seconds += row.seconds
    height = levels * _HEIGHT + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}"'
        f' width="{_WIDTH:g}" height="{height:g}" font-family="sans-serif" font-size="11">',
        f'<text x="4" y="15" fill="#888">{html.escape(what)}</text>',
    ]
    waiting = [_Place(whole, 0.0, height - _HEIGHT, 0)]
    while waiting:
        waiting += reversed(_draw(lines, waiting.pop(), whole.seconds or 1.0))
    return "\n".join([*lines, "</svg>"]) + "\n"


class _Place(NamedTuple):
    """A part, and where it is drawn."""

    part: _Part
    left: float
    top: float
    color: int


def _draw(lines: list[str], place: _Place, whole: float) -> list[_Place]:
    """Draw a part; what is in it lies above it, from left to right."""
    part, left, top, color = place
    width = part.seconds / whole * _WIDTH
    if width < _NARROWEST:
        return []
    title = f"{part.name}: {seconds_text(part.seconds)}, {part.seconds / whole:.1%}"
    fitting = int((width - 6) / _CHAR)
    shown = part.name if len(part.name) <= fitting else part.name[: max(fitting - 1, 0)] + "…"
    lines.append(
        f"<g><title>{html.escape(title)}</title>"
        f'<rect x="{left:.2f}" y="{top:g}" width="{width:.2f}" height="{_HEIGHT - 1:g}"'
        f' fill="{_COLORS[color % len(_COLORS)]}" rx="1"/>'
    )
    if fitting > 2:
        at = f'x="{left + 3:.2f}" y="{top + 13:g}"'
        lines.append(f'<text {at} fill="#222">{html.escape(shown)}</text>')
    lines.append("</g>")
    above = []
    for number, inner in enumerate(part.parts.values(), 1):
        above.append(_Place(inner, left, top - _HEIGHT, color + number))
        left += inner.seconds / whole * _WIDTH
    return above
