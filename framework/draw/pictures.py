"""Pictures of nets: Graphviz text, and SVG drawn without Graphviz.

Forward, backward and update operators have a panel each, in a color of its own. A variable
that comes from another panel (dashed), or that many operators read, is drawn at each of these
places, so that no line has to cross the whole picture; in the last panel every given one is.
One that is overwritten has a box for each value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...proto import net_pb2 as pb
from ..ir.desc import (
    BACKWARD,
    FORWARD,
    INPUT,
    KIND_NAMES,
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
)
from ..ir.messages import as_op_list
from ..ir.names import EMPTY
from ..ir.op_list import OpList, OpNode
from ..ir.printer import op_text, step_lines, type_text, var_text
from .sugiyama import Box, Placement, place
from .svg_text import columns_of, escaped

ROLE_COLORS = {FORWARD: "#9ecae8", BACKWARD: "#f6bd8b", OPTIMIZE: "#a6d8a0"}
ROLE_TITLES = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZE: "optimizer"}
KIND_COLORS = {
    TEMPORARY: "#ffffff",
    INPUT: "#fff3b0",
    PARAMETER: "#dccdf0",
    STATE: "#e4e4e4",
    OUTPUT: "#f8c8d0",
}
_GIVEN = (INPUT, PARAMETER, STATE)
_FONT = 12.0
_CHAR = 7.4  # a monospace character of that size; the widest common font has 0.61 em
_LINE = 15.0
_PAD = 8.0
_MAX_CHARS = 34
_GAP = 36.0
_SHELF = 1100.0  # components of one panel are packed in rows about this wide
_SHARED = 4  # a value with this many readers gets a box for each of them


@dataclass
class _Node:
    lines: list[str]
    color: str
    operator: bool
    tip: str
    dashed: bool = False


@dataclass
class _Panel:
    """The operators of one role with the variables around them; nodes come in drawing order."""

    title: str
    nodes: list[_Node] = field(default_factory=list)
    edges: list[tuple[int, int, str]] = field(default_factory=list)  # from, to, slot


def to_dot(desc: OpList | pb.NetDesc) -> str:
    """The net in Graphviz's language, one cluster a panel."""
    net = as_op_list(desc)
    lines = [
        f"digraph {_quote(net.name or 'net')} {{",
        '  node [fontname="monospace", fontsize=10, style=filled];',
        '  edge [fontname="monospace", fontsize=8];',
    ]
    for number, panel in enumerate(_panels(net)):
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f"    label={_quote(panel.title)};")
        for index, node in enumerate(panel.nodes):
            shape = "box" if node.operator else "ellipse"
            style = "filled,dashed" if node.dashed else "filled"
            lines.append(
                f"    n{number}_{index} [label={_quote(chr(10).join(node.lines))}, shape={shape},"
                f' fillcolor="{node.color}", style="{style}"];'
            )
        for start, end, slot in panel.edges:
            lines.append(f"    n{number}_{start} -> n{number}_{end} [label={_quote(slot)}];")
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def to_svg(desc: OpList | pb.NetDesc, smallest: float = 1.0) -> str:
    """The net as an SVG document: the panels side by side, step nets and nested nets below.

    Args:
        smallest: scale down to which the picture shrinks where a page is too narrow for it.
    """
    parts: list[str] = []
    top = _GAP * 2
    width = 400.0
    for row in _rows(as_op_list(desc)):
        left = _GAP
        height = 0.0
        for panel in row:
            body, size = _draw_panel(panel, left, top)
            parts += body
            left += max(size[0], len(panel.title) * _CHAR) + _GAP * 1.5
            height = max(height, size[1])
        width = max(width, left)
        top += height + _GAP * 1.5
    legend = _legend(_GAP, _GAP * 0.6)
    width = max(width, 820.0)
    shrinks = f' style="max-width:100%;min-width:{width * smallest:.0f}px;height:auto"'
    return (
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}"'
                f' viewBox="0 0 {width:.0f} {top:.0f}" font-family="DejaVu Sans Mono, monospace"'
                f' font-size="{_FONT:.0f}"{shrinks if smallest < 1 else ""}>',
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
                ' markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker>'
                "</defs>",
                f'<rect width="{width:.0f}" height="{top:.0f}" fill="#ffffff"/>',
                *legend,
                *parts,
                "</svg>",
            ]
        )
        + "\n"
    )


# -- what is drawn -----------------------------------------------------------------------------


def _panels(net: OpList) -> Iterator[_Panel]:
    for row in _rows(net):
        yield from row


def _rows(desc: OpList, title: str = "") -> Iterator[list[_Panel]]:
    """The panels of a net, then the panels of the nets inside it."""
    title = title or f"net {desc.name or '?'}"
    roles = sorted({op.role for op in desc.ops}) or [FORWARD]
    yield [_panel(desc, role, f"{title}: {ROLE_TITLES.get(role, role)}") for role in roles]
    for number, step in enumerate(desc.steps):
        links = "; ".join(step_lines(step))
        yield from _rows(step.net, f"step net {step.net.name or number} ({links})")
        if step.child_net is not None:
            yield from _rows(step.child_net, f"child net of step net {step.net.name or number}")
    for index, op in enumerate(desc.ops):
        for name, inner in op.inner_nets():
            yield from _rows(inner, f"{name} of op {index} ({op.type})")


def _panel(desc: OpList, role: int, title: str) -> _Panel:
    panel = _Panel(title)
    variables = {var.name: var for var in desc.vars}
    members = [(index, op) for index, op in enumerate(desc.ops) if op.role == role]
    written = {name for op in desc.ops if op.role != role for name in op.output_names()}
    shared = _shared_values(op for _, op in members)
    version: dict[str, int] = {}
    now: dict[str, int] = {}  # variable -> node of its present value

    def variable(name: str, source: bool) -> int:
        var = variables.get(name)
        kind = var.kind if var is not None else TEMPORARY
        lines = [name]
        tip = name
        if var is not None:
            tip = var_text(var)
            if var.shape is not None:
                lines.append(type_text(var))
        node = _Node(
            [_short(line) for line in lines],
            KIND_COLORS.get(kind, "#ffffff"),
            operator=False,
            tip=tip,
            dashed=source and name in written and kind not in _GIVEN,
        )
        panel.nodes.append(node)
        return len(panel.nodes) - 1

    for index, op in members:
        sources: dict[str, int] = {}
        for name in dict.fromkeys(op.input_names()):
            value = (name, version.get(name, 0))
            # An update reads its parameters, rate and gradients alone: lines between updates would
            # say nothing.
            alone = value in shared or (role == OPTIMIZE and not value[1])
            sources[name] = variable(name, True) if alone or name not in now else now[name]
            if not alone:
                now[name] = sources[name]
        node = _Node(
            [_short(f"%{index} {op.type}")], ROLE_COLORS.get(role, "#cccccc"), True, op_text(op)
        )
        panel.nodes.append(node)
        me = len(panel.nodes) - 1
        for slot, names in op.inputs.items():
            panel.edges += [(sources[name], me, slot) for name in names if name != EMPTY]
        for slot, names in op.outputs.items():
            for name in names:
                if name != EMPTY:
                    now[name] = variable(name, False)
                    version[name] = version.get(name, 0) + 1
                    written.add(name)
                    panel.edges.append((me, now[name], slot))
    return panel


def _shared_values(ops: Iterable[OpNode]) -> set[tuple[str, int]]:
    """Values (variable, version) with so many readers that lines to all of them would be a knot."""
    version: dict[str, int] = {}
    readers: dict[tuple[str, int], int] = {}
    for op in ops:
        for name in set(op.input_names()):
            value = (name, version.get(name, 0))
            readers[value] = readers.get(value, 0) + 1
        for name in op.output_names():
            version[name] = version.get(name, 0) + 1
    return {value for value, count in readers.items() if count >= _SHARED}


# -- SVG ---------------------------------------------------------------------------------------


def _draw_panel(panel: _Panel, left: float, top: float) -> tuple[list[str], tuple[float, float]]:
    parts = [
        f'<text x="{left:.1f}" y="{top + _FONT:.1f}" font-weight="bold">'
        f"{escaped(panel.title)}</text>"
    ]
    top += _GAP
    x, y, row_height, widest = 0.0, 0.0, 0.0, 0.0
    for nodes in _components(panel):
        number = {node: at for at, node in enumerate(nodes)}
        edges = [edge for edge in panel.edges if edge[0] in number]
        placed = place(
            [_box(panel.nodes[node]) for node in nodes],
            [(number[start], number[end]) for start, end, _ in edges],
        )
        if x and x + placed.width > _SHELF:
            x = 0.0
            y = y + row_height + _GAP
            row_height = 0.0
        members = [panel.nodes[node] for node in nodes]
        slots = [slot for _, _, slot in edges]
        parts += _draw_component(placed, members, slots, left + x, top + y)
        x += placed.width + _GAP
        widest = max(widest, x - _GAP)
        row_height = max(row_height, placed.height)
    return parts, (widest, y + row_height + _GAP)


def _components(panel: _Panel) -> list[list[int]]:
    """Nodes that hang together, each group in drawing order."""
    group = list(range(len(panel.nodes)))

    def head(node: int) -> int:
        while group[node] != node:
            # Halving the paths on the way keeps the search short for chains of thousands of nodes.
            group[node] = group[group[node]]
            node = group[node]
        return node

    for start, end, _ in panel.edges:
        group[head(start)] = head(end)
    components: dict[int, list[int]] = {}
    for node in range(len(panel.nodes)):
        components.setdefault(head(node), []).append(node)
    return list(components.values())


def _box(node: _Node) -> Box:
    width = max(columns_of(line) for line in node.lines) * _CHAR + 2 * _PAD
    return Box(max(width, 40.0), len(node.lines) * _LINE + _PAD)


def _draw_component(
    placed: Placement, nodes: list[_Node], slots: list[str], left: float, top: float
) -> list[str]:
    parts = []
    for route, slot in zip(placed.routes, slots, strict=True):
        points = [(x + left, y + top) for x, y in route]
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
            middle = (y0 + y1) / 2
            # Both handles at half the height: a line leaves and enters its boxes vertically.
            path += f" C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        parts.append(
            f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#tip)">'
            f"<title>{escaped(slot)}</title></path>"
        )
    for box, node in zip(placed.boxes, nodes, strict=True):
        x, y = left + box.x - box.width / 2, top + box.y - box.height / 2
        parts += _draw_box(x, y, box.width, box.height, node)
    return parts


def _draw_box(x: float, y: float, width: float, height: float, node: _Node) -> list[str]:
    dash = ' stroke-dasharray="4 3"' if node.dashed else ""
    rounded = 2 if node.operator else 11
    stroke = "#333" if node.operator else "#888"
    parts = [
        f'<g><title>{escaped(node.tip)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}" rx="{rounded}" fill="{node.color}" stroke="{stroke}"{dash}/>'
    ]
    for number, line in enumerate(node.lines):
        baseline = y + _PAD / 2 + (number + 0.78) * _LINE
        color = "#666" if number else "#000"
        parts.append(
            f'<text x="{x + width / 2:.1f}" y="{baseline:.1f}" text-anchor="middle"'
            f' fill="{color}">{escaped(line)}</text>'
        )
    return [*parts, "</g>"]


def _legend(left: float, top: float) -> list[str]:
    parts: list[str] = []
    entries = [_Node([title], ROLE_COLORS[role], True, "") for role, title in ROLE_TITLES.items()]
    entries += [
        _Node([KIND_NAMES[kind].lower()], color, False, "") for kind, color in KIND_COLORS.items()
    ]
    for node in entries:
        box = _box(node)
        parts += _draw_box(left, top, box.width, box.height, node)
        left += box.width + 8
    return parts


def _short(text: str) -> str:
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
