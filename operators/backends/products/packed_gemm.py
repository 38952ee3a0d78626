"""Matrix products whose second factor is packed once: before the loop of a recurrent net, or for
all runs of a net that only predicts (framework/runtime/plans/kept_factors.py).

All steps of the loop multiply with the same weights. These are packed into panels: as many columns
as fit into registers beside the rows of a tile, row after row. A step's product then reads memory
in order, adds to its target at no cost, and is cut between the threads of a team. BLAS packs
again for every call, or does not: for 64x256 by 256x1024 MKL and OpenBLAS reach 70 to 80% of the
speed of this on a Zen 4, and both lose more when they share such a product between threads.

The tile: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....framework.base.cpu.cores import is_intel
from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import Block, bind, is_host_array
from ....framework.fusion.compiled.libraries import Library
from ..bfloat16 import bf16_gemm
from . import parts

if TYPE_CHECKING:
    from ....framework.fusion.rows.prepared import Prepared
    from ....framework.runtime.plans.kept_factors import Kept

_LARGE = 1 << 22
"""Multiplications from which a product is worth packing a factor for it alone."""
_FEWEST = 64
"""Rows of the first factor from which packing the second is little work beside the product."""
_NARROW = 16
"""Columns and inner dimension from which AMX serves: it computes 32 of them in any case."""
_MOST = 256
"""Rows for which a shared factor is packed; of more, row blocks join products and what follows."""
_KEPT = 1 << 14
_READ = 4
"""Elements from which a factor is worth keeping packed, and work of reading one."""
_BLOCK = 256
"""Inner dimension of one piece: its panels stay in the cache."""


def library(dtype: np.dtype | type = np.float32) -> Library | None:
    """The functions for a dtype; None where it has none, or there is no native library."""
    return native.typed("packed_gemm", dtype)


def task(
    prepared: Prepared,
    a: Any,
    b: Any,
    out: Any,
    alpha: float,
    bias: Any,
    by: Any,
    *,
    kept: Kept | None = None,
) -> team.ParallelTask | None:
    """The product, see `parts.by_task`; None where packing does not pay, or memory does not suit.

    A factor b that stays packed from run to run is not packed by this one; one that is none of the
    prepared ones is packed each time, where the product is large.
    """
    if library(out.dtype) is None or not suited(a, b, out, bias, by):
        return None
    (m, k), n = a.shape, b.shape[1]
    tiled = by_tiles(m, b, out)
    if not (tiled or prepared.in_loop or (m <= _MOST and shared_pays(prepared, b))):
        return None  # outside of loops the other product is as good
    begin = out if by is not None else bias
    if prepared.holds(b):
        # Two views of one array may be two factors, and `alpha` is packed into the panels.
        steps = (b.ctypes.data, b.shape, b.strides, b.dtype, alpha, tiled)
        panels = None if kept is None else _kept_panels(kept, b, alpha, tiled)
        if panels is None:
            panels = prepared.get(steps, lambda: pack(b, alpha, tiled))
        return multiply(a, b, panels, out, begin, alpha, tiled)
    if m >= _FEWEST and m * n * k >= _LARGE:
        return _in_blocks(prepared.buffer, a, b, out, alpha, begin, tiled)
    return None


def packed_each_time(
    a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product where no library has one, see `parts.by_task`."""
    if library(out.dtype) is None or not suited(a, b, out, bias, by):
        return None
    tiled = by_tiles(len(a), b, out)
    return _in_blocks(team.aligned, a, b, out, alpha, out if by is not None else bias, tiled)


def kept_task(
    kept: Kept, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product with a factor that stays packed from run to run, see `parts.by_task`.

    64x784 by 784x512 and 64x512 by 512x512 take 360 us on one core of a Xeon with AMX, 510 without,
    and 540 and 640 where the factors are packed in each run.

    Returns:
        None where memory does not suit, or there is no room.
    """
    if not suited(a, b, out, bias, by):
        return None
    tiled = by_tiles(len(a), b, out)
    panels = _kept_panels(kept, b, alpha, tiled)
    if panels is None:
        return None
    product = multiply(a, b, panels, out, bias if by is None else out, alpha, tiled)
    # Of few rows reading the factor takes longest, which the number of multiplications does not
    # show.
    return team.ParallelTask(product.items, max(product.work, _READ * b.size), product.memory)


def _kept_panels(kept: Kept, b: Any, alpha: float, tiled: bool) -> Any:
    """What `pack` makes of a factor, from run to run; None where it is not kept."""
    # On Intel's processors MKL generates code for small factors. On others it does not, and takes
    # 40 us for 64x512 by 512x10 on one core of an EPYC; packed panels take 12.
    if not kept.holds(b) or (b.size < _KEPT and is_intel()):
        return None
    return kept.get(b, (alpha, tiled), room(b, tiled), lambda: pack(b, alpha, tiled))


def shared_pays(prepared: Prepared, factor: Any) -> bool:
    """Whether a factor that several products of a net share is worth packing without AMX.

    It is for few rows, where MKL's own packing shows: 96x104 by 104x1024 takes 229 us by MKL on one
    core of an EPYC, and 165 here.
    """
    return not is_intel() and factor.size >= _KEPT and prepared.holds(factor)


def suited(a: Any, b: Any, out: Any, bias: Any, by: Any) -> bool:
    """Whether the memory of a product suits tiles."""
    arrays = [a, b, out] if bias is None else [a, b, out, bias]
    if any(not is_host_array(x) or x.dtype != out.dtype for x in arrays):
        return False
    if not a.size or not b.size or not all(array.flags.aligned for array in arrays):
        return False
    if bias is not None and (by is not None or not bias.flags.c_contiguous):
        return False
    size = out.itemsize
    whole = all(step % size == 0 for array in arrays for step in array.strides)
    return whole and (out.shape[1] == 1 or out.strides[1] == size) and _row_step(a) is not None


def _row_step(a: Any) -> tuple[int, int] | None:
    """Distances of a matrix's elements along both axes, one of them 1; None for others."""
    down, right = (stride // a.itemsize for stride in a.strides)
    if right == 1 or a.shape[1] == 1:
        return down, 1
    return (1, right) if down == 1 or a.shape[0] == 1 else None


def by_tiles(m: int, b: Any, out: Any) -> bool:
    """Whether AMX is there, takes b, and is faster."""
    fits = out.dtype == np.float32 and m >= bf16_gemm.FEWEST and min(b.shape) >= _NARROW
    fits = fits and _row_step(b) is not None
    return fits and bf16_gemm.library() is not None


def multiply(
    a: Any, b: Any, panels: Any, out: Any, begin: Any, alpha: float, tiled: bool
) -> team.ParallelTask:
    """out = alpha a b, plus `begin`: a row, an array like `out`, or None.

    Args:
        panels: what `pack` made of b, with the same `alpha` and `tiled`.
    """
    steps = _row_step(a)
    assert steps is not None, "other matrices are left to another product"
    if tiled:
        return bf16_gemm.multiply(a, steps, b, alpha, panels, out, begin)
    (m, k), n = a.shape, b.shape[1]
    fields: dict[str, Any] = {"m": m, "n": n, "k": k, "a": a, "panels": panels, "out": out}
    fields |= {"down": steps[0], "right": steps[1], "begin": begin}
    return team.block_task(m * n * k, native.bind("packed_gemm", out.dtype, "product", **fields))


def _in_blocks(
    memory: Callable[[int], Any],
    a: Any,
    b: Any,
    out: Any,
    alpha: float,
    begin: Any,
    tiled: bool,
) -> team.ParallelTask:
    """The product over pieces of the inner dimension, one after another through the same panels."""
    panels = memory(room(b[:_BLOCK], tiled))
    tasks = []
    for at in range(0, len(b), _BLOCK):
        rows = b[at : at + _BLOCK]
        tasks.append(pack(rows, alpha, tiled, panels)[1])
        tasks.append(multiply(a[:, at : at + _BLOCK], rows, panels, out, begin, alpha, tiled))
        begin = out
    return parts.in_turn(tasks)


def room(b: Any, tiled: bool) -> int:
    """Bytes that the panels of b take; `tiled`: AMX panels."""
    if tiled:
        return bf16_gemm.room(b)
    kernels = library(b.dtype)
    assert kernels is not None, "the caller has seen that it is there"
    columns = kernels.constant("panel")
    return -(-b.shape[1] // columns) * columns * len(b) * b.itemsize


def pack(
    b: Any, alpha: float, tiled: bool = False, panels: Any = None
) -> tuple[Any, team.ParallelTask]:
    """The panels of alpha b and the task that fills them.

    Args:
        tiled: whether for AMX. panels: their memory; None: new one.
    """
    panels = team.aligned(room(b, tiled)) if panels is None else panels
    if tiled:
        return panels, bf16_gemm.pack(b, alpha, panels)
    block = packing(b, alpha, panels)
    return panels, team.block_task(2 * b.size, block)


def packing(b: Any, alpha: float, panels: Any) -> Block:
    """The argument of what fills panels with alpha b."""
    kernels = library(b.dtype)
    assert kernels is not None, "the caller has seen that it is there"
    return bind(kernels, "pack", k=len(b), n=b.shape[1], b=b, panels=panels, alpha=alpha)
