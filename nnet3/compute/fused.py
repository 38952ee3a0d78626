"""Formulas over columns of matrices as one compiled loop, for kernels with many of them.

    bind = fused(k, {"h": part, "w": row}, {"s": "1 / (1 + exp(-h * w))", "y": "s * h"}, {"y": out})

A formula is a scalar expression over arrays and over the formulas before it (`framework/expression`
tells the grammar). Nothing but the results is written to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...framework import compiler
from ...framework.codegen import C_TYPES, COLUMN, FULL, ROW, Loop, Operand
from ...framework.expression import Tree, parse, replace_names
from ...framework.settings import is_on


def fused(
    k: Any,
    arrays: Mapping[str, Any],
    formulas: Mapping[str, str],
    results: Mapping[str, Any],
) -> Callable[[], Any] | None:
    """A call that computes formulas element by element; None where nothing can be compiled.

    Args:
        arrays: float arrays by the names that formulas use: matrices [N, C], rows [C] that serve
            for every row, and columns [N, 1].
        formulas: in the order of computation.
        results: matrices [N, C] by the formula whose values they receive; they may share memory
            with `arrays` only where they are the same matrix.
    """
    shape = next(iter(results.values())).shape
    dtype = next(iter(results.values())).dtype
    if k.xp is not np or dtype.name not in C_TYPES or not is_on("OPSCOPE_FUSE"):
        return None
    operands: list[Operand] = []
    words = list(shape)
    known: dict[str, Tree] = {}

    def add(array: Any) -> bool:
        kind = ROW if array.ndim == 1 else COLUMN if array.shape[1] == 1 != shape[1] else FULL
        if kind != COLUMN and array.strides[-1] != array.itemsize and array.shape[-1] > 1:
            return False
        operands.append(Operand(kind, dtype.name))
        words.extend((array.ctypes.data, 0 if kind == ROW else array.strides[0] // array.itemsize))
        return array.dtype == dtype and array.flags.aligned

    for name, array in arrays.items():
        known[name] = ("var", f"x{len(operands)}")
        if not add(array):
            return None
    values = []
    for number, (name, formula) in enumerate(formulas.items()):
        values.append(replace_names(parse(formula), known))
        known[name] = ("var", f"v{number}")
    stores = []
    for name, array in results.items():
        stores.append((len(operands), known[name][1]))
        if not add(array):
            return None
    loop = Loop(dtype.name, tuple(operands), tuple(values), tuple(stores))
    compiled = compiler.functions([loop])
    if compiled is None:
        return None
    block = np.array(words, np.int64)
    call = partial(compiled[0].function, block.ctypes.data)
    call.memory = (block, dict(arrays), dict(results))  # type: ignore[attr-defined]  # kept alive
    return call
