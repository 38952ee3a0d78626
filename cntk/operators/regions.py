"""Max pooling of regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.fusion.team import nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator

region_pool = operator(
    "cntk.region_pool",
    doc=(
        "Max pooling of regions of images: each region is cut into `rows` x `cols` parts, and each"
        " part's largest element taken, 0 where it is empty. A region is (x, y, width, height) as"
        " fractions of the image."
    ),
    inputs=[Slot("x", "[N, C, H, W]"), Slot("regions", "[N, R, 4]")],
    outputs=[
        Slot("out", "[N, R, C, rows, cols]", not_in_gradient=True),
        Slot("where", "place of each largest element in its image, -1: none", intermediate=True),
    ],
    attrs=[
        AttrSpec("rows", "int", "parts from top to bottom", minimum=1),
        AttrSpec("cols", "int", "parts from left to right", minimum=1),
    ],
    source="CNTK: ROIPooling, Source/Math/CPUMatrix.cpp",
)


@region_pool.shape_rule
def region_pool_shape(s: ShapeArgs) -> None:
    x, regions = s.rank("x", 4), s.rank("regions", 3)
    rows = s.same("rows of x and regions", x[0], regions[0])
    s.same("numbers of a region", regions[2], 4)
    if 0 in x[2:]:
        s.fail("x has no pixels")
    shape = (rows, regions[1], x[1], s.attrs["rows"], s.attrs["cols"])
    s.set("out", (shape, s.floats("x", "regions")))
    s.set("where", (shape, np.int64))


def _bounds(xp: Any, first: Any, length: Any, parts: int, size: int) -> tuple[Any, Any]:
    """Where the parts of regions begin and end, [N, R, parts], within 0 .. size."""
    begin = xp.trunc(first * size + xp.copysign(0.5, first))[..., None]
    whole = xp.maximum(xp.trunc(length * size + xp.copysign(0.5, length)), 1)
    step = (whole / parts)[..., None]
    number = xp.arange(parts, dtype=first.dtype)
    ends = xp.floor(number * step), xp.ceil((number + 1) * step)
    return tuple(xp.clip(end + begin, 0, size).astype(np.int64) for end in ends)


def _largest(xp: Any, take: Any, first: Any, end: Any, size: int) -> tuple[Any, Any]:
    """The largest of the elements first .. end along an axis, and its number; the first of several.

    Args:
        take: gives the elements [..., a, b] at numbers [...].
    """
    number = xp.minimum(first, size - 1)
    best = take(number)
    where = xp.broadcast_to(number[..., None, None], best.shape).copy()
    for shift in range(1, int((end - first).max())):
        number = xp.minimum(first + shift, size - 1)
        values = take(number)
        better = (values > best) & (first + shift < end)[..., None, None]
        xp.copyto(best, values, where=better)
        xp.copyto(where, number[..., None, None], where=better)
    return best, where


@region_pool.kernel
def region_pool_kernel(k: KernelArgs) -> Call:
    """Along the width first, then along the height."""
    xp = k.xp
    x = k["x"]
    regions = k["regions"]
    out = k["out"]
    where = k.get("where")
    height, width = x.shape[2:]
    if not out.size:
        return nothing
    image = xp.arange(len(x))[:, None, None]
    region = xp.arange(regions.shape[1])[:, None]

    def run() -> None:
        left, top, wide, high = (regions[..., number] for number in range(4))
        columns = _bounds(xp, left, wide, k.attrs["cols"], width)
        rows = _bounds(xp, top, high, k.attrs["rows"], height)
        # [N, R, cols, C, H], then [N, R, rows, cols, C]
        by_row, column = _largest(xp, lambda n: x[image, :, :, n], *columns, width)
        best, row = _largest(xp, lambda n: by_row[image, region, :, :, n], *rows, height)
        empty = (rows[0] >= rows[1])[..., None] | (columns[0] >= columns[1])[:, :, None]
        best[empty] = 0
        out[...] = best.transpose(0, 1, 4, 2, 3)
        if where is not None:
            places = xp.arange(column.shape[2])[:, None], xp.arange(column.shape[3])
            spread = image[..., None, None], region[..., None, None]
            place = row * width + column[(*spread, *places, row)]
            place[empty] = -1
            where[...] = place.transpose(0, 1, 4, 2, 3)

    return run


@region_pool.backward("x")
def region_pool_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    where = k["where"]
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    image = xp.arange(len(where)).reshape(-1, 1, 1, 1, 1)
    channel = xp.arange(x_grad.shape[1]).reshape(1, 1, -1, 1, 1)

    def run() -> None:
        x_grad.fill(0)
        row, column = divmod(xp.maximum(where, 0), x_grad.shape[3])
        xp.add.at(x_grad, (image, channel, row, column), xp.where(where >= 0, grad, 0))

    return run
