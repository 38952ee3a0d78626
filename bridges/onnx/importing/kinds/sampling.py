"""Sampling of images at places that are data: GridSample, RoiAlign, DeformConv; AffineGrid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers
from .windows import window_pads


def _reflected(n: Call, at: Value, size: int, align: bool) -> Value:
    """Places reflected at the borders of an axis."""
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    if high <= low:
        return n.op("scale", at, scale=0.0)
    span = n.const(high - low, at.dtype)
    away = n.op("abs", n.op("scale", at, bias=-low))
    extra = n.op("fmod", away, span)
    turns = n.op("fmod", n.op("floor", n.op("div", away, span)), n.const(2, at.dtype))
    back = n.op("scale", extra, scale=-1.0, bias=high)
    ahead = n.op("scale", extra, bias=low)
    return n.op("where", n.op("equal", turns, n.const(0, at.dtype)), ahead, back)


def _cubic(n: Call, t: Value) -> list[Value]:
    """The weights of four places, of which the second lies t before the point."""
    a = -0.75
    near = (a + 2, -(a + 3), 0.0, 1.0)
    far = (a, -5 * a, 8 * a, -4 * a)
    coefficients = []
    for factors, turn, shift in ((far, 1, 1), (near, 1, 0), (near, -1, 1), (far, -1, 2)):
        x = n.op("scale", t, scale=float(turn), bias=float(shift))
        weight = n.op("scale", x, scale=factors[0], bias=factors[1])
        for factor in factors[2:]:
            weight = n.op("scale", n.op("mul", weight, x), bias=factor)
        coefficients.append(weight)
    return coefficients


def _linear(n: Call, at: Value) -> list[tuple[Value, Value | None]]:
    """The places before and after a point, and their weights."""
    low = n.op("floor", at)
    ratio = n.op("sub", at, low)
    rest = n.op("scale", ratio, scale=-1.0, bias=1.0)
    return [(low, rest), (n.op("scale", low, bias=1.0), ratio)]


@lowers("GridSample")
def _grid_sample(n: Call) -> Value:
    """Weighted sums of gathered places; the weights carry the gradient of the grid."""
    grid = n[1]
    x = n.cast(n[0], n[1].dtype)
    mode = n.attr("mode", "linear").replace("bilinear", "linear").replace("bicubic", "cubic")
    padding = n.attr("padding_mode", "zeros")
    align = bool(n.attr("align_corners", 0))
    if mode not in ("linear", "cubic", "nearest") or padding not in (
        "zeros", "border", "reflection",
    ):  # fmt: skip
        n.fail(f"mode {mode!r} with padding_mode {padding!r}")
    sizes = x.shape[2:]
    outs = grid.shape[1:-1]
    rank = len(sizes)
    taps: list[list[tuple[Value, Value | None]]] = []
    for axis, size in enumerate(sizes):
        part = n.op("slice", grid, axes=[rank + 1], starts=[rank - 1 - axis], ends=[rank - axis])
        at = n.reshape(part, [x.shape[0], *outs])
        half = (size - 1) / 2 if align else size / 2
        at = n.op("scale", at, scale=half, bias=half if align else half - 0.5)
        if padding == "reflection" and mode != "cubic":
            at = _reflected(n, at, size, align)
        if padding != "zeros" and mode != "cubic":
            at = n.op("clip", at, minimum=0.0, maximum=size - 1.0)
        if mode == "nearest":
            taps.append([(n.op("round", at), None)])
            continue
        if mode == "linear":
            taps.append(_linear(n, at))
            continue
        low = n.op("floor", at)
        weights = _cubic(n, n.op("sub", at, low))
        begin = -1
        places = [n.op("scale", low, bias=float(begin + tap)) for tap in range(len(weights))]
        if padding == "reflection" and mode == "cubic":
            places = [n.op("round", _reflected(n, one, size, align)) for one in places]
        taps.append(list(zip(places, weights, strict=True)))
    perm = [0, *range(2, rank + 2), 1]
    rows = n.reshape(n.op("transpose", x, perm=perm), [-1, x.shape[1]])
    first = np.arange(x.shape[0]).reshape(-1, *[1] * rank) * int(np.prod(sizes))
    weighted = (
        _tap(n, rows, first, combination, sizes, padding == "zeros")
        for combination in itertools.product(*taps)
    )
    total = reduce(partial(n.op, "add"), weighted)
    return n.cast(n.op("transpose", total, perm=[0, rank + 1, *range(1, rank + 1)]), n[0].dtype)


def _tap(
    n: Call,
    rows: Value,
    first: np.ndarray,
    combination: Sequence[tuple[Value, Value | None]],
    sizes: Sequence[int],
    zeros: bool,
) -> Value:
    """One place for each of the grid's points, by its weight."""
    weight: Value | None = None
    ids: Value = n.const(first, np.int64)
    step = int(np.prod(sizes))
    dtype = rows.dtype
    for (place, factor), size in zip(combination, sizes, strict=True):
        step //= size
        inner = n.op("clip", place, minimum=0.0, maximum=size - 1.0)
        whole = n.op("cast", inner, dtype=np.dtype("int64"))
        ids = n.op("add", ids, n.op("mul", whole, n.const(step, np.int64)))
        factors = [] if factor is None else [factor]
        if zeros:
            factors.append(n.op("cast", n.op("equal", place, inner), dtype=dtype))
        for each in factors:
            weight = each if weight is None else n.op("mul", weight, each)
    values = n.op("gather", rows, ids, axis=0)
    if weight is None:
        return values
    return n.op("mul", values, n.reshape(weight, [*weight.shape, 1]))


def _base_grid(sizes: Sequence[int], align: bool) -> np.ndarray:
    """Places of an image from -1 to 1, the last axis first, then a 1: [..., rank + 1]."""
    lines = []
    for size in sizes:
        if align:
            line = np.linspace(-1, 1, size) if size > 1 else np.zeros(1)
        else:
            line = (np.arange(size) * 2 + 1) / size - 1
        lines.append(line)
    grids = np.meshgrid(*lines, indexing="ij")
    return np.stack([*grids[::-1], np.ones(sizes)], -1)


@lowers("AffineGrid")
def _affine(n: Call) -> Value:
    theta = n[0]
    sizes = (n.known_ints(1) or [])[2:]
    base = _base_grid(sizes, bool(n.attr("align_corners", 0))).reshape(1, -1, len(sizes) + 1)
    grid = n.op("matmul", n.const(base, theta.dtype), theta, transpose_y=True)
    return n.reshape(grid, [theta.shape[0], *sizes, len(sizes)])


def _bilinear(image: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values [C, ...] of an image [C, H, W] at places; zeros outside."""
    high, wide = image.shape[1:]
    top, left = np.floor(y), np.floor(x)
    total: Any = 0
    for dy, dx in itertools.product((0, 1), (0, 1)):
        row, column = top + dy, left + dx
        weight = (1 - np.abs(y - row)) * (1 - np.abs(x - column))
        inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
        rows = np.clip(row, 0, high - 1).astype(np.int64)
        columns = np.clip(column, 0, wide - 1).astype(np.int64)
        total = total + image[:, rows, columns] * (weight * inside)
    return total


@evaluates("RoiAlign")
def _roi_align(n: Attributes, x: np.ndarray, rois: np.ndarray, batches: np.ndarray) -> np.ndarray:
    high, wide = n.attr("output_height", 1), n.attr("output_width", 1)
    ratio = n.attr("sampling_ratio", 0)
    scale = n.attr("spatial_scale", 1.0)
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    half = n.attr("coordinate_transformation_mode", default) == "half_pixel"
    is_max = n.attr("mode", "avg") == "max"
    pooled = np.zeros((len(rois), x.shape[1], high, wide), x.dtype)
    for number, (roi, batch) in enumerate(zip(rois, batches, strict=True)):
        left, top, right, bottom = roi.astype(np.float64) * scale - (0.5 if half else 0)
        width, height = right - left, bottom - top
        if not half:
            width, height = max(width, 1.0), max(height, 1.0)
        rows = ratio or int(np.ceil(height / high))
        columns = ratio or int(np.ceil(width / wide))
        y = top + (np.arange(high * rows) + 0.5) * height / (high * rows)
        z = left + (np.arange(wide * columns) + 0.5) * width / (wide * columns)
        pooled[number] = _pooled(x[int(batch)], y, z, (high, rows, wide, columns), is_max)
    return pooled


def _pooled(
    image: np.ndarray,
    y: np.ndarray,
    x: np.ndarray,
    counts: tuple[int, int, int, int],
    is_max: bool,
) -> np.ndarray:
    """Means or maxima of samples of a region; outside by more than a pixel they are zeros."""
    high, wide = image.shape[1:]
    gone = ((y < -1) | (y > high))[:, None] | ((x < -1) | (x > wide))
    rows, columns = np.clip(y, 0, high - 1), np.clip(x, 0, wide - 1)
    grid = np.broadcast_arrays(rows[:, None], columns)
    if not is_max:
        values = np.where(gone, 0, _bilinear(image, *grid))
        return values.reshape(len(image), *counts).mean(axis=(2, 4))
    best: Any = -np.inf  # of the weighted corners, as the reference has it
    top, left = np.floor(grid[0]), np.floor(grid[1])
    for dy, dx in itertools.product((0, 1), (0, 1)):
        row, column = np.minimum(top + dy, high - 1), np.minimum(left + dx, wide - 1)
        weight = np.abs(1 - dy - (grid[0] - top)) * np.abs(1 - dx - (grid[1] - left))
        best = np.maximum(best, image[:, row.astype(np.int64), column.astype(np.int64)] * weight)
    return np.where(gone, 0, best).reshape(len(image), *counts).max(axis=(2, 4))


@lowers("DeformConv")
def _deform(n: Call) -> Value:
    """Products of weights and what bilinear sampling finds at the places that are shifted."""
    x = n[0]
    w = n[1]
    bias = n.get(3)
    mask = n.get(4)
    kernel = w.shape[2:]
    groups = n.attr("group", 1)
    parts = n.attr("offset_group", 1)
    if len(kernel) != 2:
        raise NotHere
    count, channels, *sizes = x.shape
    taps = kernel[0] * kernel[1]
    strides, dilations = n.ints("strides", [1, 1]) or [], n.ints("dilations", [1, 1]) or []
    pads = window_pads(n, sizes, kernel, strides, dilations)
    outs = list(n[2].shape[2:])
    # Channels of one offset group move together: each group is an image of its own.
    images = count * parts
    each = channels // parts
    shifts = n.reshape(n[2], [images, taps, 2, *outs])
    taps_of = list(itertools.product(*map(range, kernel)))
    corners = []
    for axis in range(2):
        line = np.arange(outs[axis]) * strides[axis] - pads[axis][0]
        line = line.reshape([-1, 1] if axis == 0 else [1, -1])
        base = np.stack([line + tap[axis] * dilations[axis] for tap in taps_of])
        shift = n.op("slice", shifts, axes=[2], starts=[axis], ends=[axis + 1])
        shift = n.reshape(shift, [images, taps, *outs])
        corners.append(_linear(n, n.op("add", shift, n.const(base[None], shift.dtype))))
    rows = n.op("transpose", n.reshape(x, [images, each, *sizes]), perm=[0, 2, 3, 1])
    rows = n.reshape(rows, [images * math.prod(sizes), each])
    first = np.arange(images).reshape(-1, 1, 1, 1) * math.prod(sizes)
    values = reduce(
        partial(n.op, "add"),
        (_tap(n, rows, first, corner, sizes, True) for corner in itertools.product(*corners)),
    )
    if mask is not None:
        values = n.op("mul", values, n.reshape(mask, [images, taps, *outs, 1]))
    columns = n.op("transpose", values, perm=[0, 4, 1, 2, 3])
    inner = channels // groups * taps
    columns = n.reshape(columns, [count, groups, inner, math.prod(outs)])
    weights = n.reshape(w, [groups, w.shape[0] // groups, inner])
    product = n.reshape(n.op("matmul", weights, columns), [count, w.shape[0], *outs])
    return product if bias is None else n.op("add", product, n.reshape(bias, [-1, 1, 1]))
