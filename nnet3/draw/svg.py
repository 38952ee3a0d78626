"""Drawings of networks as SVG: a frame for each layer, a row for each node, arrows between."""

from __future__ import annotations

import re

from ...framework.draw.pictures import KIND_COLORS
from ...framework.draw.sugiyama import Box, place
from ...framework.draw.svg_text import columns_of, escaped
from ...framework.ir import desc
from ..language.nodes import INPUT
from .columns import Columns, Point, fit_columns
from .layers import OTHER, OUTPUT, TRAINED, Arrow, Drawing, Layer, Row

WIDTH, HEIGHT = 1590.0, 880.0
"""Pixels of a screen that a drawing is laid out for, without the frame of a browser."""

_COLORS = {
    INPUT: KIND_COLORS[desc.INPUT],
    TRAINED: KIND_COLORS[desc.PARAMETER],
    OTHER: "#ffffff",
    OUTPUT: KIND_COLORS[desc.OUTPUT],
}
_TITLES = {INPUT: "input", TRAINED: "trained", OTHER: "other", OUTPUT: "output"}
_LINE = "#667"
_BACK = "#d2691e"
_WARNING = "#c00000"
_FONT = 11.0
_CHAR = 6.63  # a monospace character of that size
_ROW = 15.0
_PAD = 6.0
_LANE = 6.0  # between arrows beside the rows of a layer
_SMALLEST = 0.7  # scale down to which a drawing shrinks to the screen's width
_EDGE = 14.0  # around the whole drawing
_MOST_CHARS = 46  # of a line that shows a descriptor
_MOST_LINES = 4
_NARROWEST = 560.0
_LEGEND_ROW = 16.0


def to_svg(drawing: Drawing, title: str) -> str:
    """An SVG document of a drawing; `title` stands above it.

    It is cut into as many columns as fit a screen best, and shrinks where a page is narrower.
    """
    frames = [_Frame(layer) for layer in drawing.layers]
    edges = [_downwards(arrow) for arrow in drawing.arrows]
    placed = place([Box(frame.width, frame.height) for frame in frames], edges)
    columns = fit_columns(placed, edges, WIDTH - 2 * _EDGE, HEIGHT - 4 * _EDGE)
    width = max(columns.width, _NARROWEST, columns_of(title) * _CHAR * 1.1) + 2 * _EDGE
    legend, top = _legend(drawing, width - 2 * _EDGE)
    height = top + columns.height + _EDGE
    scale = max(_SMALLEST, min(1.0, (WIDTH - 1) / width))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * scale:.0f}"'
        f' height="{height * scale:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans Mono, monospace"'
        f' font-size="{_FONT:.0f}" style="max-width:100%;height:auto">',
        f"<defs>{_marker('flow', _LINE)}{_marker('back', _BACK)}</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_EDGE}" y="{_EDGE + 4}" font-weight="bold">{escaped(title)}</text>',
        *legend,
        f'<g transform="translate({_EDGE} {top})">',
    ]
    for number, arrow in enumerate(drawing.arrows):
        parts += _draw_arrow(arrow, columns, number, drawing, frames)
    for frame, box in zip(frames, columns.boxes, strict=True):
        parts += frame.draw(box.x - box.width / 2, box.y - box.height / 2)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _downwards(arrow: Arrow) -> tuple[int, int]:
    """The arrow as an edge from an earlier to a later layer."""
    return min(arrow.source, arrow.target), max(arrow.source, arrow.target)


class _Frame:
    """One layer: its size, and where its rows begin within it."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.alone = len(layer.rows) == 1
        names = [self._name(row) for row in layer.rows]
        self.names = max(map(columns_of, names))
        self.whats = max(columns_of(row.what) for row in layer.rows)
        dims = max(columns_of(row.dims) for row in layer.rows)
        self.texts = [_wrapped(row.reads) for row in layer.rows]
        widest = max((columns_of(line) + 2 for lines in self.texts for line in lines), default=0)
        title = 0 if self.alone else columns_of(layer.name) + columns_of(self._size()) + 2
        text = max(self.names + self.whats + dims + 2, widest, title)
        self.lanes = _lanes(layer.inner)
        self.body = text * _CHAR + 2 * _PAD
        self.width = self.body + _LANE * (max(self.lanes, default=-1) + 2) * bool(self.lanes)
        self.tops: list[float] = []  # of each row, its descriptor included
        top = 0.0 if self.alone else _ROW + 2
        for lines in self.texts:
            self.tops.append(top)
            top += _ROW * (len(lines) + 1)
        self.height = top

    def _name(self, row: Row) -> str:
        return row.name if self.alone else row.name.removeprefix(f"{self.layer.name}.")

    def _size(self) -> str:
        return _thousands(self.layer.parameters) if self.layer.parameters else ""

    def middle(self, row: int) -> float:
        """The height at which arrows enter a row."""
        return self.tops[row] + _ROW * (len(self.texts[row]) + 0.5)

    def draw(self, x: float, y: float) -> list[str]:
        parts = []
        if not self.alone:
            title = f'<text x="{x + _PAD:.1f}" y="{y + 12:.1f}" font-weight="bold">'
            parts += [
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{self.body:.1f}" height="{_ROW + 2:.1f}"'
                f' fill="#e8ecf2"/>{title}{escaped(self.layer.name)}</text>',
                _text(x + self.body - _PAD, y + 12, self._size(), "#667", "end"),
            ]
        for row, top, lines in zip(self.layer.rows, self.tops, self.texts, strict=True):
            parts += self._draw_row(row, x, y + top, lines)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{self.body:.1f}" height="{self.height:.1f}"'
            ' rx="3" fill="none" stroke="#445"/>'
        )
        for (source, target), lane in zip(self.layer.inner, self.lanes, strict=True):
            color, tip = (_BACK, "back") if source >= target else (_LINE, "flow")
            begin = y + self.middle(source) + 3
            end = y + self.middle(target) - 3
            edge = x + self.body
            out = edge + _LANE * (lane + 2)
            parts.append(
                f'<path d="M{edge:.1f} {begin:.1f} H{out:.1f} V{end:.1f} H{edge:.1f}" fill="none"'
                f' stroke="{color}" marker-end="url(#{tip})"/>'
            )
        return parts

    def _draw_row(self, row: Row, x: float, y: float, lines: list[str]) -> list[str]:
        height = _ROW * (len(lines) + 1)
        tip = f"{row.tip}\n{row.unusual}" if row.unusual else row.tip
        parts = [
            f"<g><title>{_escaped_lines(tip)}</title>"
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{self.body:.1f}" height="{height:.1f}"'
            f' fill="{_COLORS[row.role]}" stroke="#c4c8d0" stroke-width="0.6"/>'
        ]
        for number, line in enumerate(lines):
            mark = " " if number else "◂"
            parts.append(_text(x + _PAD, y + 11, f"{mark} {line}", "#1f5f8b"))
            y += _ROW
        color = _WARNING if row.unusual else "#000"
        what = x + _PAD + (self.names + 1) * _CHAR
        parts += [
            _text(x + _PAD, y + 11, self._name(row), color),
            _text(what, y + 11, row.what, "#445"),
            _text(x + self.body - _PAD, y + 11, row.dims, "#000", "end"),
        ]
        return [*parts, "</g>"]


def _draw_arrow(
    arrow: Arrow, columns: Columns, number: int, drawing: Drawing, frames: list[_Frame]
) -> list[str]:
    layers = drawing.layers
    source, target = layers[arrow.source], layers[arrow.target]
    readers = ", ".join(target.rows[row].name for row in arrow.rows)
    tip = f"<title>{escaped(f'{source.name} to {readers}')}</title>"
    color, marker = (_BACK, "back") if arrow.back else (_LINE, "flow")
    pieces: list[tuple[Point, str]] = []  # first point, path
    for a, b in columns.curves[number]:
        middle = (a[1] + b[1]) / 2
        curve = f"C{a[0]:.1f} {middle:.1f} {b[0]:.1f} {middle:.1f} {b[0]:.1f} {b[1]:.1f}"
        pieces.append((a, curve))
    for corners in columns.elbows[number]:
        pieces.append((corners[0], " ".join(f"L{x:.1f} {y:.1f}" for x, y in corners[1:])))
    ends = [b for _, b in columns.curves[number]] + [c[-1] for c in columns.elbows[number]]
    early, late = _downwards(arrow)
    first = _at(columns.boxes[early], 1)
    last = _at(columns.boxes[late], -1)
    parts = []
    for (start, path), end in zip(pieces, ends, strict=True):
        at = ""
        if arrow.back and start == first:
            at = f' marker-start="url(#{marker})"'
        elif not arrow.back and end == last:
            at = f' marker-end="url(#{marker})"'
        parts.append(
            f'<path d="M{start[0]:.1f} {start[1]:.1f} {path}" fill="none" stroke="{color}"{at}>'
            f"{tip}</path>"
        )
    return parts + _draw_bypass(arrow, columns, number, frames, tip)


def _draw_bypass(
    arrow: Arrow, columns: Columns, number: int, frames: list[_Frame], tip: str
) -> list[str]:
    """A second arrow beside the frames to a row further down, where nothing stands between: on the
    right of two frames one above the other, or off the line that comes from the column before."""
    rows = [row for row in arrow.rows if row]
    curves, elbows = columns.curves[number], columns.elbows[number]
    if arrow.back or not rows or len(arrow.rows) == len(rows) or len(curves) + len(elbows) != 1:
        return []
    source, target = frames[arrow.source], frames[arrow.target]
    upper, lower = columns.boxes[arrow.source], columns.boxes[arrow.target]
    if source.lanes or target.lanes:
        return []
    row = lower.y - lower.height / 2 + target.middle(rows[-1])
    if elbows:
        gutter = elbows[0][2][0]
        left = lower.x - lower.width / 2
        between = [b for b in columns.boxes if gutter < b.x < left and _covers(b, row)]
        path = "" if between else f"M{gutter:.1f} {row:.1f} H{left:.1f}"
    else:
        begin = upper.y - upper.height / 2 + source.middle(len(source.tops) - 1) + 4
        rights = upper.x + upper.width / 2, lower.x + lower.width / 2
        out = max(rights) + 9.0
        path = f"M{rights[0]:.1f} {begin:.1f} H{out:.1f} V{row:.1f} H{rights[1]:.1f}"
        beside = [b for b in columns.boxes if lower.x < b.x and b.x - b.width / 2 < out + 5]
        if any(_covers(b, row) or _covers(b, begin) for b in beside):
            path = ""
    if not path:
        return []
    return [
        f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-dasharray="4 2"'
        f' marker-end="url(#flow)">{tip}</path>'
    ]


def _covers(box: Box, y: float) -> bool:
    return abs(box.y - y) < box.height / 2


def _at(box: Box, side: int) -> Point:
    """The middle of a box's upper (-1) or lower (1) edge."""
    return box.x, box.y + side * box.height / 2


def _lanes(arrows: list[tuple[int, int]]) -> list[int]:
    """A lane for each arrow beside the rows, so that arrows of a lane do not overlap."""
    taken: list[list[tuple[int, int]]] = []
    lanes = [0] * len(arrows)
    for index in sorted(range(len(arrows)), key=lambda i: abs(arrows[i][0] - arrows[i][1])):
        low = min(arrows[index])
        high = max(arrows[index])
        free = (n for n, spans in enumerate(taken) if all(high < a or low > b for a, b in spans))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        lanes[index] = lane
    return lanes


def _wrapped(parts: list[str]) -> list[str]:
    """Parts of a descriptor in a few lines; what is longer is cut (tool tips have it whole)."""
    pieces = [piece for part in parts[:-1] for piece in _summands(f"{part},")]
    pieces += _summands(parts[-1]) if parts else []
    lines: list[str] = []
    for piece in pieces:
        if lines and columns_of(lines[-1]) + columns_of(piece) < _MOST_CHARS:
            lines[-1] += f" {piece}"
        else:
            lines.append(_cut(piece))
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"… {len(parts)} parts"]
    return lines


def _summands(text: str) -> list[str]:
    first, *others = text.split(" + ")
    return [first, *(f"+ {other}" for other in others)]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def _thousands(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.0f} k" if count < 1_000_000 else f"{count / 1e6:.2f} M"


def _legend(drawing: Drawing, width: float) -> tuple[list[str], float]:
    """Colors and signs that occur in a drawing, in rows of this width; and where they end."""
    rows = [row for layer in drawing.layers for row in layer.rows]
    roles = {row.role for row in rows}
    entries = [(_COLORS[role], title) for role, title in _TITLES.items() if role in roles]
    entries += [("", note) for note in _notes(drawing, rows)]
    parts = []
    x = _EDGE
    y = 1.6 * _EDGE
    for color, text in entries:
        size = 17.0 * bool(color) + columns_of(text) * _CHAR
        if x > _EDGE and x + size > width + _EDGE:
            x = _EDGE
            y = y + _LEGEND_ROW
        if color:
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="12" height="12" fill="{color}"'
                ' stroke="#889"/>'
            )
        parts.append(_text(x + 17.0 * bool(color), y + 10, text, "#445"))
        x += size + 16
    return parts, y + 2 * _EDGE


def _notes(drawing: Drawing, rows: list[Row]) -> list[str]:
    """What the signs mean that occur."""
    text = " ".join(part for row in rows for part in (*row.reads, row.what))
    inner = any(a >= b for layer in drawing.layers for a, b in layer.inner)
    notes = {
        "a[-3,0]: frames t-3 and t of a, appended": re.search(r"\[[-\d,]+\]", text),
        "a, b: appended": any(len(row.reads) > 1 for row in rows),
        "a + b: sum": " + " in text,
        "a[t=0]: ReplaceIndex": "=" in text,
        "orange: recurrent": inner or any(arrow.back for arrow in drawing.arrows),
        "red: unusual, see its tool tip": any(row.unusual for row in rows),
    }
    return [note for note, occurs in notes.items() if occurs]


def _marker(name: str, color: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto-start-reverse">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{color}"/></marker>'
    )


def _text(x: float, y: float, text: str, color: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}"'
        f' xml:space="preserve">{escaped(text)}</text>'
    )


def _escaped_lines(text: str) -> str:
    return "\n".join(map(escaped, text.split("\n")))
