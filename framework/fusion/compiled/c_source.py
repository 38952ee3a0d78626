"""C functions of fused loops, which do what the interpreter does, to the last bit (chains.py).

A function is called by `chain` (native/chains.c) for a part of the rows and columns, with the
functions of arrays and of single numbers that the interpreter calls: a compiler's own have other
last bits. Its first argument is that of `chain`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from ....native import units
from ..scalars.codegen import (
    C_TYPES,
    COLUMN,
    FULL,
    HALF_NAMES,
    ONE,
    Graph,
    Loop,
    Operation,
    Value,
    is_fixed,
)

_BLOCK = 256
"""Elements between calls of functions: arrays of so many stay in the first cache."""

_PRELUDE = """\
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif
#include <math.h>
#include <stdint.h>
typedef int64_t word;
typedef void array_function(word n, void *to, const void *x, const void *y, const void *z);
typedef double number_function(double x, double y, double z);
"""

_TRUTHS = {
    **{"lt": "({} < {})", "gt": "({} > {})", "le": "({} <= {})", "ge": "({} >= {})"},
    **{"eq": "({} == {})", "ne": "({} != {})", "and": "({} & {})", "or": "({} | {})"},
    **{"not": "(!{})", "as_truth": "({} != 0)", "isnan": "({0} != {0})"},
    **{"isinf": "({fabs}({}) == INFINITY)", "isfinite": "({fabs}({}) < INFINITY)"},
    "signbit": "(signbit({}) != 0)",
}
"""Operations whose result is 0 or 1, an integer; names in braces are functions of math.h."""
_NUMBERS = {
    **{"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}"},
    **{
        "choose": "{} ? {} : {}",
        "as_number": "{}",
        "load_number": "{}",
        "fabs": "{fabs}({})",
        "sqrt": "{sqrt}({})",
    },
    **{"copysign": "{copysign}({}, {})", "fmax": "({0} > {1}) | ({1} != {1}) ? {0} : {1}"},
    **{"fmin": "({0} < {1}) | ({1} != {1}) ? {0} : {1}"},
    **{"at_least": "{1} > {0} ? {1} : {0}", "at_most": "{1} < {0} ? {1} : {0}"},
}
_EXACT = frozenset("ceil floor rint trunc".split())
"""Functions that are a processor's own instruction, and of which there is one right result."""


@cache
def c_prelude() -> str:
    """The head of a C file, before its functions."""
    headers = units.included("chains")
    return _PRELUDE + headers["chains_arguments.h"] + headers["halves.h"]


def literal(value: float, suffix: str) -> str:
    """A number in C or CUDA: of type float where the suffix is "f", else a double."""
    if suffix:
        with np.errstate(over="ignore"):
            # Rounded here: the shortest text of a double may round to another float.
            value = float(np.float32(value))
    if not math.isfinite(value):  # NVRTC has no macros for these
        plain = {"inf": "1.0 / 0.0", "-inf": "-1.0 / 0.0"}.get(str(value), "0.0 / 0.0")
        return f"(({'float' if suffix else 'double'})({plain}))"
    text = f"{value!r}{suffix}"
    return text if math.copysign(1, value) > 0 else f"({text})"


def c_function_name(loop: Loop) -> str:
    return f"chain_{loop.key}"


def c_source(loop: Loop, functions: Sequence[str], number_functions: Sequence[str]) -> str:
    """The C function of a loop; `c_prelude` comes before the first.

    Args:
        functions, number_functions: names in the order of the tables that it is called with.
    """
    return _Printer(loop, functions, number_functions).text()


class _Printer:
    """Prints a loop. Calls of functions cut it into stages, each a loop over a block's elements."""

    def __init__(
        self, loop: Loop, functions: Sequence[str], number_functions: Sequence[str]
    ) -> None:
        self.loop = loop
        self.graph = Graph(loop)
        self.functions = functions
        self.number_functions = number_functions
        self.type = C_TYPES[loop.dtype]
        suffix = "f" if self.type == "float" else ""
        self.math = {name: name + suffix for name in ("fabs", "copysign", "sqrt", *_EXACT)}
        self.needed = self.graph.needed()
        self.stage: dict[int, int] = {}  # of each operation
        for index in self.needed:
            ready = (self._ready(one) for one in self.graph.operations[index].operands)
            self.stage[index] = max(ready, default=0)
        stored = [self._ready(value) for _, value in self.graph.stores]
        self.last = max([*self.stage.values(), *stored], default=0)
        self.kept = self._kept()

    def _is_call(self, operation: Operation) -> bool:
        return operation.name == "call" and operation.extra not in _EXACT

    def _ready(self, value: Value) -> int:
        """The first stage that may read a value."""
        if value.kind != "step":
            return 0
        called = self._is_call(self.graph.operations[value.index])
        return self.stage[value.index] + called

    def _kept(self) -> set[int]:
        """Operations whose values are written to arrays: others read them in later stages."""
        kept: set[int] = set()
        for index in self.needed:
            operation = self.graph.operations[index]
            for one in operation.operands:
                if one.kind == "step" and (
                    self._is_call(operation) or self.stage[one.index] < self.stage[index]
                ):
                    kept.add(one.index)
        kept.update(
            value.index
            for _, value in self.graph.stores
            if value.kind == "step" and self.stage[value.index] < self.last
        )
        kept.update(i for i in self.needed if self._is_call(self.graph.operations[i]))
        return kept

    def text(self) -> str:
        element, last = self.type, self.last
        whole = "c1 - c0" if not last else f"c1 - j0 < {_BLOCK} ? c1 - j0 : {_BLOCK}"
        blocks = [f"{element} a{index}[{_BLOCK}];" for index in sorted(self.kept)]
        inner = [line for stage in range(last + 1) for line in self._stage(stage)]
        lines = [
            f"EXPORT void {c_function_name(self.loop)}(const struct chain *a, word r0, word r1,"
            " word c0, word c1, array_function *const *F, number_function *const *G) {",
            *(f"  {line}" for line in (*self._head(), *blocks)),
            "  for (word i = r0; i < r1; i++) {",
            *(f"    {line}" for line in self._row()),
            f"    for (word j0 = c0; j0 < c1; j0 += {_BLOCK if last else 'c1 - c0'}) {{",
            f"      const word n = {whole};",
            *(f"      {line}" for line in inner),
            "    }",
            "  }",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _head(self) -> list[str]:
        """What is known before the loop: in double, then as elements."""
        graph = self.graph
        lines = [f"const double d{i} = {literal(x, '')};" for i, x in enumerate(graph.literals)]
        for i, operand in enumerate(self.loop.operands):
            if operand.kind == ONE:
                number = graph.register(Value("one", i))
                lines.append(f"const double d{number} = {self._loaded(i, '0')};")
        for number, (name, operands) in enumerate(graph.head):
            given = [f"d{graph.register(one)}" for one in operands]
            to = graph.register(Value("head", number))
            which = self.number_functions.index(name)
            lines.append(f"const double d{to} = G[{which}]({', '.join([*given, '0', '0'][:3])});")
        count = graph.register(Value("head", len(graph.head)))
        return lines + [f"const {self.type} n{i} = d{i};" for i in range(count)]

    def _loaded(self, operand: int, at: str) -> str:
        """The element of an operand at a place in memory; halves as float."""
        dtype = self.loop.operands[operand].dtype
        element = f"((const {C_TYPES[dtype]} *)a->places[{operand}].at)[{at}]"
        return f"from_{dtype}({element})" if dtype in HALF_NAMES else element

    def _row(self) -> list[str]:
        lines = []
        written = {operand for operand, _ in self.loop.stores}
        for i, operand in enumerate(self.loop.operands):
            if operand.kind == COLUMN:
                at = f"i * a->places[{i}].step"
                lines.append(f"const {self.type} m{i} = {self._loaded(i, at)};")
            elif operand.kind != ONE:
                pointer = f"{'' if i in written else 'const '}{C_TYPES[operand.dtype]} *"
                offset = f" + i * a->places[{i}].step" if operand.kind == FULL else ""
                lines.append(f"{pointer}p{i} = ({pointer})a->places[{i}].at{offset};")
        return lines

    def _stage(self, stage: int) -> list[str]:
        """The loop of a stage, then the calls for which it has computed the arguments."""
        own = [i for i in self.needed if self.stage[i] == stage]
        body: list[str] = []
        names: dict[Value, str] = {}
        for index in own:
            operation = self.graph.operations[index]
            if self._is_call(operation):
                continue
            texts = [self._read(one, names, body) for one in operation.operands]
            value = Value("step", index)
            if operation.name in _TRUTHS:
                names[value] = _TRUTHS[operation.name].format(*texts, **self.math)
            else:
                names[value] = f"s{index}"
                body.append(f"const {self.type} s{index} = {self._expression(operation, texts)};")
            if index in self.kept:
                body.append(f"a{index}[j] = {names[value]};")
        if stage == self.last:
            # All loads come before the first store: a loop may write over what it reads.
            texts = [self._read(value, names, body) for _, value in self.graph.stores]
            for (operand, _), text in zip(self.graph.stores, texts, strict=True):
                dtype = self.loop.operands[operand].dtype
                rounded = f"to_{dtype}({text})" if dtype in HALF_NAMES else text
                body.append(f"p{operand}[j0 + j] = {rounded};")
        lines = []
        if body:
            # The compiler need not prove that arrays do not overlap: `no_overlap` has looked.
            lines += ["#pragma omp simd", "for (word j = 0; j < n; j++) {"]
            lines += [*(f"  {line}" for line in body), "}"]
        for index in own:
            operation = self.graph.operations[index]
            if self._is_call(operation):
                given = [
                    f"a{one.index}" if one.kind == "step" else f"p{one.index} + j0"
                    for one in operation.operands
                ]
                which = self.functions.index(str(operation.extra))
                lines.append(f"F[{which}](n, a{index}, {', '.join([*given, '0', '0'][:3])});")
        return lines

    def _expression(self, operation: Operation, texts: Sequence[str]) -> str:
        if operation.name == "call":
            return f"{self.math[str(operation.extra)]}({texts[0]})"
        if operation.name.startswith("load_") and not operation.operands:
            return (
                f"from_{self.loop.operands[int(operation.extra)].dtype}(p{operation.extra}[j0 + j])"
            )
        return _NUMBERS[operation.name].format(*texts, **self.math)

    def _read(self, value: Value, names: dict[Value, str], body: list[str]) -> str:
        """The name of a value in a stage, which it is loaded under first."""
        if is_fixed(value):
            return f"n{self.graph.register(value)}"
        if value.kind == "number":
            return f"m{value.index}"
        if value not in names:
            if value.kind == "array":
                names[value] = f"x{value.index}"
                body.append(f"const {self.type} x{value.index} = p{value.index}[j0 + j];")
            else:
                names[value] = f"s{value.index}"
                body.append(f"const {self.type} s{value.index} = a{value.index}[j];")
                if self.graph.operations[value.index].name in _TRUTHS:
                    names[value] = f"(s{value.index} != 0)"
        return names[value]
