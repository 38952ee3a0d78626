"""Products of float32 matrices by instructions for bf16, which add products up in float32.

A float32 number is the sum of three bf16 numbers, each the rounded rest of those before. Of the
nine products of such parts six are computed; the other three are below float32's last bit. So the
result is as accurate as one of float32 arithmetic; AMX, which multiplies tiles, has it at two to
three times the speed of AVX-512.

Tiles of the second factor are packed side by side, once where it is constant; tiles of the first
are split during the product, 64 rows at a time. A chunk is 32 elements of the inner dimension; a
lane of a tile holds a pair of them, j and j + 16. Values of 2^127 on, infinity and NaN cannot be
split: parts of a product in which one occurs are computed as they are.

The same code with one term for a number, its nearest bf16, computes the products of the library
bf16 (see `bf16`): a sixth of the multiplications, and nothing is converted but what is packed.
AVX512-BF16 reads the same tiles, rows of vectors to it, and multiplies twice as fast as AVX-512
on a Zen 4; on Intel's cores, half as fast (see `is_faster`).

Source: Intel's manual of instruction set extensions, chapter 3 (AMX); Henry, Tang and Heinecke,
"Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019.
"""

from __future__ import annotations

from typing import Any

from ....framework.base.cpu.cores import is_intel
from ....framework.base.cpu.threads import most_threads
from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import bind
from ....framework.fusion.compiled.libraries import Library

FEWEST = 12
"""Rows of the first factor from which AMX is faster: below, reading the second one takes longest,
and a packed element of it takes 6 bytes here."""
THREE, ONE = 3, 1
"""Terms of a number: bf16 numbers whose sum it is, or the one that is nearest to it."""

_PANEL = 32
_CHUNK = 32
_CHUNK_BYTES = 2 * 1024
_LINE = 64
_SPLIT = 256
_SHARED = 4 * team.ITEM_WORK
"""Rows up to which threads take columns each, and the work from which they do: the tiles of the
first factor are made for all."""


def library(terms: int = THREE) -> Library | None:
    """The native functions for numbers of so many terms; None where there are none.

    Three terms need AMX, and the option `amx`; one term needs at least AVX512-BF16.
    """
    return native.load("bf16_gemm", str(terms))


def is_faster() -> bool:
    """Whether numbers of one term, which are served here, are multiplied faster than float32.

    Intel's cores begin a product of two vectors of bf16 every second cycle, and in each two of
    float32, which have half as many numbers. Only Cooper Lake may be faster; it was not measured.
    """
    return library() is not None or not is_intel()


def _of(terms: int) -> Library:
    gemm = library(terms)
    assert gemm is not None, "the caller has seen that it is there"
    return gemm


def block(terms: int) -> tuple[int, int]:
    """Inner dimension and columns of a block whose tiles stay in the cache."""
    _, deep, wide = _of(terms).words("sizes", 3)
    return deep, wide


def room(b: Any, terms: int = THREE) -> int:
    """Bytes that the packed tiles of b take."""
    k, n = b.shape
    panels = -(-n // _PANEL)
    return panels * (-(-k // _CHUNK) * terms * _CHUNK_BYTES + 8)


def pack(b: Any, alpha: float, panels: Any, terms: int = THREE) -> team.ParallelTask:
    """The task that fills `panels` with the tiles of alpha b."""
    k, n = b.shape
    block = bind(_of(terms), "pack_tiles", k=k, n=n, b=b, panels=panels, alpha=alpha)
    return team.block_task(4 * b.size, block)


def room_for_tiles(a: Any, terms: int) -> int:
    """Bytes that the tiles of a first factor take, in whole cache lines."""
    m, k = a.shape
    count = -(-m // _PANEL) * -(-k // _CHUNK)
    return -(-count * (terms * _CHUNK_BYTES + 8) // _LINE) * _LINE


def multiply(
    a: Any,
    steps: tuple[int, int],
    b: Any,
    alpha: float,
    panels: Any,
    out: Any,
    begin: Any,
    by_rows: bool = False,
    fresh: bool = False,
    terms: int = THREE,
    tiles: Any = None,
    split: bool = True,
) -> team.ParallelTask:
    """The task out = alpha a b, plus `begin`: a row, an array like `out`, or None.

    Args:
        steps: distances of a's elements along both axes, one of them 1.
        panels: the tiles of alpha b.
        by_rows: whether its item is for blocks of rows (see framework/fusion/rows/row_blocks.py).
        fresh: whether the panels are packed right before. terms: of the panels.
        tiles: memory for the tiles of a, see `room_for_tiles`; None: it is split while it is
            multiplied. split: whether the task fills them; else an earlier one has.
    """
    names = ["rows_tiles" if by_rows else "product_tiles"]
    gemm = _of(terms)
    # Work is that of one AVX-512 product; three terms have six products.
    work = out.size * b.shape[0] * (6 if terms == THREE else 1) // gemm.words("sizes", 1)[0]
    several = most_threads() > 1 and work >= _SHARED
    # Else each thread would split the same rows for its own columns.
    if tiles is None and several and not by_rows and not fresh and a.shape[0] <= _SPLIT:
        tiles = team.aligned(room_for_tiles(a, terms))
    if tiles is not None and split:
        names.insert(0, "split_tiles")
    fields: dict[str, Any] = {"m": a.shape[0], "n": b.shape[1], "k": b.shape[0], "a": a, "b": b}
    fields |= {"a_down": steps[0], "a_right": steps[1], "panels": panels, "alpha": alpha}
    fields |= {"out": out, "begin": begin, "tiles": tiles, "fresh": fresh}
    block = bind(gemm, names[-1], **fields)
    return team.ParallelTask(tuple(map(block.item_of, names)), work, block)
