"""Kernels that follow from formulas over columns of matrices.

    formulas = {"s": "1 / (1 + exp(-h * w))", "y": "s * h"}
    call = computed(k, {"h": columns, "w": row}, formulas, {"y": out})

A formula is a scalar expression over arrays and over the formulas before it (`framework/expression`
tells the grammar). Where there is a native library, and on a GPU, they become one loop, and nothing
but the results is written to memory. Elsewhere each operation is a call of NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ...framework.base.options.settings import read_options
from ...framework.fusion import chains
from ...framework.fusion.compiled import native
from ...framework.fusion.scalars.array_calls import ArrayHost, array_calls, array_plan
from ...framework.fusion.scalars.codegen import COLUMN, FULL, ROW, Loop, Operand
from ...framework.fusion.scalars.expression import Tree, parse, replace_names
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs


def computed(
    k: KernelArgs,
    arrays: Mapping[str, Any],
    formulas: Mapping[str, str],
    results: Mapping[str, Any],
) -> Call:
    """A call that computes formulas element by element; arguments as in `fused`."""
    call = fused(k, arrays, formulas, results)
    return in_order(*called(k, arrays, formulas, results)) if call is None else call


def called(
    k: ArrayHost,
    arrays: Mapping[str, Any],
    formulas: Mapping[str, str],
    results: Mapping[str, Any],
) -> list[Call]:
    """Calls of NumPy or CuPy that compute formulas; arrays and results are any that broadcast."""
    return array_calls(k, array_plan(tuple(formulas.items()), tuple(results)), arrays, results)


def fused(
    k: KernelArgs,
    arrays: Mapping[str, Any],
    formulas: Mapping[str, str],
    results: Mapping[str, Any],
) -> Call | None:
    """A loop that computes formulas; None where there can be none.

    Args:
        arrays: float arrays by the names that formulas use: matrices [N, C], rows [C] that serve
            for every row, and columns [N, 1].
        formulas: in the order of computation.
        results: matrices [N, C] by the formula whose values they receive; they may share memory
            with `arrays` only where they are the same matrix.
    """
    shape = next(iter(results.values())).shape
    dtype = next(iter(results.values())).dtype
    if dtype.name not in native.C_TYPES or not read_options().fuse:
        return None
    kinds: list[str] = []
    operands: list[tuple[Any, int]] = []
    for array in (*arrays.values(), *results.values()):
        kind = ROW if array.ndim == 1 else COLUMN if array.shape[1] == 1 != shape[1] else FULL
        if kind != COLUMN and array.strides[-1] != array.itemsize and array.shape[-1] > 1:
            return None
        if array.dtype != dtype or not (k.xp is not np or array.flags.aligned):
            return None
        kinds.append(kind)
        operands.append((array, 0 if kind == ROW else array.strides[0] // array.itemsize))
    named = tuple(arrays), tuple(formulas.items()), tuple(results)
    loop = _loop(dtype.name, tuple(kinds), *named)
    if k.xp is not np:
        from ...framework.runtime.fused.fused_gpu import bind_loop  # without a GPU it is not needed

        return bind_loop(k.xp, loop, [*arrays.values(), *results.values()])
    program = chains.program(loop)
    if program is None:
        return None
    return chains.task(loop, chains.argument(program, shape, operands))


@lru_cache(maxsize=1024)
def _loop(
    dtype: str,
    kinds: tuple[str, ...],
    arrays: tuple[str, ...],
    formulas: tuple[tuple[str, str], ...],
    results: tuple[str, ...],
) -> Loop:
    """The loop of formulas over arrays and results of these kinds, which are its operands."""
    known: dict[str, Tree] = {name: ("var", f"x{i}") for i, name in enumerate(arrays)}
    values = []
    for number, (name, formula) in enumerate(formulas):
        values.append(replace_names(parse(formula), known))
        known[name] = ("var", f"v{number}")
    stores = [(len(arrays) + i, known[name][1]) for i, name in enumerate(results)]
    operands = tuple(Operand(kind, dtype) for kind in kinds)
    return Loop(dtype, operands, tuple(values), tuple(stores))
