"""Products in blocks of rows, whose second factor is packed once for all blocks of a call.

A block of the result is there, in the cache, before the next one is begun: what follows the product
may take it from there (`framework/fusion/rows/row_blocks.py`). Large products are MKL's, which
packs a factor for several calls (`cblas_sgemm_pack`); others are our own tiles, which pack a panel
of the factor right before the first block multiplies with it.

On one core of a Xeon with AVX-512, whole and in blocks of 192 rows, in Gflop/s: 3584x1536 by
1536x512 186 and 184 by MKL, 174 by tiles; 64x784 by 784x512 121 by MKL at once, 136 by tiles.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ....framework.base.cpu.cores import is_intel
from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import NotTracedError, Several, Standing, is_host_array
from ....framework.fusion.rows import row_blocks
from ....framework.fusion.rows.row_blocks import ByRows
from ....framework.ir.kernel_args import Call
from ....framework.runtime.plans.memory import padded, panel_memory
from ..bfloat16 import bf16_products
from . import packed_gemm, parts, vector_products

_LETTERS = {"float32": "s", "float64": "d"}
_LEAST = 1 << 22
_PANEL = 48
_WHOLE = 480
"""Multiplications from which a product is done so. Its columns are whole panels, or whole vectors
on processors that are not Intel's, or so many that part of a panel is no matter: it takes nearly as
long as a whole one where a core starts two products of vectors at a time."""
_FEW = 128
_FILLED = 1 << 24
"""Rows up to which tiles are faster than MKL at once, and the multiplications which that takes: for
fewer MKL makes code of the shape."""
_TALL = 1000
"""Rows from which blocks are: before, packing a factor of its own weighs more than the cache."""
_WIDE, _DEEP = 160, 384
"""Columns and inner dimension from which it is MKL's, where that is there."""
_PIECE = 512
"""Inner dimension of one piece of our own: a panel of it stays near."""
_BLOCK = 256
_CBLAS = 101, 162  # row major; the second factor, as in mkl_cblas.h


@functools.lru_cache(maxsize=512)
def _gemm(
    dtype: str, transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> parts.NativeGemm:
    return parts.NativeGemm("row_products", "small_product", dtype, transposed, factors, sizes)


def make_gemm(
    dtype: str, transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> parts.NativeGemm:
    """A small product on one thread, by our own tiles; see `parts.Gemm`."""
    return _gemm(dtype, transposed, factors, sizes)


def first_way(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any, mkl: Any
) -> team.ParallelTask | None:
    """The product by the first of our own ways that suits; arguments as of `task`.

    Returns:
        None where a library's product is better.
    """
    return (
        vector_products.task(arrays, how, factors, bias)
        or vector_products.few_rows(arrays, how, factors, bias, mkl is not None)
        or bf16_products.task(arrays, how, factors, bias)
        # On one core of an EPYC a TDNN's forward pass takes 235 ms by MKL's blocks, 207 by ours.
        or task(arrays, how, factors, bias, mkl if is_intel() else None)
    )


def of_neighbors(rows: Any, count: int, b: Any, out: Any, bias: Any) -> Call | None:
    """out[r] = [rows[r], rows[r + 1], ... `count` of them] b, plus a bias: one product of rows that
    overlap, for which libraries want a copy.

    On one core of an EPYC, two rows of 64 by 128x768 take 662 us for 348 results; a product of each
    and the second added to the first take 709.

    Returns:
        None where products of the single rows are better, or memory does not suit.
    """
    (m, n), k = out.shape, len(b)
    arrays = (rows, b, out) if bias is None else (rows, b, out, bias)
    if is_intel() or not all(map(is_host_array, arrays)) or m * n * k < _LEAST:
        return None
    if rows.strides != (k // count * rows.itemsize, rows.itemsize):
        return None
    if not all(array.flags.aligned for array in arrays):
        return None
    if any(isinstance(array, Standing) for array in arrays):
        raise NotTracedError("rows that overlap")
    a = np.lib.stride_tricks.as_strided(rows, (m, k), rows.strides)
    turned = (0, int(b.strides[0] == b.itemsize)), (0, 0, 0)  # of the steps, tiles need none
    factors = 1.0, 0.0 if bias is None else 1.0
    return task((a, b, out), turned, factors, bias, None)


def task(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any, mkl: Any
) -> team.ParallelTask | None:
    """The product in blocks of rows; None where it is better done, or can only be done, at once.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
        mkl: MKL's library, or None.
    """
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    if m * n * k < (_FILLED if m <= _FEW else _LEAST) or k > m * _PIECE:
        return None
    by_mkl = mkl is not None and m >= _TALL and n > _WIDE and k >= _DEEP
    functions = native.typed("mkl_rows" if by_mkl else "row_products", out.dtype)
    if functions is None or (mkl is not None and (how[0][0] or _FEW < m < _TALL)):
        return None
    if n < _WHOLE:
        lanes = _PANEL if is_intel() else functions.constant("lanes")
        # Where the first factor lies in columns, MKL takes longer by a tenth to a half, the more
        # the fewer columns the second has.
        if n % lanes and not (how[0][0] and n > 2 * lanes):
            return None
    # A first factor that lies in columns is packed, some rows at a time.
    reads = row_blocks.whole(a) if how[0][0] else row_blocks.span(a)
    writes = row_blocks.span(out)
    if reads is None or writes is None:
        return None
    begin = None
    if bias is not None:
        begin = parts.side_by_side(bias)
    spans = [reads] if begin is None else [reads, row_blocks.whole(begin)]
    if factors[1] and bias is None:
        spans.append(writes)
    if by_mkl:
        before, items, panels, memory = _by_mkl(arrays, how, factors, begin, mkl)
    else:
        before, items, panels, memory = _by_tiles(arrays, factors, begin)
    given = (row_blocks.whole(b),)
    owners = (arrays, memory, panels, begin)
    packed = (row_blocks.whole(panels),)
    by = ByRows(m, items, tuple(spans), (writes,), owners, before, given, packed)
    return team.rows_task(by, m * n * k)


_Items = tuple[tuple[int, int], ...]
_Rows = tuple[_Items, _Items, Any, Any]
"""Items that pack the second factor, items that multiply, the panels, and other memory."""


def _by_tiles(arrays: parts.Arrays, factors: tuple[float, float], bias: Any) -> _Rows:
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    begin = out if bias is None and factors[1] else bias
    count = -(-k // _PIECE)
    each = -(-k // count)
    pieces = [b[at : at + each] for at in range(0, k, each)]
    rooms = [padded(packed_gemm.room(piece, tiled=False)) for piece in pieces]
    rest = whole = panel_memory(sum(rooms), in_turn=True)
    packing = []
    for piece, room in zip(pieces, rooms, strict=True):
        packing.append(packed_gemm.packing(piece, factors[0], rest[:room]))
        rest = rest[room:]
    fields: dict[str, Any] = {"m": m, "n": n, "k": k, "a": a, "out": out, "begin": begin}
    fields |= {"each": each, "count": len(pieces), "pieces": Several.of(packing)}
    block = native.bind("row_products", out.dtype, "rows", **fields)
    return (block.item_of("panels"),), (block.item,), whole, block


def _by_mkl(
    arrays: parts.Arrays,
    how: parts.Layouts,
    factors: tuple[float, float],
    bias: Any,
    mkl: Any,
) -> _Rows:
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    letter = _LETTERS[out.dtype.name]
    size = getattr(mkl, f"cblas_{letter}gemm_pack_get_size")
    size.restype = ctypes.c_size_t
    height = min(m, _BLOCK)  # MKL lays the factor out for so many rows at a time
    room = size(_CBLAS[1], *(ctypes.c_int(one) for one in (height, n, k)))
    packed = panel_memory(room, in_turn=True)
    pack, compute = (
        ctypes.cast(getattr(mkl, f"cblas_{letter}gemm_{name}"), ctypes.c_void_p).value
        for name in ("pack", "compute")
    )
    fields: dict[str, Any] = {"m": m, "n": n, "k": k, "a": a, "b": b.T if how[0][1] else b}
    fields |= {"b_turned": how[0][1], "panels": packed, "out": out, "bias": bias, "high": height}
    fields |= zip(("a_step", "b_step", "out_step"), how[1], strict=True)
    fields |= {"pack": pack, "multiply": compute, "alpha": factors[0], "beta": factors[1]}
    block = native.bind("mkl_rows", out.dtype, "mkl_rows", **fields)
    return (block.item_of("mkl_pack"),), (block.item,), packed, block
