"""Rows at fixed time offsets: shapes and views for the operators that read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import KernelArgs
from ....framework.ir.registry import AttrSpec
from .lowered_op import of_indexes

FIRST: Final = AttrSpec(
    "first", "ints", "input row that the first output row reads, for each offset"
)
STRIDE: Final = AttrSpec(
    "stride", "int", "distance of the input rows of neighboring outputs", minimum=1
)
ROWS: Final = AttrSpec("rows", "int", "rows of the output", minimum=0)
OFFSETS: Final = {name: of_indexes(name) for name in ("first", "stride", "rows")}
"""Attributes that are the fields of `OffsetRows`."""


@dataclass(frozen=True)
class OffsetRows:
    """Where the input rows of each time offset begin; they follow one another at `stride`."""

    first: tuple[int, ...]
    stride: int
    rows: int  # of the output


def check_offset_rows(s: ShapeArgs) -> None:
    """Refuse offsets that lead out of x."""
    attrs = s.attrs
    rows = s["x"][0]
    if rows >= 0 and attrs["rows"]:
        last = max(attrs["first"]) + attrs["stride"] * (attrs["rows"] - 1)
        if min(attrs["first"]) < 0 or last >= rows:
            s.fail(f"rows {min(attrs['first'])} to {last} are read and x has {rows}")


def rows_of_offsets(k: KernelArgs, array: Any) -> list[Any]:
    """For each offset, the rows of `array` that the outputs read."""
    attrs = k.attrs
    span = attrs["stride"] * (attrs["rows"] - 1) + 1 if attrs["rows"] else 0
    return [array[at : at + span : attrs["stride"]] for at in attrs["first"]]
