"""Fused loops as CUDA elementwise operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..compiled.c_source import literal
from ..scalars.codegen import C_TYPES, FULL, ONE, ROW, Loop
from ..scalars.expression import Tree, fold, names


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

    What does not change inside the loop goes to the head, in double, and what is a number by
    itself stands before it.

    Attributes:
        constants, head, body: statements. hoisted: names in the head that the body reads.
    """

    def __init__(self, loop: Loop, element: str) -> None:
        self.element = element
        # Without the suffix the sum of a float and a number would be one of doubles.
        self.suffix = "" if element == "double" else "f"
        self.constants: list[str] = []
        self.hoisted: list[str] = []
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
        if printed.text:
            return printed.text
        if not names(printed.tree):  # the compiler computes it
            return self._hoist(printed.tree, self.constants, printed.fixed)
        text = self._hoist(printed.tree, self.head, printed.fixed)
        if text not in self.hoisted:
            self.hoisted.append(text)
        return text

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
    lines += printed.constants + printed.head + printed.body
    lines += [f"o{operand} = {value};" for operand, value in loop.stores]
    return GpuSource(
        inputs,
        outputs,
        ", ".join(f"{loop.operands[i].dtype} a{i}" for i in inputs),
        ", ".join(f"{loop.operands[i].dtype} o{i}" for i in outputs),
        "\n".join(lines),
        f"opscope_chain_{loop.key}",
    )


TYPES = ("float32", "float64", "int32", "int64")
"""Dtypes of the arrays that loops over tables take."""

_TABLE = """\
KERNEL {name}_head(const int64 *table, real *heads, int64 parts) {{
  EACH(part, parts) {{
    const int64 *row = table + part * {operands};
{head}
  }}
}}

KERNEL {name}(const int64 *table, const int64 *ends, const real *heads, int64 size) {{
  EACH(i, size) {{
    const int64 part = part_of(ends, i), at = part ? i - ends[part - 1] : i;
    const int64 *row = table + part * {operands};
{body}
  }}
}}
"""


@dataclass(frozen=True)
class TableSource:
    """Kernels for the elements of many groups of arrays, whose addresses stand in a table.

    Attributes:
        text: of both, below the prelude of device_kernels.py.
        name, head: of the loop, and of what computes numbers that do not change within a group.
        heads: how many such numbers there are; with none the loop needs no other kernel before it.
    """

    text: str
    name: str
    head: str
    heads: int


def table_source(loop: Loop) -> TableSource:
    """A loop as kernels for many groups of arrays at once: its operands are whole or one number.

    The numbers are computed in double, once a group: in each element they would cost many times
    what the loop does itself.
    """
    printed = _Printer(loop, C_TYPES[loop.dtype])
    row, places = {}, {}
    for i, operand in enumerate(loop.operands):
        row[i], places[i] = f"row[{i}]", "0" if operand.kind == ONE else "at"
    head = [*_heads(loop, row), *printed.constants, *printed.head]
    body = _loads(loop, row, places)
    for number, local in enumerate(printed.hoisted):
        head.append(f"heads[part * {len(printed.hoisted)} + {number}] = {local};")
        body.append(f"const real {local} = heads[part * {len(printed.hoisted)} + {number}];")
    body += [*printed.constants, *printed.body, *_stores(loop, row, places)]
    name = f"opscope_table_{loop.key}"
    text = _TABLE.format(
        name=name,
        operands=len(loop.operands),
        head="\n".join(f"    {line}" for line in head),
        body="\n".join(f"    {line}" for line in body),
    )
    return TableSource(text, name, f"{name}_head", len(printed.hoisted))


def row_source(loop: Loop, name: str, first: int) -> str:
    """A loop over a row as a function of (words, row): after `first` of the words, two for each
    operand, its address and the elements from row to row."""
    printed = _Printer(loop, C_TYPES[loop.dtype])
    pointers, places = {}, {}
    column = {FULL: " + j", ROW: " + j"}
    for i, operand in enumerate(loop.operands):
        pointers[i] = f"words[{first + 2 * i}]"
        places[i] = f"row * words[{first + 2 * i + 1}]{column.get(operand.kind, '')}"
    lines = [*_heads(loop, pointers), *printed.constants, *printed.head]
    body = [*_loads(loop, pointers, places), *printed.body, *_stores(loop, pointers, places)]
    return (
        f"DEVICE void {name}(const int64 *words, int64 row) {{\n  "
        + "\n  ".join(lines)
        + "\n  LANES(j, words[2]) {\n    "
        + "\n    ".join(body)
        + "\n  }\n}"
    )


def _heads(loop: Loop, pointers: Mapping[int, str]) -> list[str]:
    """Statements that load what is one number, in double."""
    return [
        f"const double h_x{i} = (double)*({_pointer(loop, i)}){pointers[i]};"
        for i in loop.loads()
        if loop.operands[i].kind == ONE
    ]


def _loads(loop: Loop, pointers: Mapping[int, str], places: Mapping[int, str]) -> list[str]:
    return [
        f"const real x{i} = (real)(({_pointer(loop, i)}){pointers[i]})[{places[i]}];"
        for i in loop.loads()
    ]


def _stores(loop: Loop, pointers: Mapping[int, str], places: Mapping[int, str]) -> list[str]:
    return [
        f"(({_pointer(loop, i).removeprefix('const ')}){pointers[i]})[{places[i]}] = {value};"
        for i, value in loop.stores
    ]


def _pointer(loop: Loop, operand: int) -> str:
    dtype = loop.operands[operand].dtype
    return f"const {C_TYPES.get(dtype, dtype).removesuffix('_t')} *"
