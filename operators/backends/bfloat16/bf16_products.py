"""Products of float32 matrices by tiles of bf16 terms, outside of loops; see `bf16_gemm`.

It is not known whether a factor is the same in the next run: the second one is packed for each
product, which is little work beside one of 64 rows or more. What stays packed from run to run is
in `packed_gemm.kept_task`.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ....framework.fusion import team
from ....framework.fusion.rows import row_blocks
from ....framework.fusion.rows.row_blocks import ByRows
from ....framework.runtime.plans.memory import panel_memory
from ..products import parts
from . import bf16_gemm

_LEAST = 1 << 20
_FEWEST = 96
_NARROWEST = 32
"""Multiplications, rows, and columns and inner dimension from which a product gains by tiles."""
_FEW = 64
_HEAVY = 1 << 18
"""Rows from which it also gains with a second factor of so many elements, which goes through the
cache block by block."""
_MOST = 1 << 20
"""Bytes of packed tiles that a product keeps for itself; larger factors go block by block."""


def task(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any
) -> team.ParallelTask | None:
    """The product as one task, in blocks of rows where that can be; None where others are better.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
    """
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    heavy = b.size >= _HEAVY
    if m < (_FEW if heavy else _FEWEST) or min(n, k) < _NARROWEST or m * n * k < _LEAST:
        return None
    if out.dtype != np.float32 or bf16_gemm.library() is None:
        return None
    return by_terms(bf16_gemm.THREE, arrays, how, factors, bias)


class Tiles:
    """The tiles of a first factor that several products have, one after another.

    They lie at the start of the memory that every `panel_memory(..., in_turn=False)` gets; these
    products take theirs after it. From the one that splits the factor to the last one that reads
    its tiles nothing may take that memory from its start. The library that computes small products
    between them takes it only for a single row, of which no tiles are made.

    Attributes:
        pieces: memory of the tiles of each piece.
        nbytes: of all pieces.
    """

    def __init__(self) -> None:
        self.pieces: list[Any] = []
        self.nbytes = 0
        self._key: Any = None

    def are_new(self, pieces: list[Any], terms: int) -> bool:
        """Whether these pieces of a factor must be split: no product before this has them."""
        key = terms, *((one.ctypes.data, one.shape, one.strides) for one in pieces)
        if key == self._key:
            return False
        self._key = key
        ends = list(accumulate(bf16_gemm.room_for_tiles(one, terms) for one in pieces))
        self.nbytes = ends[-1]
        whole = panel_memory(self.nbytes)
        self.pieces = [whole[begin:end] for begin, end in pairwise((0, *ends))]
        return True


def by_terms(
    terms: int,
    arrays: parts.Arrays,
    how: parts.Layouts,
    factors: tuple[float, float],
    bias: Any,
    shared: Tiles | None = None,
) -> team.ParallelTask:
    """The product of numbers of so many terms, which the machine has; arguments as of `task`.

    Args:
        shared: tiles of the first factor, which other products also multiply.
    """
    begin: Any = None
    if bias is not None:
        # Tiles load a row of 32 numbers as it lies.
        begin = parts.side_by_side(bias)
    elif factors[1]:
        begin = arrays[2]
    # A first factor that lies in columns has its rows spread over all of its memory: no blocks of
    # rows. Nor where all of it is split before.
    if not how[0][0] and shared is None:
        by_rows = _by_rows(terms, arrays, how, factors[0], begin)
        if by_rows is not None:
            return by_rows
    return _in_blocks(terms, arrays, how, factors[0], begin, shared)


def _steps(how: parts.Layouts) -> tuple[int, int]:
    """Distances of the first factor's elements along rows and columns."""
    return (1, how[1][0]) if how[0][0] else (how[1][0], 1)


def _by_rows(
    terms: int, arrays: parts.Arrays, how: parts.Layouts, alpha: float, begin: Any
) -> team.ParallelTask | None:
    a, b, out = arrays
    reads, writes = row_blocks.span(a), row_blocks.span(out)
    if reads is None or writes is None or bf16_gemm.room(b, terms) > _MOST:
        return None
    # In turn: products that are done together in blocks of rows hold their panels at the same time.
    panels = panel_memory(bf16_gemm.room(b, terms), in_turn=True)
    packing = bf16_gemm.pack(b, alpha, panels, terms)
    work = bf16_gemm.multiply(
        a, _steps(how), b, alpha, panels, out, begin, by_rows=True, terms=terms
    )
    spans = [reads, row_blocks.whole(b)]  # the factor itself too: for what tiles cannot hold
    if begin is not None:
        spans.append(writes if begin is out else row_blocks.whole(begin))
    owners = arrays, begin, packing.memory, work.memory
    given = (row_blocks.whole(b),)
    packed = row_blocks.whole(panels)
    by = ByRows(
        a.shape[0], work.items, tuple(spans), (writes,), owners, packing.items, given, (packed,)
    )
    return team.rows_task(by, packing.work + work.work)


def _in_blocks(
    terms: int,
    arrays: parts.Arrays,
    how: parts.Layouts,
    alpha: float,
    begin: Any,
    shared: Tiles | None,
) -> team.ParallelTask:
    """The product over pieces of the inner dimension and of the columns, one after another."""
    a, b, out = arrays
    k, n = b.shape
    deep, wide = bf16_gemm.block(terms)
    tops = [deep * piece for piece in range(-(-k // deep))]
    pieces = [a[:, top : top + deep] for top in tops]
    split = shared is not None and shared.are_new(pieces, terms)
    tiles = [None] * len(pieces) if shared is None else shared.pieces
    taken = 0 if shared is None else shared.nbytes
    panels = panel_memory(taken + bf16_gemm.room(b[:deep, :wide], terms))[taken:]
    tasks = []
    for left in range(0, n, wide):
        cols = slice(left, left + wide)
        block = out[:, cols]
        first = None if begin is None else begin[..., cols]
        for top, factor, own in zip(tops, pieces, tiles, strict=True):
            rows = b[top : top + deep, cols]
            tasks.append(bf16_gemm.pack(rows, alpha, panels, terms))
            task = bf16_gemm.multiply(
                factor,
                _steps(how),
                rows,
                alpha,
                panels,
                block,
                first,
                fresh=True,
                terms=terms,
                tiles=own,
                split=split and not left,
            )
            tasks.append(task)
            # From the second piece on the product adds to what the first one has written.
            first = block
    return parts.in_turn(tasks)
