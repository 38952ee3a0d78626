"""Channels of images in another order, as between the groups of a convolution: three operators that
cut the channels into groups, exchange groups and channels, and join them again.

Source: Zhang et al. 2017, ShuffleNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.sizes.shape import OperatorView
from ...framework.fusion.rows.row_copies import copy_call
from ...framework.ir.kernel_args import Call, KernelArgs
from ..tensor.shape import reshape, transpose

_EXCHANGE = 0, 2, 1, 3, 4


def spans(operators: Sequence[OperatorView]) -> int:
    """Of a reshape and what follows it, how many operators more are such an exchange: 2 or 0."""
    if len(operators) < 3:
        return 0
    cut, turned, joined = operators[:3]
    if (turned.type, joined.type) != (transpose.type, reshape.type):
        return 0
    before, after = tuple(cut.attrs["shape"]), tuple(joined.attrs["shape"])
    # Of two spatial axes alone: heads of attention are exchanged with times the same way.
    if tuple(turned.attrs["perm"]) != _EXCHANGE or len(before) != 5 or len(after) != 4:
        return 0
    if before[3:] != after[2:]:
        return 0
    follow = (
        turned.inputs["x"] == cut.outputs["out"] and joined.inputs["x"] == turned.outputs["out"]
    )
    return 2 if follow else 0


def channel_shuffle(k: KernelArgs) -> Call | None:
    """The three operators as one copy; None for others, or where anything but channels is cut."""
    if len(k.tail) != 2:
        return None
    x, out = k["x"], k.tail[1]["out"]
    shape = k.shape("out")
    batch, channels, *plane = x.shape
    if out.shape != x.shape or shape != (batch, shape[1], shape[2], *plane):
        return None
    groups, size = shape[1], shape[2]
    if groups * size != channels:
        return None
    # Views, as one axis is cut into two.
    source: Any = x.reshape((batch, groups, size, *plane))
    target: Any = out.reshape((batch, size, groups, *plane))
    return copy_call(k.xp, source.swapaxes(1, 2), target)
