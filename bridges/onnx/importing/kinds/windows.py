"""Sliding windows: convolutions, poolings, columns of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from .....operators.base.integers import BYTES
from ..calls import Adds, Attributes, Call, NotHere, Value, lowers
from .shapes import padded

Pads = list[tuple[int, int]]


def window_pads(
    n: Attributes,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Pads:
    """Padding at both ends of each spatial axis, as `pads` or `auto_pad` says."""
    auto = n.attr("auto_pad", "NOTSET")
    rank = len(sizes)
    if auto in ("NOTSET", ""):
        flat = n.ints("pads", [0] * (2 * rank)) or []
        if len(flat) != 2 * rank:
            n.fail(f"{len(flat)} pads for {rank} axes")
        return list(zip(flat[:rank], flat[rank:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * rank
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        n.fail(f"auto_pad {auto!r}")
    pads = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        extent = (k - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        less = total // 2
        pads.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
    return pads


def _geometry(
    n: Attributes, kernel: Sequence[int], sizes: Sequence[int]
) -> tuple[list[int], list[int], Pads]:
    rank = len(kernel)
    strides = n.ints("strides", [1] * rank) or []
    dilations = n.ints("dilations", [1] * rank) or []
    if len(strides) != rank or len(dilations) != rank or rank != len(sizes):
        n.fail(f"strides {strides} and dilations {dilations} for {len(sizes)} axes")
    if min(strides, default=1) < 1 or min(dilations, default=1) < 1:
        n.fail(f"strides {strides}, dilations {dilations}")
    return strides, dilations, window_pads(n, sizes, kernel, strides, dilations)


@lowers("Conv")
def _conv(n: Call) -> Value:
    return convolved(n, n[0], n[1], n.get(2))


def convolved(
    n: Call,
    x: Value,
    w: Value,
    b: Value | None = None,
    convolve: Callable[..., Value] | None = None,
) -> Value:
    """The convolution of values, by the attributes of a node, by `convolve` if that is given."""
    rank = w.ndim - 2
    if rank not in (1, 2, 3):
        raise NotHere
    if x.ndim != w.ndim:
        n.fail(f"x has {x.ndim} dimensions, w {w.ndim}")
    kernel = n.ints("kernel_shape", w.shape[2:]) or []
    if tuple(kernel) != w.shape[2:]:
        n.fail(f"kernel_shape {kernel} and weights {list(w.shape)}")
    strides, dilations, pads = _geometry(n, kernel, x.shape[2:])
    x, flat = _explicit(n, x, pads)
    convolve = convolve or partial(n.op, f"conv{rank}d")
    return convolve(
        x,
        w,
        *([] if b is None else [b]),
        stride=strides,
        dilation=dilations,
        padding=flat,
        groups=n.attr("group", 1),
    )


def _explicit(n: Call, x: Value, pads: Pads) -> tuple[Value, list[int]]:
    """Padding as a net's operators take it: all begins, then all ends; negative ones cut."""
    if any(p < 0 for pair in pads for p in pair):
        starts = [max(-a, 0) for a, _ in pads]
        ends = [s - max(-b, 0) for s, (_, b) in zip(x.shape[2:], pads, strict=True)]
        x = n.op("slice", x, axes=list(range(2, x.ndim)), starts=starts, ends=ends)
    return x, [max(a, 0) for a, _ in pads] + [max(b, 0) for _, b in pads]


@lowers("ConvTranspose")
def _conv_transpose(n: Call) -> Value:
    x = n[0]
    w = n[1]
    b = n.get(2)
    rank = w.ndim - 2
    if rank not in (1, 2, 3):
        n.fail(f"{rank} spatial axes")
    kernel, sizes = w.shape[2:], x.shape[2:]
    strides = n.ints("strides", [1] * rank) or []
    dilations = n.ints("dilations", [1] * rank) or []
    more = n.ints("output_padding", [0] * rank) or []
    auto = n.attr("auto_pad", "NOTSET")
    wanted = n.ints("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * s for size, s in zip(sizes, strides, strict=True)]
    if wanted is not None:
        begins, ends = [], []
        windows = zip(sizes, strides, kernel, dilations, wanted[-rank:], more, strict=True)
        for size, s, k, d, want, room in windows:
            whole = (size - 1) * s + (k - 1) * d + 1
            total = max(whole + room - want, 0)
            begins.append(total // 2 if auto == "SAME_UPPER" else total - total // 2)
            ends.append(whole - begins[-1] - want)
    else:
        none = [0] * 2 * rank
        flat = none if auto == "VALID" else n.ints("pads", none) or none
        begins = flat[:rank]
        ends = [end - room for end, room in zip(flat[rank:], more, strict=True)]
    return n.op(
        f"conv_transpose{rank}d",
        *(x, w) if b is None else (x, w, b),
        stride=strides,
        padding=[*begins, *(max(end, 0) for end in ends)],
        output_padding=[max(-end, 0) for end in ends],
        dilation=dilations,
        groups=n.attr("group", 1),
    )


# -- poolings --------------------------------------------------------------------------------------


def _pool_geometry(n: Attributes, sizes: Sequence[int]) -> tuple[list[int], ...]:
    """Kernel, strides, dilations, pads (begins, then ends) and the number of positions."""
    kernel = n.ints("kernel_shape") or []
    strides, dilations, pads = _geometry(n, kernel, sizes)
    counts = []
    for size, k, s, d, (a, b) in zip(sizes, kernel, strides, dilations, pads, strict=True):
        room = size + a + b - (k - 1) * d - 1
        count = room // s + 1
        if n.attr("ceil_mode", 0):
            count = -(-room // s) + 1
            if (count - 1) * s >= size + a:  # it would begin in the padding at the end
                count -= 1
        if count < 1:
            n.fail(f"a window of {k} over {size}")
        counts.append(count)
    return kernel, strides, dilations, [a for a, _ in pads], [b for _, b in pads], counts


def _windows(n: Call, x: Value, fill: float) -> Value:
    """The windows [N, C, positions..., taps] of a pooling, with what hangs over."""
    kernel, strides, dilations, begins, ends, counts = _pool_geometry(n, x.shape[2:])
    rank = len(kernel)
    paddings = [0] * 4
    places = []
    for axis, (count, k) in enumerate(zip(counts, kernel, strict=True)):
        ids = np.arange(count)[:, None] * strides[axis] + np.arange(k) * dilations[axis]
        places.append(ids)
        over = int(ids.max()) + 1 - begins[axis] - x.shape[2 + axis]
        paddings += [begins[axis], max(over, ends[axis])]
    x = n.op("pad", x, paddings=paddings, value=fill)
    for axis, ids in enumerate(places):
        x = n.op("gather", x, ids, axis=2 + 2 * axis)
    first = range(2, 2 + 2 * rank, 2)
    x = n.op("transpose", x, perm=[0, 1, *first, *(axis + 1 for axis in first)])
    return n.reshape(x, [*x.shape[:2], *counts, math.prod(kernel)])


@lowers("MaxPool", "AveragePool")
def pool(n: Call) -> Any:
    x = n[0]
    rank = x.ndim - 2
    kernel, strides, dilations, begins, ends, counts = _pool_geometry(n, x.shape[2:])
    is_max = n.node.op == "MaxPool"
    fits = x.is_float or (is_max and x.dtype in BYTES)
    if fits and rank in (1, 2, 3) and not n.wants(1) and set(dilations) == {1}:
        attrs: dict[str, Any] = {}
        if not is_max:
            attrs["count_include_pad"] = bool(n.attr("count_include_pad", 0))
        pooled = n.op(
            f"{'max' if is_max else 'avg'}_pool{rank}d",
            x,
            kernel=kernel,
            stride=strides,
            padding=[*begins, *ends],
            ceil_mode=bool(n.attr("ceil_mode", 0)),
            outs=("out",),
            **attrs,
        )
        if list(pooled.shape[2:]) == counts:
            return pooled
    return _max_of_windows(n) if is_max else _mean_of_windows(n)


def _max_of_windows(n: Call) -> list[Value]:
    x = n[0]
    rank = n[0].ndim - 2
    low = -math.inf if x.is_float else float(np.iinfo(x.dtype).min)
    windows = _windows(n, x, low)
    best_values = n.op("reduce_max", windows, axes=[windows.ndim - 1])
    if not n.wants(1):
        return [best_values]
    back = bool(n.attr("storage_order", 0))  # columns first
    size = math.prod(x.shape[2:])
    numbers = np.arange(size).reshape(x.shape[2:][::-1] if back else x.shape[2:])
    planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * rank)
    where = _windows(n, n.const(planes * size + (numbers.T if back else numbers)), -1.0)
    best = n.op("argmax", windows, axis=windows.ndim - 1, keepdims=True)
    ids = n.op("take_along_axis", where, best, axis=windows.ndim - 1)
    return [best_values, n.reshape(ids, best_values.shape)]


def _mean_of_windows(n: Call) -> Value:
    x = n[0]
    kernel, strides, dilations, begins, ends, counts = _pool_geometry(n, x.shape[2:])
    padded = bool(n.attr("count_include_pad", 0))  # it counts; what hangs over does not
    weight = np.ones((1, 1))
    for axis, (count, k) in enumerate(zip(counts, kernel, strict=True)):
        ids = np.arange(count)[:, None] * strides[axis] + np.arange(k) * dilations[axis]
        size = begins[axis] + x.shape[2 + axis]
        inside = (
            (ids >= 0) & (ids < size + ends[axis])
            if padded
            else ((ids >= begins[axis]) & (ids < size))
        )
        weight = weight[..., None] * inside.sum(1)
    windows = _windows(n, x, 0.0)
    total = n.op("reduce_sum", windows, axes=[windows.ndim - 1])
    return n.op("div", total, n.const(weight, x.dtype))


@lowers("LpPool", "GlobalLpPool")
def _lp_pool(n: Call) -> Value:
    x = n[0]
    p = n.attr("p", 2)
    every = n.node.op == "GlobalLpPool"
    powers = n.op("pow", n.op("abs", x), n.const(p, x.dtype))
    windows = powers if every else _windows(n, powers, 0.0)
    axes = list(range(2, x.ndim)) if every else [x.ndim]
    total = n.op("reduce_sum", windows, axes=axes, keepdims=every)
    return n.op("pow", total, n.const(1 / p, x.dtype))


@lowers("MaxUnpool")
def _max_unpool(n: Call) -> Value:
    x = n[0]
    kernel = n.ints("kernel_shape") or []
    strides = n.ints("strides", [1] * len(kernel)) or []
    pads = n.ints("pads", [0] * (2 * len(kernel))) or []
    sizes = [
        (size - 1) * s + k - a - b
        for size, s, k, a, b in zip(
            x.shape[2:], strides, kernel, pads, pads[len(kernel) :], strict=False
        )
    ]
    small = [*x.shape[:2], *sizes]
    whole = n.known_ints(2, small) or []
    check_fill(whole, x.dtype.itemsize, n.node.title())
    zeros = n.const(np.zeros(math.prod(small)), x.dtype)
    count = [math.prod(x.shape)]
    unpooled = n.op("put_along_axis", zeros, n.reshape(n[1], count), n.reshape(x, count), axis=0)
    widths = [(0, most - size) for most, size in zip(whole, small, strict=True)]
    return padded(n, n.reshape(unpooled, small), widths)


@lowers("Col2Im")
def _col_to_image(n: Call) -> Value:
    x = n[0]
    sizes = n.known_ints(1) or []
    kernel = n.known_ints(2) or []
    return summed_blocks(n, x, sizes, kernel, *_geometry(n, kernel, sizes))


def summed_blocks(
    n: Adds,
    x: Value,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
) -> Value:
    """Blocks [N, C * taps, positions] as an image [N, C, sizes...], summed where they overlap.

    That is a transposed convolution whose weights are 0 and 1.
    """
    rank = len(kernel)
    taps = math.prod(kernel)
    if rank not in (1, 2, 3):
        raise NotHere
    counts = [
        (size + a + b - (k - 1) * d - 1) // s + 1
        for size, (a, b), k, d, s in zip(sizes, pads, kernel, dilations, strides, strict=True)
    ]
    channels = x.shape[1] // taps
    weight = np.tile(np.eye(taps), (channels, 1)).reshape(channels * taps, 1, *kernel)
    total = n.op(
        f"conv_transpose{rank}d",
        n.op("reshape", x, shape=[x.shape[0], x.shape[1], *counts]),
        n.const(weight, x.dtype),
        stride=list(strides),
        dilation=list(dilations),
        groups=channels,
    )
    widths = [
        (-a, size + a - have)
        for size, (a, _), have in zip(sizes, pads, total.shape[2:], strict=True)
    ]
    return padded(n, total, [(0, 0), (0, 0), *widths])
