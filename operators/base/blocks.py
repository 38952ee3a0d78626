"""Matrices as blocks of columns or chunks of rows: views and rules that several operators share."""

from __future__ import annotations

from typing import Any

from ...framework.base.sizes.shape import ShapeArgs

CHUNK_BYTES = 32 << 20
"""Memory that patches of images may take at a time."""


def blocks_of(array: Any, width: int) -> Any:
    """A matrix [N, B*width] as [N, B, width]: a view, whatever its strides are."""
    rows, cols = array.shape
    return array.reshape(rows, cols // width, width)


def divided(s: ShapeArgs, parts: int, what: str) -> None:
    """Shape rule of operators that make one column of `parts` columns: [N, D*parts] -> [N, D]."""
    rows, cols = s.rank("x", 2)
    if cols >= 0 and cols % parts:
        s.fail(f"the {cols} columns of x do not fall into {what}")
    s.set("out", ((rows, cols // parts if cols >= 0 else -1), s.floats("x")))


def whole_blocks(s: ShapeArgs) -> int:
    """How many blocks of the attribute `block` columns x has; -1 where that is unknown."""
    cols = s.rank("x", 2)[1]
    block = s.attrs["block"]
    if cols >= 0 and cols % block:
        s.fail(f"the {cols} columns of x are no multiple of block={block}")
    return cols // block if cols >= 0 else -1


def blocks_across(s: ShapeArgs, cols: int, width: int, of: str, slot: str = "x") -> int:
    """How many blocks of `width` columns, which is `of`, a slot has; -1 where that is unknown."""
    if width == 0 or (min(cols, width) >= 0 and cols % width):
        s.fail(f"the {cols} columns of {slot} are no multiple of {width}, {of}")
    return cols // width if min(cols, width) >= 0 else -1


def chunks_of(rows: int, row_bytes: int) -> list[slice]:
    """Ranges of rows whose patches fit into `CHUNK_BYTES`."""
    step = max(1, CHUNK_BYTES // max(row_bytes, 1))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]
