"""Selecting: gather, scatter, one-hot, non-zero, unique, non-maximum suppression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from .....framework.fusion.compiled import native
from .....framework.fusion.compiled.arguments import bind
from ..calls import Adds, Attributes, Call, NotHere, Value, evaluates, lowers
from .linear import in_floats

_TOGETHER = 64
"""Boxes that are compared with those before them at once: most of what is kept is among the best
few hundred of thousands."""
_PLACES = 1 << 20
"""Places for boxes that are kept at once: of as many classes as these serve."""


@lowers("Gather")
def _gather(n: Call) -> Value:
    x = n[0]
    ids = n[1]
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    if ids.array is not None and ids.ndim == 0 and x.shape[axis]:
        at = int(ids.array)
        if not -x.shape[axis] <= at < x.shape[axis]:
            n.fail(f"index {at} of {x.shape[axis]}")
        at %= x.shape[axis]
        part = n.op("slice", x, axes=[axis], starts=[at], ends=[at + 1])
        return n.reshape(part, [*x.shape[:axis], *x.shape[axis + 1 :]])
    return n.op("gather", x, ids, axis=axis, from_end=True)


def _counted(n: Adds | Attributes, ids: np.ndarray, size: int) -> np.ndarray:
    """Ids counted from the front.

    Raises:
        FormatError: there is no such place; the error names the node, the id and the places.
    """
    wrong = ids[(ids < -size) | (ids >= size)]
    if wrong.size:
        n.fail(f"index {wrong[0]} is outside of the {size} places, want {-size} to {size - 1}")
    return np.where(ids < 0, ids + size, ids)


def counted(n: Adds, ids: Value, size: Any) -> Value:
    """Ids counted from the front, also in a net's input, whose run refuses those that do not lie
    in [-size, size)."""
    if ids.array is not None:
        return n.const(_counted(n, ids.array, int(size)))
    return n.op("gather", n.following(np.arange, [size], np.int64, size), ids, from_end=True)


@lowers("GatherElements")
def _gather_elements_here(n: Call) -> Value:
    x = n[0]
    ids = n[1]
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    where = counted(n, ids, x.shape[axis])
    if _are_lines(x, ids, axis):
        return n.op("take_along_axis", x, where, axis=axis)
    gathered = n.op("gather", n.reshape(x, [-1]), _flat_ids(n, x, where, axis), axis=0)
    return n.reshape(gathered, ids.shape)


def _are_lines(x: Value, ids: Value, axis: int) -> bool:
    """Whether ids are as long as the array, along all axes but their own."""
    pairs = enumerate(zip(x.shape, ids.shape, strict=True))
    return all(a == b for k, (a, b) in pairs if k != axis)


def _flat_ids(n: Call, x: Value, ids: Value, axis: int) -> Value:
    """Ids along an axis as places in the flat array, where other axes of the ids may be shorter."""
    steps = [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]
    places = np.indices(ids.shape, sparse=True)
    rest = sum(
        step * place for k, (step, place) in enumerate(zip(steps, places, strict=True)) if k != axis
    )
    along = n.op("mul", n.cast(ids, np.int64), n.const(steps[axis], np.int64))
    return n.reshape(n.op("add", along, n.const(rest, np.int64)), [-1])


@lowers("GatherND")
def _gather_nd_here(n: Call) -> Value:
    return n.op("gather_nd", n[0], n[1], batch_dims=n.attr("batch_dims", 0))


# The reductions that no operator has: those of ids that come several times.
_UFUNCS = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(n: Attributes, out: np.ndarray, where: Any, updates: np.ndarray) -> np.ndarray:
    how = n.attr("reduction", "none")
    if how not in _UFUNCS:
        n.fail(f"reduction {how!r}")
    _UFUNCS[how].at(out, where, updates)
    return out


@evaluates("ScatterElements")
def _scatter_elements(
    n: Attributes, x: np.ndarray, ids: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    axis = n.axis(n.attr("axis", 0), x.ndim)
    where: list[Any] = list(np.indices(ids.shape))
    where[axis] = _counted(n, ids, x.shape[axis])
    return _scatter(n, x.copy(), tuple(where), updates)


@lowers("ScatterElements", "Scatter")
def _scatter_elements_here(n: Call) -> Value:
    x = n[0]
    ids = n[1]
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    how = {"none": "set", "add": "add"}.get(n.attr("reduction", "none"))
    if how is None:
        raise NotHere
    where = counted(n, ids, x.shape[axis])
    if _are_lines(x, ids, axis):
        return n.op("put_along_axis", x, where, n[2], axis=axis, mode=how)
    flat = n.reshape(x, [-1])
    updates = n.reshape(n[2], [-1])
    places = _flat_ids(n, x, where, axis)
    return n.reshape(n.op("put_along_axis", flat, places, updates, axis=0, mode=how), x.shape)


@evaluates("ScatterND")
def _scatter_nd(n: Attributes, x: np.ndarray, ids: np.ndarray, updates: np.ndarray) -> np.ndarray:
    where = tuple(_counted(n, ids[..., i], x.shape[i]) for i in range(ids.shape[-1]))
    return _scatter(n, x.copy(), where, updates)


@lowers("ScatterND")
def _scatter_nd_here(n: Call) -> Value:
    how = {"none": "set", "add": "add"}.get(n.attr("reduction", "none"))
    if how is None:
        raise NotHere
    return n.op("scatter_nd", n[0], n[1], n[2], mode=how)


@lowers("TensorScatter")
def _tensor_scatter(n: Call) -> Value:
    """Updates [N, ..., L, ...] of a range along an axis that begins where each row says."""
    x = n[0]
    updates = n[1]
    axis = n.axis(n.attr("axis", -2), n[0].ndim)
    lines = [1] * x.ndim
    lines[axis] = updates.shape[axis]
    ids = n.const(np.arange(lines[axis]).reshape(lines), np.int64)
    if n.get(2) is not None:
        first = n.reshape(n.cast(n[2], np.int64), [x.shape[0], *[1] * (x.ndim - 1)])
        ids = n.op("add", first, ids)
    if n.attr("mode", "linear") == "circular":
        ids = n.op("mod", ids, n.const(x.shape[axis], np.int64))
    ids = n.op("expand", ids, shape=list(updates.shape))
    return n.op("put_along_axis", x, ids, updates, axis=axis)


@lowers("OneHot")
def _one_hot(n: Call) -> Value:
    ids, values = n[0], n[2]
    count = (n.known_ints(1) or [0])[0]
    if ids.dtype.kind not in "iu":
        ids = n.op("cast", ids, dtype=np.dtype("int64"))
    axis = n.axis(n.attr("axis", -1), ids.ndim + 1)
    check_fill([*ids.shape, count], values.dtype.itemsize, n.node.title())
    # Ids outside of [-count, count) are no entry's.
    below = n.op("less", ids, n.const(0, ids.dtype))
    where = n.op("where", below, n.op("add", ids, n.const(count, ids.dtype)), ids)
    where = n.reshape(where, [*ids.shape[:axis], 1, *ids.shape[axis:]])
    shape = [1] * (ids.ndim + 1)
    shape[axis] = count
    hot = n.op("equal", where, n.const(np.arange(count).reshape(shape), ids.dtype))
    off, on = (n.op("slice", values, axes=[0], starts=[i], ends=[i + 1]) for i in (0, 1))
    return n.op("where", hot, on, off)


@evaluates("NonZero")
def _non_zero(n: Attributes, x: np.ndarray) -> np.ndarray:
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@evaluates("Compress")
def _compress(n: Attributes, x: np.ndarray, condition: np.ndarray) -> np.ndarray:
    axis = n.attr("axis")
    return np.compress(condition, x, None if axis is None else n.axis(axis, x.ndim))


@evaluates("Unique")
def _unique(n: Attributes, x: np.ndarray) -> tuple[np.ndarray, ...]:
    axis = n.attr("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n.attr("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))


@lowers("ReverseSequence")
def _reverse_here(n: Call) -> Value:
    time = n.attr("time_axis", 0)
    if {time, n.attr("batch_axis", 1)} != {0, 1}:
        raise NotHere
    return turned(n, n[0], n[1], time)


def turned(n: Call, x: Value, lengths: Value, time: int = 0) -> Value:
    """Sequences [T, N, ...], or [N, T, ...] for time 1, last step first; what is after stays."""
    side = (-1, 1) if time == 0 else (1, -1)
    steps = np.arange(x.shape[time]).reshape(side)
    if lengths.array is not None:
        ends = lengths.array.reshape(side[::-1])
        where = n.const(np.where(steps < ends, ends - 1 - steps, steps))
    else:
        counted = n.const(steps, lengths.dtype)
        ends = n.op("reshape", lengths, shape=list(side[::-1]))
        back = n.op("sub", ends, n.const(steps + 1, lengths.dtype))
        where = n.op("where", n.op("less", counted, ends), back, counted)
    where = n.reshape(where, [*where.shape, *(1,) * (x.ndim - 2)])
    if where.array is not None:
        ids = n.const(np.array(np.broadcast_to(where.array, x.shape)))
    else:
        ids = n.op("expand", where, shape=list(x.shape))
    return n.op("take_along_axis", x, ids, axis=time)


@evaluates("NonMaxSuppression")
def _suppress(
    n: Attributes,
    boxes: np.ndarray,
    scores: np.ndarray,
    most: Any = None,
    overlap: Any = None,
    least: Any = None,
) -> np.ndarray:
    if scores.ndim != 3 or boxes.shape != (len(scores), scores.shape[2], 4):
        shapes = f"{list(boxes.shape)} and {list(scores.shape)}"
        n.fail(f"boxes [B, N, 4] and scores [B, C, N] are expected; theirs are {shapes}")
    count = 0 if most is None else int(np.asarray(most).reshape(-1)[0])
    bound = 0.0 if overlap is None else float(np.asarray(overlap).reshape(-1)[0])
    floor = None if least is None else float(np.asarray(least).reshape(-1)[0])
    if not 0 <= bound <= 1:
        n.fail(f"iou_threshold is {bound}, and shall lie in [0, 1]")
    centered = bool(n.attr("center_point_box", 0))
    limits = count, bound, floor
    chosen = [np.zeros((0, 3), np.int64)]
    for batch, (own, by_class) in enumerate(zip(boxes, scores, strict=True)):
        kept = _best_of_all(own, by_class, centered, *limits)
        if kept is None:
            low, high = _corners(own, centered)
            kept = [_kept(low, high, line, *limits) for line in by_class]
        for label, numbers in enumerate(kept):
            rows = np.empty((len(numbers), 3), np.int64)
            rows[:, 0], rows[:, 1], rows[:, 2] = batch, label, numbers
            chosen.append(rows)
    return np.concatenate(chosen)


def _corners(boxes: np.ndarray, centered: bool) -> tuple[np.ndarray, np.ndarray]:
    """The corners of boxes, the lower of each side first; a box of a negative size has none."""
    first, last = boxes[:, :2], boxes[:, 2:]
    with np.errstate(all="ignore"):
        if centered:
            return first - last / 2, first + last / 2
        return np.minimum(first, last), np.maximum(first, last)


def _best_of_all(
    boxes: np.ndarray,
    scores: np.ndarray,
    centered: bool,
    most: int,
    bound: float,
    floor: float | None,
) -> list[np.ndarray] | None:
    """As `_kept`, of each class; None where there is no native library."""
    library = native.load("boxes")
    if library is None or not boxes.dtype == scores.dtype == np.float32:
        return None
    classes, count = scores.shape
    most = max(0, min(most, count))
    heap, corners = np.empty(count, np.int64), np.empty((count, 4), np.float32)
    sides = np.empty((5, most), np.float32)
    common = {"count": count, "most": most, "centered": centered, "bound": bound}
    common |= {"heap": heap, "corners": corners, "sides": sides}
    common |= {"limited": floor is not None, "least_score": 0.0 if floor is None else floor}
    boxes, scores = np.ascontiguousarray(boxes), np.ascontiguousarray(scores)
    together = max(_PLACES // max(most, 1), 1)
    chosen: list[np.ndarray] = []
    for lines in np.split(scores, range(together, classes, together)):
        kept, found = np.empty((len(lines), most), np.int64), np.empty(len(lines), np.int64)
        fields = {"classes": len(lines), "boxes": boxes, "scores": lines}
        bind(library, "best_boxes", kept=kept, found=found, **fields, **common).run()
        chosen += [line[:size].copy() for line, size in zip(kept, found.tolist(), strict=True)]
    return chosen


def _kept(
    low: np.ndarray,
    high: np.ndarray,
    scores: np.ndarray,
    most: int,
    bound: float,
    floor: float | None,
) -> list[int]:
    """The boxes of one class that overlap none that is better; scores of NaN come last."""
    order = np.arange(len(scores)) if floor is None else np.flatnonzero(scores > floor)
    order = order[np.argsort(-scores[order], kind="stable")]
    (top, left), (bottom, right) = low[order].T.copy(), high[order].T.copy()
    with np.errstate(all="ignore"):
        areas = (bottom - top) * (right - left)

    @np.errstate(all="ignore")
    def overlap(ours: np.ndarray, others: np.ndarray) -> np.ndarray:
        first = ours[:, None]
        tall = np.minimum(bottom[first], bottom[others]) - np.maximum(top[first], top[others])
        wide = np.minimum(right[first], right[others]) - np.maximum(left[first], left[others])
        common = np.maximum(tall, 0) * np.maximum(wide, 0)
        # Of NaN and infinite boxes the share is NaN: they neither clash nor are in the way.
        return common / (areas[first] + areas[others] - common) > bound

    kept: list[int] = []
    for begin in range(0, len(order), _TOGETHER):
        if len(kept) >= most:
            break
        places = np.arange(begin, min(begin + _TOGETHER, len(order)))
        places = places[~overlap(np.array(kept, np.int64), places).any(0)]
        free = np.ones(len(places), bool)
        for number, clashes in enumerate(overlap(places, places)):
            if free[number]:
                kept.append(int(places[number]))
                free &= ~clashes
    return order[kept[:most]].tolist()


@lowers("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _features(n: Call) -> Value:
    x = n[0]
    gathered = n.op("gather", x, n.reshape(n[1], [math.prod(n[1].shape)]), axis=x.ndim - 1)
    return n.reshape(gathered, [1, *gathered.shape]) if x.ndim == 1 else gathered


@lowers("Binarizer", domain="ai.onnx.ml")
def _binarizer(n: Call) -> Value:
    x = in_floats(n, n[0])
    above = n.op("greater", x, n.const(n.attr("threshold", 0.0), x.dtype))
    return n.cast(above, n[0].dtype)
