"""Products of few rows with a large matrix (library "native"): its reading is what takes the time.

One row with weights that stay packed from run to run (runtime/plans/kept_factors.py) reads blocks
of their columns, each from its first byte to its last, with all sums in registers. A thread reads
the same blocks in every run: they stay in its own second cache.

Elsewhere each thread reads whole rows of the matrix, one after the other, as memory likes best;
sums over pieces of the inner dimension are added up afterwards. How many pieces there are follows
from the sizes alone, and so no result depends on the number of threads.

Every other call goes through the blocks, or pieces, from the last to the first: of weights that the
second cache does not hold, what was read last is still there. 1x784 by 784x512 and 1x512 by 512x512
take 60 us on one core of a Xeon, one after the other, packed or not, and 73 in one direction; on
two cores 13 packed, and 17 as they lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....framework.base.cpu.threads import most_threads
from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import bind
from ....framework.fusion.compiled.libraries import Library
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.runtime.plans.memory import as_view, panel_memory
from ...linear.matmul import affine, bind_affine, bind_matmul, matmul
from .. import rows
from . import blas, mkl, parts

if TYPE_CHECKING:
    from ....framework.runtime.plans.kept_factors import Kept

_MOST = 4
"""Rows up to which a product is one of few."""
_SMALLEST = 1 << 17
"""Bytes of the matrix from which it is not in a small cache anyway."""
_PIECE = 1 << 18
_PIECES = 16
"""Bytes of the matrix in a piece, and the most pieces."""
_READ = 4
"""Work of reading an element of the matrix."""
_SHARED = 2
"""Blocks of columns for each thread from which threads share them; a piece of rows each is better
where there are fewer."""


def library(dtype: np.dtype | type = np.float32) -> Library | None:
    """The functions for a dtype; None where it has none, or there is no native library."""
    return native.typed("few_rows", dtype)


def _row_step(array: Any) -> int | None:
    """Elements from one row to the next; None where a row's do not lie side by side."""
    if not array.flags.aligned or array.strides[1] != array.itemsize or array.strides[0] < 0:
        return None
    return array.strides[0] // array.itemsize


def task(
    kept: Kept | None, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product, see `parts.by_task`; None where the arrays do not suit.

    Args:
        kept: weights that may stay packed.
    """
    if kept is not None and kept.holds(b):
        kept_product = _kept_task(kept, a, b, out, alpha, bias, by)
        if kept_product is not None:
            return kept_product
    steps = [_row_step(array) for array in (a, b, out)]
    suits = len(a) <= _MOST and b.nbytes >= _SMALLEST and by is None and None not in steps
    if not suits or not rows.suits(out.dtype, bias) or a.dtype != out.dtype or b.dtype != out.dtype:
        return None
    (m, k), n = a.shape, b.shape[1]
    # By the matrix alone, never by the threads: the order of additions, and so the result, stays.
    pieces = max(min(b.nbytes // _PIECE, _PIECES), 1)
    shape = pieces, m, n
    sums = as_view(panel_memory(math.prod(shape) * out.itemsize), (shape, out.dtype))
    # The second function turns the way of the next run round.
    both = {"m": m, "n": n, "pieces": pieces, "sums": sums, "backward": np.zeros(1, np.int64)}
    kernels = library(out.dtype)
    assert kernels is not None, "the caller has seen that it is there"
    reading = bind(kernels, "few", k=k, a=a, b=b, **both)
    adding = bind(kernels, "few_added", out=out, bias=bias, alpha=alpha, **both)
    work = max(_READ * b.size, m * b.size) + max(sums.size, team.ITEM_WORK)
    return team.block_task(work, reading, adding)


def _kept_task(
    kept: Kept, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product of one row with packed weights; None where they are not, or do not suit."""
    (k, n), size = b.shape, b.itemsize
    kernels = library(b.dtype)
    if kernels is None:
        return None
    blocks = -(-n // kernels.constant("wide"))
    lanes = kernels.constant("lanes")
    few = most_threads() > 1 and blocks < _SHARED * most_threads()
    if few or len(a) > 1 or min(b.strides) < 0 or not b.flags.aligned:
        return None
    if not rows.suits(out.dtype, a, out, bias) or not rows.suits(b.dtype, by) or b.dtype != a.dtype:
        return None

    def pack() -> tuple[Any, team.ParallelTask]:
        panels = team.aligned(room)
        block = bind(kernels, "pack_line", k=k, n=n, b=b, panels=panels, alpha=alpha)
        return panels, team.block_task(b.size, block)

    room = -(-n // lanes) * lanes * k * size
    panels = kept.get(b, ("line", alpha), room, pack)
    if panels is None:
        return None
    # Eight words for each: a cache line of its own, or threads that write theirs would wait for
    # each other.
    ways = np.zeros((blocks, 8), np.int64)
    begin = bias if by is None else out
    block = bind(kernels, "line", k=k, n=n, a=a, panels=panels, out=out, begin=begin, ways=ways)
    return team.block_task(_READ * b.size, block)


def _is_one(x: Any, matrix: Any) -> bool:
    """Whether a product is one of few rows with a large matrix."""
    few = x.size <= _MOST * x.shape[-1] if x.ndim else False
    return few and matrix.ndim == 2 and matrix.nbytes >= _SMALLEST and library() is not None


def _other() -> Callable[..., Call]:
    return blas.product if mkl.library() is None else mkl.product


def _product(k: KernelArgs) -> Callable[..., Call]:
    return parts.by_task(partial(task, getattr(k.frame, "kept", None)), _other())


def _affine(k: KernelArgs) -> Call | None:
    one = k.prepared is None and _is_one(k["x"], k["w"])
    return bind_affine(k, _product(k)) if one else None


def _matmul(k: KernelArgs) -> Call | None:
    one = k.prepared is None and _is_one(k["x"], k["y"])
    return bind_matmul(k, _product(k)) if one else None


for _entry, _kernel in ((affine, _affine), (matmul, _matmul)):
    _entry.kernel(_kernel, device="cpu", dtypes=(np.float32, np.float64), library="native")
