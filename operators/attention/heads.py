"""Heads: the columns of an array in equal parts, each of which attends by itself."""

from __future__ import annotations

from typing import Any

from ...framework.base.sizes.shape import Shape, ShapeArgs
from ...framework.ir.registry import AttrSpec

HEADS = AttrSpec(
    "heads",
    "int",
    "number of heads that lie side by side in the columns; 0: heads, if any, are an axis",
    0,
    minimum=0,
)


def split_heads(array: Any, heads: int) -> Any:
    """A view [N, heads, T, d] of [N, T, heads d]; without `heads` the array itself."""
    if not heads:
        return array
    count, steps, width = array.shape
    # To split an axis is a view whatever the strides are, so what is written to it is written to
    # the array: heads need no copy on the way in or out.
    return array.reshape(count, steps, heads, width // heads).transpose(0, 2, 1, 3)


def head_shape(s: ShapeArgs, slot: str) -> Shape:
    """The shape of `split_heads` of an input, at least [T, d]."""
    shape = s[slot]
    heads = s.attrs["heads"]
    if not heads:
        if len(shape) < 2:
            s.fail(f"{slot} wants 2 dimensions or more, [..., steps, width]")
        return shape
    count, steps, width = s.rank(slot, 3)
    # A width of -1 is unknown while a net is built, and divides by anything.
    if width % heads and width >= 0:
        s.fail(f"the {width} columns of {slot} do not divide by {heads} heads")
    return count, heads, steps, width // heads if width >= 0 else -1
