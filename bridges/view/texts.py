"""Short texts of attributes, shapes, sizes and places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.ir.desc import KIND_NAMES, enum_name, format_location
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ...framework.ir.printer import type_text
from .graph import Facts, Value

_LONGEST = 400
_MOST_NUMBERS = 24
_MOST_LINES = 4
_WINDOWS = {
    "kernel": ("kernel", "kernel_shape", "kernelShape"),
    "stride": ("stride", "strides", "strideShape"),
    "dilation": ("dilation", "dilations"),
    "groups": ("groups", "group"),
}
"""What a box says of windows: attributes of opscope, ONNX and CNTK."""


def cut(text: str, longest: int = _LONGEST) -> str:
    """The text, or its beginning and `…`."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def attribute_text(value: object) -> str:
    """An attribute as text; long lists are cut, of large arrays only dtype and shape are given."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, OpList):
        return f"net {value.name!r}, {len(value.ops)} operators"
    if isinstance(value, np.ndarray):
        if value.size > _MOST_NUMBERS:
            return f"{value.dtype}{list(value.shape)}"
        return f"{value.dtype}{list(value.shape)}: {', '.join(map(str, value.ravel().tolist()))}"
    if isinstance(value, (list, tuple)):
        shown = [attribute_text(each) for each in value[:_MOST_NUMBERS]]
        more = len(value) - _MOST_NUMBERS
        return cut(f"[{', '.join(shown)}{f', … {more} more' if more > 0 else ''}]")
    return cut(f"{value:.7g}" if isinstance(value, float) else str(value))


def attribute_facts(op: OpNode, leave_out: Sequence[str] = ()) -> Facts:
    """The attributes of an operator but its inner nets, by name."""
    return [
        (name, attribute_text(op.attrs[name]))
        for name in sorted(op.attrs)
        if name not in leave_out and not isinstance(op.attrs[name], OpList)
    ]


def source_facts(node: OpNode | VarDecl) -> Facts:
    """Where it was written, if that is known."""
    place = format_location(node.source)
    return [("written at", place)] if place else []


def shape_text(shape: Sequence[int] | None) -> str:
    """`? × 64`; "" for a single number or an unknown rank."""
    return " × ".join("?" if size < 0 else str(size) for size in shape or ())


def box_lines(attrs: Mapping[str, Any], held: Iterable[tuple[str, Value]]) -> list[str]:
    """The lines of an operator's box: its windows, and the shapes of its parameters by name."""
    windows = []
    for name, spelled in _WINDOWS.items():
        given = next((attrs[each] for each in spelled if each in attrs), ())
        sizes = [int(size) for size in np.atleast_1d(np.asarray(given)).ravel()]
        if sizes and (name == "kernel" or set(sizes) != {1}):
            same = name != "kernel" and len(set(sizes)) == 1
            windows.append(f"{name} {shape_text(sizes[:1] if same else sizes)}")
    lines = [", ".join(windows)] if windows else []
    for name, value in held:
        shape = value.type.partition("[")[2].rstrip("]").replace(", ", " × ")
        lines.append(f"{name} {shape}")
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[: _MOST_LINES - 1], f"… {more + 1} more"]


def count_text(count: int) -> str:
    """`12.3 M` numbers."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return str(count)


def seconds_text(seconds: float) -> str:
    """`12.3 ms`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def value_of(var: VarDecl) -> Value:
    """What is shown of a declared variable."""
    facts: Facts = []
    if var.sequence_levels:
        facts.append(("sequence levels", str(var.sequence_levels)))
    if var.view is not None:
        view = var.view
        rows, columns = f"{view.row_begin}:{view.row_end}", f"{view.col_begin}:{view.col_end}"
        facts.append(("view of", f"{view.base}[{rows}, {columns}]"))
    if var.lr_factor is not None:
        facts.append(("learning-rate factor", f"{var.lr_factor:g}"))
    if var.stop_gradient:
        facts.append(("gradient", "stops here"))
    if var.initializer is not None and var.initializer.type:
        settings = ", ".join(f"{n}={t}" for n, t in attribute_facts(var.initializer))
        facts.append(("first value", f"{var.initializer.type}({settings})"))
    kind = enum_name(KIND_NAMES, var.kind).lower()
    return Value(var.name, type_text(var), kind, facts + source_facts(var))
