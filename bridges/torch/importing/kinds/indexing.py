"""Entries by indexes and masks, read and replaced; bags of embeddings; orders and places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .....framework.base.dtypes import is_float
from ....onnx.importing.calls import Value
from ....onnx.importing.kinds.selection import counted
from ..calls import Aten, aten
from .shapes import as_row


class _Places(NamedTuple):
    """Entries that lists of ids pick.

    Attributes:
        axes: those that have ids. first: where the ids' axes lie in the result.
        ids: for each of the axes, all of one shape.
    """

    axes: list[int]
    first: int
    ids: list[Value]


def _places(n: Aten, x: Value, given: Sequence[Value | None]) -> _Places:
    """Ids for axes, masks as the places where they hold: those make the net depend on data."""
    at = 0
    axes: list[int] = []
    ids: list[Value] = []
    for one in given:
        if one is None:
            at += 1
        elif one.dtype == np.bool_:
            found = [n.const(each) for each in np.nonzero(n.array(one))]
            axes += range(at, at + one.ndim)
            ids += found
            at += one.ndim
        else:
            axes.append(at)
            ids.append(one)
            at += 1
    together = axes == list(range(axes[0], axes[-1] + 1))
    return _Places(axes, axes[0] if together else 0, ids)


def _stacked(n: Aten, x: Value, places: _Places) -> Value:
    """Ids [..., axes], counted from the front."""
    whole = list(np.broadcast_shapes(*(one.shape for one in places.ids)))
    stacked = []
    for axis, one in zip(places.axes, places.ids, strict=True):
        one = n.cast(counted(n, one, x.shape[axis]), np.int64)
        stacked.append(one if list(one.shape) == whole else n.op("expand", one, shape=whole))
    return n.op("stack", stacked, axis=len(whole))


def _rest(x: Value, axes: Sequence[int]) -> list[int]:
    return [axis for axis in range(x.ndim) if axis not in axes]


def _blocks(first: int, count: int, rank: int) -> list[int]:
    """The order of axes that brings `count` axes from the front to the place `first`."""
    return [*range(count, count + first), *range(count), *range(count + first, rank)]


@aten("index")
def _index(n: Aten, x: Value, indices: list[Value | None]) -> Value:
    places = _places(n, x, indices)
    if len(places.axes) == 1:
        return n.op("gather", x, places.ids[0], axis=places.axes[0], from_end=True)
    ids = _stacked(n, x, places)
    moved = n.moved(x, [*places.axes, *_rest(x, places.axes)])
    entries = n.op("gather_nd", moved, ids)
    return n.moved(entries, _blocks(places.first, ids.ndim - 1, entries.ndim))


@aten("index_copy")
def _index_copy(n: Aten, x: Value, dim: int, index: Value, source: Value) -> Value:
    rows, axis = as_row(n, x), dim % max(x.ndim, 1)
    ids = n.cast(counted(n, as_row(n, index), rows.shape[axis]), np.int64)
    ids = n.reshaped(ids, [-1 if other == axis else 1 for other in range(rows.ndim)])
    values = as_row(n, n.cast(source, x.dtype))
    found = n.op("put_along_axis", rows, ids, values, axis=axis, mode="set")
    return found if x.ndim else n.reshaped(found, [])


def _filled_up(n: Aten, values: Value, shape: list[int]) -> Value:
    """Values in a shape; they may have more axes in front, of length 1."""
    if values.ndim > len(shape):
        values = n.reshaped(values, values.shape[values.ndim - len(shape) :])
    return values if list(values.shape) == shape else n.op("expand", values, shape=shape)


@aten("index_put", "_index_put_impl")
def _index_put(
    n: Aten, x: Value, indices: list[Value | None], values: Value, accumulate: bool = False
) -> Value:
    values = n.cast(values, x.dtype)
    (mask, *others) = indices
    alone = not others and mask is not None and mask.dtype == np.bool_
    if alone and mask is not None and math.prod(values.shape) == 1:  # whatever it picks
        rest = [1] * (x.ndim - mask.ndim)
        value = n.op("add", x, values) if accumulate else n.reshaped(values, [1] * x.ndim)
        return n.op("where", n.reshaped(mask, [*mask.shape, *rest]), value, x)
    places = _places(n, x, indices)
    axes, first = places.axes, places.first
    if accumulate and axes == [0]:
        (where,) = places.ids
        values = _filled_up(n, values, [*where.shape, *x.shape[1:]])
        return n.op("scatter_add", x, where, values, from_end=True)
    ids = _stacked(n, x, places)
    rows = [ids.shape[0] if axis in axes else size for axis, size in enumerate(x.shape)]
    if len(axes) == 1 and ids.ndim == 2 and list(values.shape) == rows and not accumulate:
        # As caches are written to: a step in place has this form.
        ids = n.reshaped(ids, [-1 if axis in axes else 1 for axis in range(x.ndim)])
        return n.op("put_along_axis", x, ids, values, axis=axes[0], mode="set")
    moved = n.moved(x, [*axes, *_rest(x, axes)])
    lead = list(ids.shape[:-1])
    inner = list(moved.shape[len(axes) :])
    shape = [*inner[:first], *lead, *inner[first:]]
    values, count = _filled_up(n, values, shape), len(lead)
    values = n.moved(values, [*range(first, first + count), *range(first),
                              *range(first + count, len(shape))])  # fmt: skip
    changed = n.op("scatter_nd", moved, ids, values, mode="add" if accumulate else "set")
    order = [*axes, *_rest(x, axes)]
    return n.moved(changed, [order.index(axis) for axis in range(x.ndim)])


@aten("masked_scatter")
def _masked_scatter(n: Aten, x: Value, mask: Value, source: Value) -> Value:
    shape = list(np.broadcast_shapes(x.shape, mask.shape))
    x, mask = (one if list(one.shape) == shape else n.op("expand", one, shape=shape)
               for one in (x, mask))  # fmt: skip
    flat = n.reshaped(mask, [math.prod(shape)])
    number = n.op("cumsum", n.cast(flat, np.int64), axis=0)
    last = n.const(math.prod(source.shape) - 1, np.int64)
    number = n.op("sub", number, n.const(1, np.int64))
    number = n.op("minimum", n.op("maximum", number, n.const(0, np.int64)), last)
    drawn = n.op("gather", n.reshaped(source, [math.prod(source.shape)]), number, axis=0)
    return n.op("where", mask, n.reshaped(drawn, shape), x)


@aten("masked_select")
def _masked_select(n: Aten, x: Value, mask: Value) -> Value:
    shape = list(np.broadcast_shapes(x.shape, mask.shape))
    flat = np.flatnonzero(np.broadcast_to(n.array(mask), shape))
    whole = x if list(x.shape) == shape else n.op("expand", x, shape=shape)
    return n.op("gather", n.reshaped(whole, [math.prod(shape)]), n.const(flat), axis=0)


@aten("nonzero", "nonzero_numpy", "argwhere")
def _nonzero(n: Aten, x: Value) -> Value | list[Value]:
    held = n.array(x)
    if n.name == "nonzero_numpy":
        return [n.const(each, np.int64) for each in np.nonzero(np.atleast_1d(held))]
    return n.const(np.argwhere(held), np.int64)


@aten("diagonal", "diagonal_scatter")
def _diagonal(
    n: Aten, x: Value, src: Value | None = None, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    order = [*_rest(x, (dim1 % x.ndim, dim2 % x.ndim)), dim1 % x.ndim, dim2 % x.ndim]
    moved = n.moved(x, order)
    *front, high, wide = moved.shape
    count = max(min(high + min(offset, 0), wide - max(offset, 0)), 0)
    places = (np.arange(count) - min(offset, 0)) * wide + np.arange(count) + max(offset, 0)
    flat = n.reshaped(moved, [*front, high * wide])
    axis = len(front)
    if src is None:
        return n.op("gather", flat, n.const(places), axis=axis)
    ids = n.const(places.reshape([1] * axis + [count]), np.int64)
    flat = n.op("put_along_axis", flat, ids, n.cast(src, x.dtype), axis=axis, mode="set")
    return n.moved(n.reshaped(flat, moved.shape), np.argsort(order).tolist())


@aten("as_strided")
def _as_strided(
    n: Aten, x: Value, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Value:
    # Every variable of a net lies in rows; a tensor that lies otherwise is refused by its strides.
    places = np.full([1] * len(size), storage_offset or 0)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        line = np.arange(count) * step
        places = places + line.reshape([-1 if axis == each else 1 for each in range(len(size))])
    n.refuse_unless(places.max(initial=0) < math.prod(x.shape), "it reads more than its input")
    return n.op("gather", n.reshaped(x, [math.prod(x.shape)]), n.const(places), axis=0)


# -- orders ----------------------------------------------------------------------------------------


@aten("median", "kthvalue")
def _kth(
    n: Aten, x: Value, dim: int | None = None, keepdim: bool = False, k: int | None = None
) -> Value | list[Value]:
    flat = dim is None or not x.ndim
    several = dim is not None
    if flat:
        x = n.reshaped(x, [math.prod(x.shape)])
    axis = 0 if flat or dim is None else dim % x.ndim
    at = (x.shape[axis] - 1) // 2 if k is None else k - 1
    both = n.op("sort", x, outs=("out", "ids"), axis=axis)
    values, ids = (n.part(one, axis, at, at + 1) for one in both)
    if n.name == "median" and is_float(x.dtype):  # one NaN makes it NaN; sorted, they come last
        last = n.part(both[0], axis, x.shape[axis] - 1)
        values = n.op("where", n.op("isnan", last), last, values)
    if flat or not keepdim:
        values, ids = (n.op("squeeze", one, axes=[axis]) for one in (values, ids))
    return [values, ids] if several else values


@aten("bucketize", "searchsorted")
def _bucketize(
    n: Aten, boundaries: Value, right: bool = False, side: str | None = None, sorter: Any = None
) -> Value:
    if sorter is not None:
        boundaries = n.op("take_along_axis", boundaries, sorter, axis=boundaries.ndim - 1)
    x = n["self"]
    if not isinstance(x, Value):
        x = n.const(x, boundaries.dtype)
    dtype = np.result_type(x.dtype, boundaries.dtype)
    x = n.op("unsqueeze", n.cast(x, dtype), axes=[x.ndim])
    boundaries = n.cast(boundaries, dtype)
    if boundaries.ndim > 1:
        boundaries = n.op("unsqueeze", boundaries, axes=[boundaries.ndim - 1])
    after = side == "right" or (right and side is None)
    below = n.op("less_equal" if after else "less", boundaries, x)
    count = n.op("reduce_sum", n.cast(below, np.int64), axes=[below.ndim - 1])
    return n.cast(count, n.dtypes[0])


# -- bags of embeddings ----------------------------------------------------------------------------

_SUM, _MEAN, _MAX = range(3)


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    n: Aten,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int = _SUM,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> list[Value]:
    n.refuse_unless(not any(map(n.wants, (1, 2, 3))), "what it notes for its gradient is read")
    offsets = n.cast(offsets, np.int64)
    if include_last_offset:
        offsets = n.part(offsets, 0, 0, offsets.shape[0] - 1)
    count, width = offsets.shape[0], weight.shape[1]
    # The public form counts from the end and says None; in the core one a negative id is none.
    if padding_idx is not None and padding_idx < 0 and n.name == "embedding_bag":
        padding_idx += weight.shape[0]
    rows = n.op("gather", weight, indices, axis=0)
    places = n.op("unsqueeze", n.op("positions", indices, axis=0), axes=[1])
    begun = n.op("less_equal", n.op("unsqueeze", offsets, axes=[0]), n.cast(places, np.int64))
    bag = n.op("reduce_sum", n.cast(begun, np.int64), axes=[1])
    bag = n.op("sub", bag, n.const(1, np.int64))
    hold = None
    if padding_idx is not None and padding_idx >= 0:
        hold = n.op("not_equal", indices, n.const(padding_idx, indices.dtype))
    if mode == _MAX:
        return [_largest_of_bags(n, rows, bag, hold, count)]
    if per_sample_weights is not None:
        rows = n.op("mul", rows, n.op("unsqueeze", per_sample_weights, axes=[1]))
    if hold is not None:
        rows = n.op("mul", rows, n.op("unsqueeze", n.cast(hold, rows.dtype), axes=[1]))
    bags = n.op("unsqueeze", bag, axes=[1])
    total = n.op(
        "scatter_nd", n.const(np.zeros((count, width)), rows.dtype), bags, rows, mode="add"
    )
    if mode == _SUM:
        return [total]
    ones = n.op("fill_like", n.part(rows, 1, 0, 1), value=1.0)
    ones = ones if hold is None else n.op("unsqueeze", n.cast(hold, rows.dtype), axes=[1])
    sizes = n.op("scatter_nd", n.const(np.zeros((count, 1)), rows.dtype), bags, ones, mode="add")
    return [n.op("div", total, n.op("clip", sizes, minimum=1.0))]


def _largest_of_bags(n: Aten, rows: Value, bag: Value, hold: Value | None, count: int) -> Value:
    inside = n.op("equal", n.op("unsqueeze", bag, axes=[0]), n.const(np.arange(count)[:, None]))
    if hold is not None:
        inside = n.op("logical_and", inside, hold)
    inside = n.op("unsqueeze", inside, axes=[2])
    low = n.const(-np.inf, rows.dtype)
    largest = n.op("reduce_max", n.op("where", inside, rows, low), axes=[1])
    return n.op("where", n.op("reduce_any", inside, axes=[1]), largest, n.const(0, rows.dtype))


# -- distances -------------------------------------------------------------------------------------


@aten("cdist", "_cdist_forward", "_euclidean_dist")
def _cdist(n: Aten, x1: Value, x2: Value, p: float = 2.0) -> Value:
    x, y = n.op("unsqueeze", x1, axes=[x1.ndim - 1]), n.op("unsqueeze", x2, axes=[x2.ndim - 2])
    away = n.op("sub", x, y)
    return n.op("norm", away, axes=[away.ndim - 1], p=float(p))


@aten("pdist", "_pdist_forward")
def _pdist(n: Aten, x: Value, p: float = 2.0) -> Value:
    first, second = np.triu_indices(x.shape[0], 1)
    away = n.op("sub", *(n.op("gather", x, n.const(ids), axis=0) for ids in (first, second)))
    return n.op("norm", away, axes=[1], p=float(p))
