"""Max pooling of regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
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


def _doubled(xp: Any, best: Any, where: Any, axis: int, step: int) -> tuple[Any, Any]:
    """The largest of twice as many elements from each place on, and their places; the first of
    several. What reaches over the end stays.

    Args:
        best, where: of `step` elements along the axis.
    """
    before: Any = (slice(None),) * axis
    here, there = (*before, slice(-step)), (*before, slice(step, None))
    better = best[there] > best[here]
    doubled = best.copy(), where.copy()
    for new, old in zip(doubled, (best, where), strict=True):
        xp.copyto(new[here], old[there], where=better)
    return doubled


def _powers(xp: Any, first: Any, end: Any) -> tuple[Any, Any, Any]:
    """Two ranges that cover another: the logarithm of their length, and where each begins."""
    length = xp.maximum(end - first, 1)
    power = xp.log2(length).astype(np.int64)
    return power, first, first + length - (1 << power)


@region_pool.kernel
def region_pool_kernel(k: KernelArgs) -> Call:
    """Four windows whose sides are powers of two cover a part; their largest elements are found for
    all places first. Channels are last, since parts are gathered."""
    xp = k.xp
    x = k["x"]
    regions = k["regions"]
    out = k["out"]
    where = k.get("where")
    height, width = x.shape[2:]
    if not out.size:
        return nothing
    image = xp.arange(len(x))[:, None, None, None]
    places = xp.arange(height * width, dtype=np.int32).reshape(1, height, width, 1)

    def windows(tall: int, long: int) -> tuple[Any, Any]:
        """For each power of height and width up to these, [powers, powers, N, H, W, C]."""
        pixels = xp.ascontiguousarray(x.transpose(0, 2, 3, 1))
        rows = [[(pixels, xp.broadcast_to(places, pixels.shape))]]
        while 2 << len(rows[0]) - 1 <= long:
            rows[0].append(_doubled(xp, *rows[0][-1], 2, 1 << len(rows[0]) - 1))
        while 2 << len(rows) - 1 <= tall:
            rows.append([_doubled(xp, *each, 1, 1 << len(rows) - 1) for each in rows[-1]])
        best, where = (xp.stack([xp.stack([e[n] for e in row]) for row in rows]) for n in (0, 1))
        return best, where

    def run() -> None:
        left, top, wide, high = (regions[..., number] for number in range(4))
        columns = _bounds(xp, left, wide, k.attrs["cols"], width)
        rows = _bounds(xp, top, high, k.attrs["rows"], height)
        longest = (int((end - begin).max()) for begin, end in (rows, columns))
        largest, place = windows(*longest)
        tall, *above = _powers(xp, xp.minimum(rows[0], height - 1)[..., None], rows[1][..., None])
        long, *beside = _powers(
            xp, xp.minimum(columns[0], width - 1)[:, :, None], columns[1][:, :, None]
        )
        corners = [(tall, long, image, row, column) for row in above for column in beside]
        best, found = largest[corners[0]], place[corners[0]]
        for corner in corners[1:]:
            value, here = largest[corner], place[corner]
            better = (value > best) | ((value == best) & (here < found))
            xp.copyto(best, value, where=better)
            xp.copyto(found, here, where=better)
        empty = (rows[0] >= rows[1])[..., None] | (columns[0] >= columns[1])[:, :, None]
        best[empty] = 0
        out[...] = best.transpose(0, 1, 4, 2, 3)
        if where is not None:
            found[empty] = -1
            where[...] = found.transpose(0, 1, 4, 2, 3)

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
