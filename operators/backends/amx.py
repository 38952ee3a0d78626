"""Products of float32 matrices by AMX tiles, for operators outside of loops; see `amx_gemm`.

The second factor is packed for each product, a block of it at a time, since nobody knows whether
it is the same in the next run; with 64 rows or more that is little beside the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Kernel
from . import amx_gemm

LEAST, FEWEST = 1 << 21, 32
"""Multiplications and rows from which a product gains by tiles."""
_NARROW = 32
"""Columns and inner dimension from which it does."""
_DEEP, _WIDE = 256, 512
"""Inner dimension and columns of a block: its tiles, 6 bytes a number, stay in the cache."""


def product(
    other: Callable[..., Call],
    xp: Any,
    a: Any,
    b: Any,
    out: Any,
    *,
    alpha: float = 1.0,
    bias: Any = None,
    by: Any = None,
) -> Call:
    """See `matmul.product`; `other` serves small sizes and unusual strides."""
    steps = _suited(a, b, out, bias, by)
    if steps is None:
        return other(xp, a, b, out, alpha=alpha, bias=bias, by=by)
    wide, deep = min(_WIDE, b.shape[1]), min(_DEEP, len(b))
    panels = team.aligned(amx_gemm.room(b[:deep, :wide]))
    tasks = []
    for left in range(0, b.shape[1], wide):
        cols = slice(left, left + wide)
        begin = out[:, cols] if by is not None else None if bias is None else bias[cols]
        for top in range(0, len(b), deep):
            rows = b[top : top + deep, cols]
            tasks.append(amx_gemm.pack(rows, alpha, panels))
            part = a[:, top : top + deep]
            block = out[:, cols]
            tasks.append(amx_gemm.multiply(part, steps, rows, alpha, panels, block, begin))
            begin = block
    return team.run_together(tasks)


def kernel(bind: Callable[..., Call | None], other: Callable[..., Call], *more: Any) -> Kernel:
    """The kernel `bind` with such products, elsewhere with those of `other`."""

    def with_tiles(k: KernelArgs) -> Call | None:
        if amx_gemm.library() is None or k.prepared is not None:
            return None

        def multiply(*given: Any, **how: Any) -> Call:
            return product(other, *given, **how)

        return bind(k, multiply, *more)

    return with_tiles


def _suited(a: Any, b: Any, out: Any, bias: Any, by: Any) -> tuple[int, int] | None:
    """The steps of a's elements, where the product is large and lies as tiles want it."""
    (m, k), n = a.shape, b.shape[1]
    if (
        m < FEWEST
        or min(n, k) < _NARROW
        or m * n * k < LEAST
        or (bias is not None and by is not None)
    ):
        return None
    if any(x.dtype != np.float32 or not x.flags.aligned for x in (a, b, out)):
        return None
    if out.strides[1] != out.itemsize or out.strides[0] < 4 * n:
        return None
    down, right = (stride // 4 for stride in a.strides)
    if 1 not in (down, right) or 1 not in (b.strides[0] // 4, b.strides[1] // 4):
        return None
    return down, right
