"""Shapes: reshaping, joining, cutting, padding, space and depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .....framework.base.sizes.dims import Dim
from ..calls import Adds, Attributes, Call, Value, lowers
from .constants import line
from .linear import broadcast


def _new_shape(n: Attributes, x: Sequence[int], wanted: Sequence[int]) -> list[int]:
    dims = list(wanted)
    if not n.attr("allowzero", 0):
        dims = [x[i] if dim == 0 and i < len(x) else dim for i, dim in enumerate(dims)]
    if dims.count(-1) == 1:
        rest = math.prod([dim for dim in dims if dim != -1])
        dims[dims.index(-1)] = math.prod(x) // rest if rest else 0
    if math.prod(dims) != math.prod(x) or min(dims, default=0) < 0:
        n.fail(f"{list(x)} cannot be reshaped to {list(wanted)}")
    return dims


@lowers("Reshape")
def _reshape(n: Call) -> Value:
    wanted = n.known_ints(1) if n.version >= 5 else n.ints("shape")
    return n.reshape(n[0], _new_shape(n, n[0].shape, wanted or []))


@lowers("Flatten")
def _flatten(n: Call) -> Value:
    shape = n[0].shape
    axis = n.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        n.fail(f"axis {axis} of {len(shape)} dimensions")
    axis += len(shape) if axis < 0 else 0
    return n.reshape(n[0], [math.prod(shape[:axis]), math.prod(shape[axis:])])


def _squeezed(n: Attributes, shape: Sequence[int], axes: Sequence[int] | None) -> list[int]:
    if axes is None:
        return [dim for dim in shape if dim != 1]
    gone = {n.axis(int(axis), len(shape)) for axis in axes}
    for axis in gone:
        if shape[axis] != 1:
            n.fail(f"axis {axis} of {list(shape)} is not of size 1")
    return [dim for axis, dim in enumerate(shape) if axis not in gone]


def _unsqueezed(n: Attributes, shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    rank = len(shape) + len(axes)
    new = {n.axis(int(axis), rank) for axis in axes}
    if len(new) != len(axes):
        n.fail(f"axes {list(axes)} come twice")
    rest = iter(shape)
    return [1 if axis in new else next(rest) for axis in range(rank)]


@lowers("Squeeze", "Unsqueeze")
def _squeeze(n: Call) -> Value:
    given = n.ints("axes") if n.get(1) is None else n.known_ints(1)
    if n.node.op == "Squeeze":
        return n.reshape(n[0], _squeezed(n, n[0].shape, given))
    return n.reshape(n[0], _unsqueezed(n, n[0].shape, given or []))


@lowers("Transpose")
def _transpose(n: Call) -> Value:
    perm = n.ints("perm") or list(range(n[0].ndim))[::-1]
    if perm == list(range(n[0].ndim)):
        return n[0]
    return n.op("transpose", n[0], perm=perm)


@lowers("Expand")
def _expand(n: Call) -> Value:
    dims = broadcast(n, n[0].shape, n.known_ints(1) or [])
    x = n[0]
    if tuple(dims) == x.shape:
        return x
    new = len(dims) - x.ndim
    shape = [1] * new + list(x.shape)
    varying = [
        axis
        for axis, (dim, own) in enumerate(zip(dims, shape, strict=True))
        if isinstance(dim, Dim) and not dim.is_same(own)
    ]
    if not varying:
        return n.op("expand", x, shape=dims)
    if new:
        x = n.op("unsqueeze", x, axes=list(range(new)))
    plain = [1 if axis in varying else dim for axis, dim in enumerate(dims)]
    if plain != shape:
        x = n.op("expand", x, shape=plain)
    for axis in varying:  # its one place, so many times
        x = n.op("gather", x, n.following(_zeros, [dims[axis]], np.int64, dims[axis]), axis=axis)
    return x


def _zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.int64)


@lowers("Tile")
def _tile(n: Call) -> Value:
    return n.op("tile", n[0], repeats=n.known_ints(1))


@lowers("Concat")
def _concat(n: Call) -> Value:
    values = [n[i] for i in range(len(n.inputs))]
    if len({value.dtype for value in values}) > 1:
        n.fail("its inputs are of different types")
    axis = n.axis(n.attr("axis", 1), values[0].ndim)
    kept = [value for value in values if value.shape[axis]] or values[:1]
    return kept[0] if len(kept) == 1 else n.op("concat", kept, axis=axis)


@lowers("Split")
def _split(n: Call) -> list[Value]:
    x = n[0]
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    parts = n.ints("split") if n.get(1) is None else n.known_ints(1)
    if parts is None:
        part = -(-x.shape[axis] // n.attr("num_outputs", n.outputs))
        parts = [min(part, max(x.shape[axis] - i * part, 0)) for i in range(n.outputs)]
    if sum(parts) != x.shape[axis] or len(parts) != n.outputs:
        n.fail(f"parts {parts} of {x.shape[axis]} for {n.outputs} outputs")
    if len(parts) == 1:
        return [x]
    pieces = []
    begin = 0
    for part in parts:
        pieces.append(n.op("slice", x, axes=[axis], starts=[begin], ends=[begin + part]))
        begin += part
    return pieces


@lowers("Slice")
def _slice(n: Call) -> Value:
    x = n[0]
    if n.version < 10:
        starts = n.ints("starts")
        ends = n.ints("ends")
        axes = n.ints("axes")
        steps = None
    else:
        starts, ends, axes, steps = (n.known_ints(i) for i in (1, 2, 3, 4))
    starts, ends = starts or [], ends or []
    given = zip(
        range(len(starts)) if axes is None else [n.axis(axis, x.ndim) for axis in axes],
        starts, ends, [1] * len(starts) if steps is None else steps, strict=True,
    )  # fmt: skip
    cut = [(axis, *span) for axis, *span in given if not _is_whole(span, x.shape[axis])]
    for axis, start, end, step in [one for one in cut if _varies(one, x.shape[one[0]])]:
        # Places that are no fixed distance from either end: they are listed for each size.
        size = x.shape[axis]
        first, last = _place(start, size), _place(end, size)
        count = -((first - last) // step)
        count = count if count > 0 else 0
        places = n.following(partial(line, step, np.int64), [count], np.int64, first, count)
        x = n.op("gather", x, places, axis=axis)
        cut = [one for one in cut if one[0] != axis]
    if not cut:
        return x
    spans = zip(("axes", "starts", "ends", "steps"), zip(*cut, strict=True), strict=True)
    attrs: dict[str, Any] = {name: list(numbers) for name, numbers in spans}
    return n.op("slice", x, **attrs)


def _varies(cut: Sequence[Any], size: Any) -> bool:
    """Whether a slice, (axis, start, end, step), begins or ends at a varying distance from both
    ends of its axis."""
    _, start, end, step = cut
    return (
        not isinstance(step, Dim)
        and step > 0
        and any(isinstance(at, Dim) and isinstance(at - size, Dim) for at in (start, end))
    )


def _place(at: Any, size: Any) -> Any:
    """A bound of a slice, counted from the front and within the axis."""
    if at < 0:
        at = at + size
        return at if at > 0 else 0
    return size if at > size else at


def _is_whole(span: Sequence[int], size: int) -> bool:
    """Whether a slice, (start, end, step), is all of an axis."""
    start, end, step = span
    return step == 1 and (start == 0 or start <= -size) and (end >= size)


def _pads(
    n: Attributes, rank: int, given: Sequence[int], axes: Sequence[int] | None
) -> list[tuple[int, int]]:
    which = list(range(rank)) if axes is None else [n.axis(int(axis), rank) for axis in axes]
    if len(given) != 2 * len(which):
        n.fail(f"{len(given)} pads for {len(which)} axes")
    pads = [(0, 0)] * rank
    for number, axis in enumerate(which):
        pads[axis] = int(given[number]), int(given[len(which) + number])
    return pads


@lowers("Pad")
def _pad(n: Call) -> Value:
    x = n[0]
    if n.version < 11:
        given = n.ints("pads") or n.ints("paddings")
        value = n.attr("value", 0.0)
        axes = None
    else:
        given, axes = n.known_ints(1), n.known_ints(3)
        fill = n.known(2)
        value = 0 if fill is None or not fill.size else fill.reshape(-1)[0].item()
    return padded(n, x, _pads(n, x.ndim, given or [], axes), n.attr("mode", "constant"), value)


def padded(
    n: Adds,
    x: Value,
    widths: Sequence[tuple[int, int]],
    mode: str = "constant",
    value: Any = 0,
) -> Value:
    """A value with some elements more at both ends of each axis, or fewer where that is below 0."""
    if any(w < 0 for pair in widths for w in pair):
        starts = [max(-a, 0) for a, _ in widths]
        ends = [dim - max(-b, 0) for dim, (_, b) in zip(x.shape, widths, strict=True)]
        x = n.op("slice", x, axes=list(range(x.ndim)), starts=starts, ends=ends)
    if 0 in x.shape and any(dim + a + b == 0 for dim, (a, b) in zip(x.shape, widths, strict=True)):
        whole = [dim + max(a, 0) + max(b, 0) for dim, (a, b) in zip(x.shape, widths, strict=True)]
        return n.const(np.zeros(whole), x.dtype)
    flat = [max(w, 0) for pair in widths for w in pair]
    if not any(flat):
        return x
    if mode == "constant" and not x.is_float and abs(value) >= 1 << 53:  # no float holds it
        border = n.const(value, x.dtype)
        inner = n.op("pad", n.op("sub", x, border), paddings=flat)
        return n.op("add", inner, border)
    if mode == "constant":
        return n.op("pad", x, paddings=flat, value=float(value))
    return n.op("pad", x, paddings=flat, mode=mode)


@lowers("Trilu")
def _trilu(n: Call) -> Value:
    at = (n.known_ints(1) or [0])[0]
    if not n[0].is_float:
        whole = np.ones(n[0].shape[-2:], bool)
        kept = np.triu(whole, at) if n.attr("upper", 1) else np.tril(whole, at)
        return n.op("where", n.const(kept), n[0], n.const(0, n[0].dtype))
    return n.op("triu" if n.attr("upper", 1) else "tril", n[0], diagonal=at)


def _space(n: Attributes, shape: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Two shapes with a transposition between them."""
    batch, channels, high, wide = shape
    b = n.attr("blocksize", 1)
    if b < 1:
        n.fail(f"blocksize {b}")
    if n.node.op == "SpaceToDepth":
        first = [batch, channels, high // b, b, wide // b, b]
        perm = [0, 3, 5, 1, 2, 4] if n.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
        return first, perm, [batch, channels * b * b, high // b, wide // b]
    last = [batch, channels // (b * b), high * b, wide * b]
    if n.attr("mode", "DCR") == "DCR":
        return [batch, b, b, channels // (b * b), high, wide], [0, 3, 4, 1, 5, 2], last
    return [batch, channels // (b * b), b, b, high, wide], [0, 1, 4, 2, 5, 3], last


@lowers("SpaceToDepth", "DepthToSpace")
def _space_here(n: Call) -> Value:
    first, perm, last = _space(n, n[0].shape)
    value = n.op("transpose", n.reshape(n[0], first), perm=perm)
    return n.reshape(value, last)


@lowers("CenterCropPad")
def _center(n: Call) -> Value:
    x = n[0]
    sizes = n.known_ints(1) or []
    axes = [n.axis(axis, x.ndim) for axis in n.ints("axes", list(range(x.ndim))) or []]
    widths = [(0, 0)] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        more = size - x.shape[axis]
        widths[axis] = (more // 2, more - more // 2) if more >= 0 else (-(-more // 2), more // 2)
    return padded(n, x, widths)
