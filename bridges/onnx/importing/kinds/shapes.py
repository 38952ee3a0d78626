"""Shapes: reshaping, joining, cutting, padding, space and depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from ..calls import Attributes, Call, Value, evaluates, lowers


def _prod(dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


def _new_shape(n: Attributes, x: Sequence[int], wanted: Sequence[int]) -> list[int]:
    dims = [int(dim) for dim in wanted]
    if not n.attr("allowzero", 0):
        dims = [x[i] if dim == 0 and i < len(x) else dim for i, dim in enumerate(dims)]
    if dims.count(-1) == 1:
        rest = _prod([dim for dim in dims if dim != -1])
        dims[dims.index(-1)] = _prod(x) // rest if rest else 0
    if _prod(dims) != _prod(x) or min(dims, default=0) < 0:
        raise ValueError(f"{list(x)} cannot be reshaped to {list(wanted)}")
    return dims


@evaluates("Reshape")
def _reshape_on_host(n: Attributes, x: np.ndarray, shape: Any = None) -> np.ndarray:
    wanted = n.ints("shape") if shape is None else shape.reshape(-1).tolist()
    return x.reshape(_new_shape(n, x.shape, wanted or []))


@lowers("Reshape")
def _reshape(n: Call) -> Value:
    wanted = n.known_ints(1) if n.version >= 5 else n.ints("shape")
    try:
        dims = _new_shape(n, n[0].shape, wanted or [])
    except ValueError as error:
        n.fail(str(error))
    return _reshaped(n, dims)


def _reshaped(n: Call, dims: Sequence[int]) -> Value:
    if tuple(dims) == n[0].shape:
        return n[0]
    return n.op("reshape", n[0], shape=list(dims))


def _flat(n: Attributes, shape: Sequence[int]) -> list[int]:
    axis = n.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        n.fail(f"axis {axis} of {len(shape)} dimensions")
    axis += len(shape) if axis < 0 else 0
    return [_prod(shape[:axis]), _prod(shape[axis:])]


@evaluates("Flatten")
def _flatten_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    return x.reshape(_flat(n, x.shape))


@lowers("Flatten")
def _flatten(n: Call) -> Value:
    return _reshaped(n, _flat(n, n[0].shape))


def _squeezed(n: Attributes, shape: Sequence[int], axes: Sequence[int] | None) -> list[int]:
    if axes is None:
        return [dim for dim in shape if dim != 1]
    gone = {n.axis(int(axis), len(shape)) for axis in axes}
    for axis in gone:
        if shape[axis] != 1:
            raise ValueError(f"axis {axis} of {list(shape)} is not of size 1")
    return [dim for axis, dim in enumerate(shape) if axis not in gone]


def _unsqueezed(n: Attributes, shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    rank = len(shape) + len(axes)
    new = {n.axis(int(axis), rank) for axis in axes}
    if len(new) != len(axes):
        n.fail(f"axes {list(axes)} come twice")
    rest = iter(shape)
    return [1 if axis in new else next(rest) for axis in range(rank)]


@evaluates("Squeeze", "Unsqueeze")
def _squeeze_on_host(n: Attributes, x: np.ndarray, axes: Any = None) -> np.ndarray:
    given = n.ints("axes") if axes is None else list(axes.reshape(-1))
    if n.node.op == "Squeeze":
        return x.reshape(_squeezed(n, x.shape, given))
    return x.reshape(_unsqueezed(n, x.shape, given or []))


@lowers("Squeeze", "Unsqueeze")
def _squeeze(n: Call) -> Value:
    given = n.ints("axes") if n.get(1) is None else n.known_ints(1)
    try:
        if n.node.op == "Squeeze":
            return _reshaped(n, _squeezed(n, n[0].shape, given))
        return _reshaped(n, _unsqueezed(n, n[0].shape, given or []))
    except ValueError as error:
        n.fail(str(error))


@evaluates("Transpose")
def _transpose_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    return np.transpose(x, n.ints("perm"))


@lowers("Transpose")
def _transpose(n: Call) -> Value:
    perm = n.ints("perm") or list(range(n[0].ndim))[::-1]
    if perm == list(range(n[0].ndim)):
        return n[0]
    return n.op("transpose", n[0], perm=perm)


def _expanded(shape: Sequence[int], wanted: Any) -> list[int]:
    return list(np.broadcast_shapes(tuple(shape), tuple(int(dim) for dim in wanted)))


@evaluates("Expand")
def _expand_on_host(n: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    dims = _expanded(x.shape, shape)
    check_fill(dims, x.dtype.itemsize, n.node.title())
    return np.array(np.broadcast_to(x, dims))


@lowers("Expand")
def _expand(n: Call) -> Value:
    try:
        dims = _expanded(n[0].shape, n.known_ints(1) or [])
    except ValueError as error:
        n.fail(str(error))
    return n[0] if tuple(dims) == n[0].shape else n.op("expand", n[0], shape=dims)


@evaluates("Tile")
def _tile_on_host(n: Attributes, x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    dims = [int(a) * int(b) for a, b in zip(x.shape, repeats, strict=True)]
    check_fill(dims, x.dtype.itemsize, n.node.title())
    return np.tile(x, repeats)


@lowers("Tile")
def _tile(n: Call) -> Value:
    return n.op("tile", n[0], repeats=n.known_ints(1))


@evaluates("Concat")
def _concat_on_host(n: Attributes, *args: np.ndarray) -> np.ndarray:
    return np.concatenate(args, n.attr("axis", 1))


@lowers("Concat")
def _concat(n: Call) -> Value:
    values = [n[i] for i in range(len(n.inputs))]
    if len({value.dtype for value in values}) > 1:
        n.fail("its inputs are of different types")
    axis = n.axis(n.attr("axis", 1), values[0].ndim)
    kept = [value for value in values if value.shape[axis]] or values[:1]
    return kept[0] if len(kept) == 1 else n.op("concat", kept, axis=axis)


def _sections(n: Attributes, size: int, given: Sequence[int] | None) -> list[int]:
    if given is not None:
        return [int(part) for part in given]
    count = n.attr("num_outputs", n.outputs)
    part = -(-size // count)
    return [max(min(part, size - i * part), 0) for i in range(count)]


@evaluates("Split")
def _split_on_host(n: Attributes, x: np.ndarray, split: Any = None) -> tuple[np.ndarray, ...]:
    axis = n.axis(n.attr("axis", 0), x.ndim)
    given = n.ints("split") if split is None else list(split.reshape(-1))
    parts = _sections(n, x.shape[axis], given)
    if sum(parts) != x.shape[axis]:
        raise ValueError(f"parts {parts} of {x.shape[axis]}")
    return tuple(np.split(x, np.cumsum(parts)[:-1], axis))


@lowers("Split")
def _split(n: Call) -> list[Value]:
    x, axis = n[0], n.axis(n.attr("axis", 0), n[0].ndim)
    given = n.ints("split") if n.get(1) is None else n.known_ints(1)
    parts = _sections(n, x.shape[axis], given)
    if sum(parts) != x.shape[axis] or len(parts) != n.outputs:
        n.fail(f"parts {parts} of {x.shape[axis]} for {n.outputs} outputs")
    if len(parts) == 1:
        return [x]
    made, begin = [], 0
    for part in parts:
        made.append(n.op("slice", x, axes=[axis], starts=[begin], ends=[begin + part]))
        begin += part
    return made


def _slices(
    shape: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> list[slice]:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    found = [slice(0, size, 1) for size in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = shape[axis]
        begin, stop, by = slice(
            int(start), None if step < 0 and end < -size else int(end), int(step)
        ).indices(size)
        found[axis % len(shape)] = slice(begin, stop, by)
    return found


@evaluates("Slice")
def _slice_on_host(
    n: Attributes,
    x: np.ndarray,
    starts: Any = None,
    ends: Any = None,
    axes: Any = None,
    steps: Any = None,
) -> np.ndarray:
    if n.version < 10:
        starts, ends, axes = n.ints("starts"), n.ints("ends"), n.ints("axes")
    found = _slices(x.shape, starts, ends, axes, steps)
    return x[tuple(slice(s.start, None if s.stop < 0 else s.stop, s.step) for s in found)]


@lowers("Slice")
def _slice(n: Call) -> Value:
    x = n[0]
    if n.version < 10:
        starts, ends, axes, steps = n.ints("starts"), n.ints("ends"), n.ints("axes"), None
    else:
        starts, ends, axes, steps = (n.known_ints(i) for i in (1, 2, 3, 4))
    if any(not -x.ndim <= axis < x.ndim for axis in axes or ()):
        n.fail(f"axes {axes} of {x.ndim} dimensions")
    found = _slices(x.shape, starts or [], ends or [], axes, steps)
    cut = [
        (axis, s)
        for axis, s in enumerate(found)
        if (s.start, s.stop, s.step) != (0, x.shape[axis], 1)
    ]
    if not cut:
        return x
    return n.op(
        "slice",
        x,
        axes=[axis for axis, _ in cut],
        starts=[s.start for _, s in cut],
        ends=[s.stop if s.stop >= 0 else -x.shape[axis] - 1 for axis, s in cut],
        steps=[s.step for _, s in cut],
    )


def _pads(
    n: Attributes, rank: int, given: Sequence[int], axes: Sequence[int] | None
) -> list[tuple[int, int]]:
    which = list(range(rank)) if axes is None else [n.axis(int(axis), rank) for axis in axes]
    if len(given) != 2 * len(which):
        raise ValueError(f"{len(given)} pads for {len(which)} axes")
    pads = [(0, 0)] * rank
    for number, axis in enumerate(which):
        pads[axis] = int(given[number]), int(given[len(which) + number])
    return pads


@evaluates("Pad")
def _pad_on_host(
    n: Attributes, x: np.ndarray, pads: Any = None, value: Any = None, axes: Any = None
) -> np.ndarray:
    if n.version < 11:
        pads = n.ints("pads") or n.ints("paddings")
        value = n.attr("value", 0.0)
    mode = n.attr("mode", "constant")
    widths = _pads(n, x.ndim, pads, None if axes is None else list(axes.reshape(-1)))
    check_fill(
        [dim + sum(w) for dim, w in zip(x.shape, widths, strict=True)],
        x.dtype.itemsize,
        n.node.title(),
    )
    cut = tuple(
        slice(max(-a, 0), dim - max(-b, 0)) for dim, (a, b) in zip(x.shape, widths, strict=True)
    )
    x, widths = x[cut], [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        fill = 0 if value is None else np.asarray(value).reshape(-1)[0]
        return np.pad(x, widths, constant_values=x.dtype.type(fill))
    return np.pad(x, widths, mode=mode)


@lowers("Pad")
def _pad(n: Call) -> Value:
    x = n[0]
    if n.version < 11:
        given, value, axes = n.ints("pads") or n.ints("paddings"), n.attr("value", 0.0), None
    else:
        given, axes = n.known_ints(1), n.known_ints(3)
        fill = n.known(2)
        value = 0.0 if fill is None or not fill.size else float(fill.reshape(-1)[0])
    widths = _pads(n, x.ndim, given or [], axes)
    if any(w < 0 for pair in widths for w in pair):
        starts = [max(-a, 0) for a, _ in widths]
        ends = [dim - max(-b, 0) for dim, (_, b) in zip(x.shape, widths, strict=True)]
        x = n.op("slice", x, axes=list(range(x.ndim)), starts=starts, ends=ends)
    mode = n.attr("mode", "constant")
    flat = [max(w, 0) for pair in widths for w in pair]
    if not any(flat):
        return x
    if mode == "constant":
        return n.op("pad", x, paddings=flat, value=value)
    return n.op("pad", x, paddings=flat, mode=mode)


@evaluates("Trilu")
def _trilu_on_host(n: Attributes, x: np.ndarray, k: Any = None) -> np.ndarray:
    at = 0 if k is None else int(k.reshape(-1)[0])
    return np.triu(x, at) if n.attr("upper", 1) else np.tril(x, at)


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


@evaluates("SpaceToDepth", "DepthToSpace")
def _space_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    first, perm, last = _space(n, x.shape)
    return x.reshape(first).transpose(perm).reshape(last)


@lowers("SpaceToDepth", "DepthToSpace")
def _space_here(n: Call) -> Value:
    first, perm, last = _space(n, n[0].shape)
    value = n.op("transpose", n.op("reshape", n[0], shape=first), perm=perm)
    return n.op("reshape", value, shape=last)


@evaluates("CenterCropPad")
def _centre(n: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    axes = n.ints("axes", list(range(x.ndim))) or []
    for axis, size in zip(axes, shape.reshape(-1), strict=True):
        axis, size = n.axis(axis, x.ndim), int(size)
        more = size - x.shape[axis]
        if more >= 0:
            widths = [(0, 0)] * x.ndim
            widths[axis] = more // 2, more - more // 2
            x = np.pad(x, widths)
        else:
            first = -more // 2
            x = np.take(x, np.arange(first, first + size), axis)
    return x
