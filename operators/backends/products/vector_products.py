"""Products of one row, or of few rows, with a matrix that is read as it lies.

A row times a matrix that lies in rows is a loop over the matrix, as fast as memory gives it.
Weights of some megabytes do not stay in the second cache whole; read from the first to the last
each time, no part of them does. So every other call goes through the rows in chunks from the last
to the first, and what was read last is still there. Each chunk has its own sums, which are added in
one order: the result does not depend on the direction. 1x784 by 784x512 and 1x512 by 512x512, one
after another, take 70 us in one direction and 52 so (2 MB of cache).

A few rows times a matrix that lies in columns, as weights [outputs, inputs] do, are dot products of
vectors side by side in memory. A library packs the matrix first, which takes longer than such a
product. On one core of a Xeon 6x64 by 64x768 takes 12 us (OpenBLAS 31, MKL 14), 18x220 by 220x768
68 us (139, 76), 16x512 by 512x512 75 us (181, 118); 64x64 by 64x768 81 us (74, 57).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import bind
from ....framework.runtime.plans.memory import as_view, panel_memory
from . import parts

_MANY = 32
"""Rows up to which dot products may be faster than OpenBLAS; `dot_rows` of native/dot_products.c is
the number for this processor, and that of rows up to which they are faster than MKL."""
_LARGE = 1 << 17
_LONG = 128
"""Elements of a float32 matrix, and of its columns, from which they are faster than MKL."""
_SHORTEST = 32
_NARROWEST = 16
_SMALLEST = 1 << 13
"""The least inner dimension and columns, and elements of the matrix, that are worth it."""
_DEEP, _SOME = 16, 3
"""Bytes of a matrix's column, to each column, from which OpenBLAS is as fast for fewer rows than so
many a byte of an element: it has a loop for such small products."""
_LEAST = 1 << 17
"""Elements of the matrix from which this is as fast as a library's product."""
_CHUNK = 128 << 10
"""Bytes of a chunk of rows."""


def _rows(dtype: np.dtype, by_mkl: bool) -> int:
    """Rows up to which dot products are faster on this processor."""
    kernels = native.typed("dot_products", dtype)
    return 0 if kernels is None else kernels.words("dot_rows", 2)[by_mkl]


def few_rows(
    arrays: parts.Arrays,
    how: parts.Layouts,
    factors: tuple[float, float],
    bias: Any,
    by_mkl: bool = False,
) -> team.ParallelTask | None:
    """The product of a few rows with a matrix that lies in columns; None for others, and without a
    C compiler that takes it.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
        by_mkl: whether it is MKL's otherwise.
    """
    a, b, out = arrays
    if not suits_few(a, b, by_mkl) or how[0] != (0, 1):
        return None
    (m, k), n = a.shape, b.shape[1]
    if m > _rows(out.dtype, by_mkl):
        return None
    row = None if bias is None else parts.side_by_side(bias)
    begin = out if row is None and factors[1] else row
    fields: dict[str, Any] = {"m": m, "n": n, "k": k, "a": a, "w": b.T, "out": out, "begin": begin}
    fields |= zip(("a_step", "w_step", "out_step"), how[1], strict=True)
    block = native.bind("dot_products", out.dtype, "dots", alpha=factors[0], **fields)
    return team.block_task(m * n * k, block)


def suits_few(a: Any, b: Any, by_mkl: bool = False) -> bool:
    """Whether a product has sizes for which dot products are fast; layouts are not looked at."""
    (k, n), size = b.shape, b.itemsize
    if by_mkl and (size != 4 or b.size < _LARGE or k < _LONG):
        return False
    least = _SOME * size if k * size >= _DEEP * n else 2
    return (
        least <= a.shape[0] <= _MANY and k >= _SHORTEST and n >= _NARROWEST and b.size >= _SMALLEST
    )


def task(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any
) -> team.ParallelTask | None:
    """The product of one row with a matrix; None for others, and without a C compiler.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
    """
    a, b, out = arrays
    if out.shape[0] != 1 or how[0] != (0, 0) or b.size < _LEAST:
        return None
    kernels = native.typed("vector_products", out.dtype)
    if kernels is None:
        return None
    k, n = b.shape
    # A multiple of four rows, which the loop takes together.
    high = max(_CHUNK // (n * b.itemsize) // 4 * 4, 4)
    shape = -(-k // high), n
    sums = as_view(panel_memory(math.prod(shape) * b.itemsize), (shape, b.dtype))
    row = None if bias is None else parts.side_by_side(bias)
    begin = out if row is None and factors[1] else row
    fields: dict[str, Any] = {"k": k, "n": n, "x": a, "w": b, "step": how[1][1], "out": out}
    fields |= {"begin": begin, "alpha": factors[0], "high": high, "sums": sums}
    block = bind(kernels, "vector", **fields)
    return team.ParallelTask((block.item_of("turn"), block.item), b.size, block)
