"""Fused loops as CUDA elementwise operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .c_source import literal
from .codegen import ONE, Loop
from .expression import Tree, fold


class _Printed(NamedTuple):
    """A tree as text.

    Attributes:
        text: in the element type; "": the value is `fixed`, which has no name yet.
        fixed: in double, in terms of the head; "": it changes inside the loop.
    """

    tree: Tree
    text: str
    fixed: str


class _Printer:
    """Prints a loop's values as statements of CUDA.

    What does not change inside the loop goes to the head, in double.
    """

    def __init__(self, loop: Loop, element: str) -> None:
        self.element = element
        # Without the suffix the sum of a float and a number would be one of doubles.
        self.suffix = "" if element == "double" else "f"
        self.head: list[str] = []
        self.body: list[str] = []
        self._fixed = {f"x{i}" for i, o in enumerate(loop.operands) if o.kind == ONE}
        self._hoisted: dict[Tree, str] = {}
        for number, tree in enumerate(loop.values):
            printed = fold(tree, self._printed)
            text = self._named(printed)
            if printed.fixed:
                self._fixed.add(f"v{number}")
                self.head.append(f"const double h_v{number} = {printed.fixed};")
            self.body.append(f"const {element} v{number} = {text};")

    def _printed(self, tree: Tree, below: Sequence[_Printed]) -> _Printed:
        if tree[0] == "num":
            return _Printed(tree, literal(tree[1], self.suffix), literal(tree[1], ""))
        if tree[0] == "var":
            return _Printed(tree, tree[1], f"h_{tree[1]}" if tree[1] in self._fixed else "")
        if all(part.fixed for part in below):
            inner = [part.fixed for part in below]
            is_call = tree[0] == "call"
            fixed = f"{tree[1]}({', '.join(inner)})" if is_call else _join(tree, inner)
            return _Printed(tree, "", fixed)
        inner = [self._named(part) for part in below]
        if tree[0] == "call":
            text = self._hoist(tree, self.body, f"{tree[1]}({', '.join(inner)})")
        else:
            text = _join(tree, inner)
        return _Printed(tree, text, "")

    def _named(self, printed: _Printed) -> str:
        """The text of a tree, which the head computes where it does not change."""
        return printed.text or self._hoist(printed.tree, self.head, printed.fixed)

    def _hoist(self, tree: Tree, where: list[str], text: str) -> str:
        local = self._hoisted.get(tree)
        if local is None:
            local = self._hoisted[tree] = f"t{len(self._hoisted)}"
            where.append(f"const {self.element} {local} = ({self.element})({text});")
        return local


def _join(tree: Tree, texts: Sequence[str]) -> str:
    """An operation on the texts of its operands."""
    kind = tree[0]
    if kind == "unary":
        return f"({tree[1]}{texts[0]})"
    if kind == "binary":
        return f"({texts[0]} {tree[1]} {texts[1]})"
    if kind == "sum":
        return f"({' + '.join(texts)})"
    return f"({texts[0]} ? {texts[1]} : {texts[2]})"


@dataclass(frozen=True)
class GpuSource:
    """Arguments of `cupy.ElementwiseKernel`, and which operands it takes in which order."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    in_params: str
    out_params: str
    operation: str
    name: str


def gpu_source(loop: Loop) -> GpuSource:
    """A loop as an elementwise kernel; broadcasting is CuPy's. Half precision is computed in float.

    Operands that are read and written are passed twice; all reads come before the first write.
    """
    element = "double" if loop.dtype == "float64" else "float"
    printed = _Printer(loop, element)
    inputs = tuple(loop.loads())
    outputs = tuple(operand for operand, _ in loop.stores)
    lines = []
    for i in inputs:
        if loop.operands[i].kind == ONE:
            lines.append(f"const double h_x{i} = (double)a{i};")
        lines.append(f"const {element} x{i} = ({element})a{i};")
    lines += printed.head + printed.body
    lines += [f"o{operand} = {value};" for operand, value in loop.stores]
    return GpuSource(
        inputs,
        outputs,
        ", ".join(f"{loop.operands[i].dtype} a{i}" for i in inputs),
        ", ".join(f"{loop.operands[i].dtype} o{i}" for i in outputs),
        "\n".join(lines),
        f"opscope_chain_{loop.key}",
    )
