"""Source code of fused loops: one C function, or one CUDA elementwise operation, for each.

A `Loop` is the structure of a chain without names and sizes: the same one serves every batch size.
A C function is called by `chain` (native/chains.c) for a part of the rows and columns. It takes one
pointer to 64-bit words: rows, columns, address of the loop's program, then address and leading
dimension (in elements) of each operand.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from ...native import units
from ..base.python.cached import cached_property
from .expression import Tree, cost, fold, nodes

FULL, ROW, COLUMN, ONE = "full", "row", "column", "one"
"""How an operand meets the loop over rows and columns: element (i, j), (j), (i), or one for all."""

MOST_ARRAYS = {"cpu": 100, "gpu": 48}
"""Most arrays of a kernel. C compilers take 1 s for a hundred and 6 s for two hundred; the
parameters of a CUDA function hold 4 KB, an array of four dimensions takes 80 bytes of them."""

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
}
"""Dtypes that operands of C loops may have; the first two are those of elements."""

HALF_NAMES = ("float16", "bfloat16")
"""Dtypes that loops load as float32 and round where they are stored."""


@dataclass(frozen=True)
class Operand:
    """Something a loop reads or writes."""

    kind: str
    dtype: str


@dataclass(frozen=True)
class Loop:
    """Structure of a fused loop.

    Attributes:
        dtype: of the elements.
        operands: all of them; variables `x0`, `x1`, ... in trees are their values on entry.
        values: expressions computed in order, known as `v0`, `v1`, ... to later ones.
        stores: (operand, name of the value to store there).
    """

    dtype: str
    operands: tuple[Operand, ...]
    values: tuple[Tree, ...]
    stores: tuple[tuple[int, str], ...]

    def loads(self) -> list[int]:
        """Operands whose values are read."""
        mentioned = {node[1] for tree in self.values for node in nodes(tree) if node[0] == "var"}
        mentioned.update(name for _, name in self.stores)
        return [i for i in range(len(self.operands)) if f"x{i}" in mentioned]

    @cached_property
    def work(self) -> int:
        """Rough work of one element, memory traffic included."""
        return sum(map(cost, self.values)) + 2 * len(self.operands)

    @cached_property
    def key(self) -> str:
        """A name that says what the loop computes: equal for equal structures."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:20]


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
    """Prints a loop's values as statements, in the terms that C and CUDA share.

    Calls become statements of their own: compilers turn `c ? a : b` into vector code only where
    both sides are plain. What does not change inside the loop goes to the head, in double.
    """

    def __init__(self, loop: Loop, element: str, call: Callable[[str], str]) -> None:
        self.element = element
        # Without the suffix C computes in double and rounds back: half as many elements in a
        # vector.
        self.suffix = "" if element == "double" else "f"
        self.call = call
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
            return _Printed(tree, _literal(tree[1], self.suffix), _literal(tree[1], ""))
        if tree[0] == "var":
            return _Printed(tree, tree[1], f"h_{tree[1]}" if tree[1] in self._fixed else "")
        if all(part.fixed for part in below):
            inner = [part.fixed for part in below]
            is_call = tree[0] == "call"
            fixed = f"{tree[1]}({', '.join(inner)})" if is_call else _join(tree, inner)
            return _Printed(tree, "", fixed)
        inner = [self._named(part) for part in below]
        if tree[0] == "call":
            text = self._hoist(tree, self.body, f"{self.call(tree[1])}({', '.join(inner)})")
        else:
            text = _join(tree, inner)
        return _Printed(tree, text, "")

    def _named(self, printed: _Printed) -> str:
        """The text of a tree, which the head computes where it does not change."""
        return printed.text or self._hoist(printed.tree, self.head, printed.fixed)

    def _hoist(self, tree: Tree, where: list[str], text: str) -> str:
        found = self._hoisted.get(tree)
        if found is None:
            found = self._hoisted[tree] = f"t{len(self._hoisted)}"
            where.append(f"const {self.element} {found} = ({self.element})({text});")
        return found


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


def _literal(value: float, suffix: str) -> str:
    if suffix:
        with np.errstate(over="ignore"):
            # Rounded here: the shortest text of a double may round to another float.
            value = float(np.float32(value))
    if not math.isfinite(value):  # NVRTC has no macros for these
        plain = {"inf": "1.0 / 0.0", "-inf": "-1.0 / 0.0"}.get(str(value), "0.0 / 0.0")
        return f"(({'float' if suffix else 'double'})({plain}))"
    text = f"{value!r}{suffix}"
    return text if math.copysign(1, value) > 0 else f"({text})"


_PRELUDE = """\
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif
#include <math.h>
#include <stdint.h>
typedef int64_t word;
"""


@cache
def c_prelude() -> str:
    """The head of a C file, before its functions."""
    return _PRELUDE + units.included("chains")["halves.h"]


def c_function_name(loop: Loop) -> str:
    return f"chain_{loop.key}"


def c_source(loop: Loop) -> str:
    """The C function of a loop; `c_prelude` comes before the first."""
    name, element = c_function_name(loop), C_TYPES[loop.dtype]
    dtypes = [operand.dtype for operand in loop.operands]
    suffix = "" if element == "double" else "f"
    macros = ("isnan", "isinf", "isfinite", "signbit")
    printed = _Printer(loop, element, lambda f: f if f in macros else f + suffix)
    loads = set(loop.loads())
    written = {operand for operand, _ in loop.stores}
    head: list[str] = []
    row: list[str] = []
    inner: list[str] = []
    for i, operand in enumerate(loop.operands):
        c_type, word = C_TYPES[operand.dtype], 3 + 2 * i
        pointer = f"({'' if i in written else 'const '}{c_type} *)b[{word}]"
        if operand.kind == ONE:
            # In double: what is one number for all elements is computed once and costs nothing.
            head.append(f"const double h_x{i} = (double){_loaded(dtypes[i], f'*({pointer})')};")
            head.append(f"const {element} x{i} = ({element})h_x{i};")
        elif operand.kind == COLUMN:
            at = f"({pointer})[i * b[{word + 1}]]"
            row.append(f"const {element} x{i} = {_loaded(dtypes[i], at)};")
        else:
            const = "" if i in written else "const "
            offset = f" + i * b[{word + 1}]" if operand.kind == FULL else ""
            row.append(f"{const}{c_type} *p{i} = {pointer}{offset};")
            if i in loads:
                # All loads come before the first store: a loop may write over what it reads.
                inner.append(f"const {element} x{i} = {_loaded(dtypes[i], f'p{i}[j]')};")
    inner += printed.body
    for i, value in loop.stores:
        inner.append(
            f"p{i}[j] = {f'to_{dtypes[i]}({value})' if dtypes[i] in HALF_NAMES else value};"
        )
    lines = [
        f"EXPORT void {name}(const word *b, word r0, word r1, word c0, word c1) {{",
        *(f"  {line}" for line in head + printed.head),
        "  for (word i = r0; i < r1; i++) {",
        *(f"    {line}" for line in row),
        # The compiler need not prove that arrays do not overlap: `no_overlap` has looked.
        "#pragma omp simd",
        "    for (word j = c0; j < c1; j++) {",
        *(f"      {line}" for line in inner),
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _loaded(dtype: str, place: str) -> str:
    """The value at a place in memory, halves as float."""
    return f"from_{dtype}({place})" if dtype in HALF_NAMES else place


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
    printed = _Printer(loop, element, lambda f: f)
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
