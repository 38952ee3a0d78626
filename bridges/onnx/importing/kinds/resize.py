"""Images made larger and smaller: Resize, Upsample.

Along an axis each place of the result is a weighted sum of a few places of the input, so that a
resize is a sum of gathers, or a product with a matrix where these are many. Where each place of the
input comes several times, one beside the other, it is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from .....framework.base.sizes.dims import Dim
from .....framework.base.untrusted.limits import check_limit
from ..calls import Adds, Attributes, Call, Value, lowers
from .linear import in_floats

_OF_SIZES = ("align_corners", "tf_crop_and_resize")
"""Modes in which the places that are read depend on sizes, and not on factors alone."""
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Places that one of the result reads, by the mode, without antialiasing."""
_PARTS = 64
"""Denominators of factors up to which sizes are computed by whole numbers."""
_FEW = 4
"""Places of the input that a place of the result reads at most, for gathers."""


class _Axis(NamedTuple):
    """How an axis changes.

    Attributes:
        axis: of the array. ids [out, K]: places that are read. weights [out, K].
        outside [out]: places that get the extrapolation value.
    """

    axis: int
    ids: np.ndarray
    weights: np.ndarray
    outside: np.ndarray


def _origins(
    n: Attributes, size: int, out: int, scale: float, roi: tuple[float, float]
) -> np.ndarray:
    """Where each place of the result lies in the input.

    Lengths of the result are whole numbers, as in ONNX Runtime, not products with a factor.
    """
    mode = n.attr("coordinate_transformation_mode", "half_pixel" if n.version > 10 else "")
    # Where a place decides which one is read, ONNX Runtime's rounding is part of the result.
    real = np.float32 if n.attr("mode", "nearest") == "nearest" else np.float64
    at = np.arange(out, dtype=real)
    factor = real(scale)
    half = real(0.5)
    if mode in ("asymmetric", ""):
        return at / factor
    if mode == "align_corners":
        return at * 0 if out == 1 else at * real(size - 1) / real(out - 1)
    if mode == "pytorch_half_pixel":
        return at * 0 if out == 1 else (at + half) / factor - half
    if mode == "half_pixel":
        return (at + half) / factor - half
    if mode == "half_pixel_symmetric":
        moved = real(size) / 2 * (1 - real(out) / (factor * real(size)))
        return moved + (at + half) / factor - half
    if mode == "tf_half_pixel_for_nn":
        return (at + half) / factor
    if mode == "tf_crop_and_resize":
        first, last = roi
        if out == 1:
            return at * 0 + 0.5 * (first + last) * (size - 1)
        return first * (size - 1) + at * (last - first) * (size - 1) / (out - 1)
    n.fail(f"coordinate_transformation_mode {mode!r}")


def cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Cubic convolution: the weight of a place at a distance, of the coefficient `a`."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _taps(n: Attributes, size: int, where: np.ndarray, scale: float) -> tuple[Any, Any]:
    mode = n.attr("mode", "nearest")
    if mode == "nearest":
        nearest = n.attr("nearest_mode", "round_prefer_floor" if n.version > 10 else "floor")
        ids = {
            "round_prefer_floor": np.ceil(where - 0.5),
            "round_prefer_ceil": np.floor(where + 0.5),
            "floor": np.floor(where),
            "ceil": np.ceil(where),
        }[nearest]
        return ids.astype(np.int64)[:, None], np.ones((len(where), 1))
    base = np.floor(where)
    ratio = where - base
    base = np.where(ratio == 0, base - 1, base)
    ratio = np.where(ratio == 0, 1, ratio)
    shrink = min(scale, 1.0) if n.attr("antialias", 0) else 1.0
    half = 1 if mode == "linear" else 2
    if mode not in ("linear", "cubic"):
        n.fail(f"mode {mode!r}")
    first = math.floor(-half / shrink) + 1
    steps = np.arange(first, 2 - first if half == 2 else first + 2 - 2 * first)
    args = (steps - ratio[:, None]) * shrink
    if mode == "linear":
        weights = np.clip(1 - np.abs(args), 0, 1)
    else:
        weights = cubic(args, n.attr("cubic_coeff_a", -0.75))
    ids = (base[:, None] + steps).astype(np.int64)
    if n.attr("exclude_outside", 0):
        weights = np.where((ids < 0) | (ids >= size), 0, weights)
    return ids, weights / weights.sum(-1, keepdims=True)


def _axis_map(
    n: Attributes, axis: int, size: int, out: int, scale: float, roi: tuple[float, float]
) -> _Axis:
    where = _origins(n, size, out, scale, roi)
    ids, weights = _taps(n, size, where, scale)
    outside = np.zeros(out, bool)
    if n.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        outside = (where < 0) | (where > size - 1)
    return _Axis(axis, np.clip(ids, 0, size - 1), weights, outside)


def _plan(
    n: Attributes, shape: Sequence[int], roi: Any, scales: Any, sizes: Any, item: int
) -> list[_Axis]:
    """How each axis that changes does so."""
    rank = len(shape)
    axes = [n.axis(a, rank) for a in n.ints("axes", range(rank)) or []]
    if sizes is not None and len(sizes):
        outs = [int(size) for size in sizes]
        factors = [out / shape[axis] for out, axis in zip(outs, axes, strict=True)]
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            outs = [int(math.floor(factor * shape[axis] + 0.5)) for axis in axes]
    else:
        factors = [float(scale) for scale in scales]
        if len(factors) != len(axes) or min(factors, default=1) <= 0:
            n.fail(f"scales {factors} for {len(axes)} axes")
        # In float32, as ONNX Runtime: in float64, 10 places times its 0.7 are 6.9999999.
        lengths = np.array(factors, "f4") * np.array([shape[axis] for axis in axes], "f4")
        outs = [math.floor(length) for length in lengths]
    whole = list(shape)
    for axis, out in zip(axes, outs, strict=True):
        whole[axis] = out
    check_limit("run", math.prod(whole) * item, n.node.title())
    crop = n.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if list(shape) == whole and not crop:
        return []
    maps = []
    for number, (axis, out, factor) in enumerate(zip(axes, outs, factors, strict=True)):
        bounds = (0.0, 1.0)
        if crop:
            bounds = float(roi[number]), float(roi[number + len(axes)])
        if out != shape[axis] or factor != 1 or (crop and bounds != (0.0, 1.0)):
            maps.append(_axis_map(n, axis, int(shape[axis]), int(out), factor, bounds))
    return maps


def _repeats(n: Call) -> list[tuple[int, int]] | None:
    """Axes and how often each place of them comes, where a resize does no more than that; None for
    others. It is the same for all sizes, which may vary then."""
    shape = n[0].shape
    if n.attr("mode", "nearest") != "nearest" or 0 in shape:
        return None
    if n.attr("coordinate_transformation_mode", "") in _OF_SIZES:
        return None
    axes = [n.axis(a, len(shape)) for a in n.ints("axes", range(len(shape))) or []]
    times = _factors(n, [shape[axis] for axis in axes])
    if times is None or len(times) != len(axes):
        return None
    wanted = math.prod(shape) * math.prod(times) * n[0].dtype.itemsize
    check_limit("run", wanted, n.node.title())
    for factor in set(times):
        # Places lie alike from one of the input to the next, and four have both ends and a middle.
        where = _origins(n, 4, 4 * factor, factor, (0.0, 1.0))
        ids = _taps(n, 4, where, factor)[0][:, 0].clip(0, 3)
        if (ids != np.arange(4 * factor) // factor).any():
            return None
    return [(axis, factor) for axis, factor in zip(axes, times, strict=True) if factor > 1]


def _factors(n: Call, sizes: Sequence[int]) -> list[int] | None:
    """The whole numbers by which sizes grow; None where others are among them."""
    if n.node.op == "Resize" and n.version > 10 and (outs := n.known_ints(3)):
        stretched = n.attr("keep_aspect_ratio_policy", "stretch") == "stretch"
        times = [int(out // size) for out, size in zip(outs, sizes, strict=False)]
        same = all([size * k == out for size, k, out in zip(sizes, times, outs, strict=False)])
        return times if same and stretched and min(times, default=1) > 0 else None
    _, scales, _ = _given(n, n.known)
    factors = [float(scale) for scale in (() if scales is None else scales)]
    whole = factors and all(factor >= 1 and factor.is_integer() for factor in factors)
    return [int(factor) for factor in factors] if whole else None


def _given(n: Attributes, known: Any) -> tuple[Any, Any, Any]:
    """roi, scales and sizes; `known` gives an input's array."""
    if n.node.op == "Upsample":
        return None, n.attr("scales") if n.version < 9 else known(1), None
    if n.version < 11:
        return None, known(1), None
    return known(1), known(2), known(3)


@lowers("Resize", "Upsample")
def _resize(n: Call) -> Value:
    repeats = _repeats(n)
    if repeats is not None:
        x = n[0]
        for axis, factor in repeats:
            x = n.op("repeat_interleave", x, repeats=factor, axis=axis)
        return x
    x = in_floats(n, n[0])
    dtype = n[0].dtype
    changes = _changes(n)
    if changes is not None:
        made = _interpolated(n, x, changes)
        if made is not None:
            return _as_given(n, made, dtype)
        sizes = [*x.shape, *[out for _, out, _ in changes]]
        if any(isinstance(size, Dim) for size in sizes):
            for axis, out, factor in changes:
                x = _following(n, x, axis, out, factor)
            return _as_given(n, x, dtype)
    axes = _plan(n, x.shape, *_given(n, n.known), dtype.itemsize)
    for each in axes:
        x = _resized(n, x, each)
    for each in axes:
        if each.outside.any():
            mask = n.reshape(n.const(each.outside), [-1, *(1,) * (x.ndim - 1 - each.axis)])
            x = n.op("where", mask, n.const(n.attr("extrapolation_value", 0.0), x.dtype), x)
    return _as_given(n, x, dtype)


def _as_given(n: Call, x: Value, dtype: np.dtype) -> Value:
    """Results in the dtype of the input."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        x = n.op("clip", n.op("round", x), minimum=float(info.min), maximum=float(info.max))
    return n.cast(x, dtype)


def _changes(n: Call) -> list[tuple[int, Any, float | None]] | None:
    """The axes that change, their new sizes, and the factors that are given; None for a resize of a
    rarer kind."""
    shape = n[0].shape
    rare = n.attr("antialias", 0) or n.attr("mode", "nearest") not in _TAPS
    rare = rare or n.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    rare = rare or n.attr("keep_aspect_ratio_policy", "stretch") != "stretch"
    axes = [n.axis(a, len(shape)) for a in n.ints("axes", range(len(shape))) or []]
    outs = n.known_ints(3) if n.node.op == "Resize" and n.version > 10 else None
    if rare or 0 in shape:
        return None
    if outs:
        if len(outs) != len(axes):
            return None
        changes = [(axis, out, None) for axis, out in zip(axes, outs, strict=True)]
    else:
        _, scales, _ = _given(n, n.known)
        factors = [float(scale) for scale in (() if scales is None else scales)]
        # As fractions, which those are that nets have: a size times one is a whole size again.
        parts = [factor.as_integer_ratio() for factor in factors]
        if len(factors) != len(axes) or any(up <= 0 or down > _PARTS for up, down in parts):
            return None
        changes = [
            (axis, shape[axis] * up // down, factor)
            for axis, (up, down), factor in zip(axes, parts, factors, strict=True)
        ]
    if all([_stays(shape[axis], out, factor) for axis, out, factor in changes]):
        return []  # a copy in ONNX Runtime, whatever the factors are
    changes = [
        (axis, out, factor) for axis, out, factor in changes
        if not (factor == 1 or (factor is None and _is_same(out, shape[axis])))
    ]  # fmt: skip
    whole = list(shape)
    for axis, out, _ in changes:
        whole[axis] = out
    check_limit("run", math.prod(whole) * n[0].dtype.itemsize, n.node.title())
    return changes


def _stays(size: Any, out: Any, factor: float | None) -> bool:
    """Whether a size stays as it is."""
    if factor is None:
        return _is_same(out, size)
    return factor == 1 or (1 < factor < 2 and bool(out == size))


def _is_same(size: Any, other: Any) -> bool:
    """Whether two sizes are one, whatever sizes vary."""
    return size.is_same(other) if isinstance(size, Dim) else size is other or size == other


def _interpolated(
    n: Call, x: Value, changes: Sequence[tuple[int, Any, float | None]]
) -> Value | None:
    """A resize of images or signals as an operator of its own; None where that has no such form."""
    mode = n.attr("mode", "nearest")
    how = n.attr("coordinate_transformation_mode", "half_pixel" if n.version > 10 else "")
    smooth = mode == "linear" or (mode == "cubic" and n.attr("cubic_coeff_a", -0.75) == -0.75)
    aligned = how == "align_corners"
    if not smooth or not (aligned or how == "half_pixel") or n.attr("exclude_outside", 0):
        return None
    outs = {axis: out for axis, out, _ in changes}
    if not 3 <= x.ndim <= 4 or min(outs, default=0) < 2 or 0 in outs.values():
        return None
    factors = {axis: factor for axis, _, factor in changes if factor is not None}
    more: dict[str, Any] = {"mode": mode, "align_corners": aligned}
    places = range(2, x.ndim)
    if factors:
        stay = [_stays(x.shape[axis], outs[axis], factor) for axis, factor in factors.items()]
        if mode == "linear" and not aligned and any(stay):
            return None  # PyTorch, and our operator, leave such an axis as it is
        return n.op("interpolate", x, scale=[factors.get(axis, 1.0) for axis in places], **more)
    sizes = [outs.get(axis, x.shape[axis]) for axis in places]
    if not any(isinstance(size, Dim) for size in sizes):
        return n.op("interpolate", x, size=sizes, **more)
    like = n.following(_image, [1, 1, *sizes], np.uint8, *sizes)
    return n.op("interpolate", x, like, **more)


def _image(*sizes: int) -> np.ndarray:
    """An image whose sizes alone are read: its memory is never touched."""
    return np.zeros((1, 1, *sizes), np.uint8)


def _following(n: Call, x: Value, axis: int, out: Any, factor: float | None) -> Value:
    """An axis resized, where its sizes may vary: the places that are read, and their weights, are
    made for those of each run."""
    here = Attributes(n.node, n.where)
    size = x.shape[axis]

    @lru_cache(maxsize=1)
    def taps(size: int, out: int) -> _Axis:  # of all places and weights of one shape
        scale = out / size if factor is None else factor
        return _axis_map(here, axis, size, out, scale, (0.0, 1.0))

    def places(tap: int, size: int, out: int) -> np.ndarray:
        return taps(size, out).ids[:, tap].copy()

    rank = x.ndim - 1 - axis

    def weights(tap: int, size: int, out: int) -> np.ndarray:
        own = taps(size, out).weights[:, tap].astype(x.dtype)
        return own.reshape(-1, *[1] * rank)

    total = None
    count = _TAPS[n.attr("mode", "nearest")]
    for tap in range(count):
        ids = n.following(partial(places, tap), [out], np.int64, size, out)
        part = n.op("gather", x, ids, axis=axis)
        if count > 1:
            shape = [out, *[1] * rank]
            factors = n.following(partial(weights, tap), shape, x.dtype, size, out)
            part = n.op("mul", part, factors)
        total = part if total is None else n.op("add", total, part)
    assert total is not None
    return total


def _resized(n: Call, x: Value, each: _Axis) -> Value:
    count = each.ids.shape[1]
    shape = [1] * x.ndim
    shape[each.axis] = len(each.ids)
    if count == 1:
        return n.op("gather", x, each.ids[:, 0].copy(), axis=each.axis)
    if count <= _FEW:
        total = None
        for ids, weights in zip(each.ids.T, each.weights.T, strict=True):
            part = n.op("gather", x, ids.copy(), axis=each.axis)
            part = n.op("mul", part, n.const(weights.reshape(shape), x.dtype))
            total = part if total is None else n.op("add", total, part)
        assert total is not None
        return total
    shares = np.zeros((len(each.ids), x.shape[each.axis]))
    for row, ids, weights in zip(shares, each.ids, each.weights, strict=True):
        np.add.at(row, ids, weights)
    return mixed_along(n, x, each.axis, shares)


def mixed_along(n: Adds, x: Value, axis: int, shares: np.ndarray) -> Value:
    """An axis whose places become sums of its old ones times their shares [new, old]."""
    perm = list(range(x.ndim))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    moved = n.op("transpose", x, perm=perm)
    rows = n.op("reshape", moved, shape=[-1, moved.shape[-1]])
    mixed = n.op("matmul", rows, n.const(shares.T.copy(), x.dtype))
    mixed = n.op("reshape", mixed, shape=[*moved.shape[:-1], len(shares)])
    return n.op("transpose", mixed, perm=perm)
