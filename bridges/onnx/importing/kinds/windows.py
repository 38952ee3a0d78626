"""Sliding windows: convolutions, poolings, columns of windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers

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


def windows(
    x: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
    fill: Any = 0,
) -> np.ndarray:
    """The windows [N, C, positions..., taps...] of an array, a view of a padded copy."""
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes = tuple(range(2, 2 + rank))
    found = sliding_window_view(padded, extents, axes)
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    return found[(slice(None), slice(None), *steps)]


def convolved(n: Attributes, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution of arrays, by the attributes of a node."""
    rank, groups = w.ndim - 2, n.attr("group", 1)
    strides, dilations, pads = _geometry(n, w.shape[2:], x.shape[2:])
    found = windows(x, w.shape[2:], strides, dilations, pads)
    parts = []
    taps = list(range(2 + rank, 2 + 2 * rank))
    for part, weights in zip(np.split(found, groups, 1), np.split(w, groups, 0), strict=True):
        made = np.tensordot(part, weights, ([1, *taps], [1, *range(2, 2 + rank)]))
        parts.append(np.moveaxis(made, -1, 1))
    return np.concatenate(parts, 1)


@evaluates("Conv")
def _conv_on_host(n: Attributes, x: np.ndarray, w: np.ndarray, b: Any = None) -> np.ndarray:
    made = convolved(n, x, w)
    if b is not None:
        made = made + b.reshape((-1,) + (1,) * (w.ndim - 2))
    return made.astype(x.dtype)


@lowers("Conv")
def _conv(n: Call) -> Value:
    x, w, b = n[0], n[1], n.get(2)
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
    return n.op(
        f"conv{rank}d",
        x,
        w,
        b,
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
    x, w, b = n[0], n[1], n.get(2)
    rank = w.ndim - 2
    if rank not in (1, 2, 3):
        n.fail(f"{rank} spatial axes")
    kernel, sizes = w.shape[2:], x.shape[2:]
    strides = n.ints("strides", [1] * rank) or []
    dilations = n.ints("dilations", [1] * rank) or []
    more = n.ints("output_padding", [0] * rank) or []
    whole = [
        (size - 1) * s + (k - 1) * d + 1
        for size, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
    ]
    auto = n.attr("auto_pad", "NOTSET")
    wanted = n.ints("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * s for size, s in zip(sizes, strides, strict=True)]
    if wanted is not None:
        wanted, begins = list(wanted)[-rank:], []
        for size, extra, want in zip(whole, more, wanted, strict=True):
            total = max(size + extra - want, 0)
            begins.append(total - total // 2 if auto == "SAME_LOWER" else total // 2)
    else:
        flat = n.ints("pads", [0] * (2 * rank)) or []
        begins = flat[:rank] if auto != "VALID" else [0] * rank
        ends = flat[rank:] if auto != "VALID" else [0] * rank
        wanted = [
            size + extra - begin - end
            for size, extra, begin, end in zip(whole, more, begins, ends, strict=True)
        ]
    made = n.op(
        f"conv_transpose{rank}d",
        x,
        w,
        stride=strides,
        dilation=dilations,
        groups=n.attr("group", 1),
    )
    lack = [max(b + w - size, 0) for b, w, size in zip(begins, wanted, whole, strict=True)]
    if any(lack):
        made = n.op("pad", made, paddings=[0, 0, 0, 0, *(v for p in lack for v in (0, p))])
    if any(begins) or list(made.shape[2:]) != wanted:
        ends = [b + w for b, w in zip(begins, wanted, strict=True)]
        made = n.op("slice", made, axes=list(range(2, 2 + rank)), starts=begins, ends=ends)
    if b is None:
        return made
    return n.op("add", made, n.op("reshape", b, shape=[-1, *[1] * rank]))


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
            raise ValueError(f"a window of {k} over {size}")
        counts.append(count)
    return kernel, strides, dilations, [a for a, _ in pads], [b for _, b in pads], counts


def _pool_windows(n: Attributes, x: np.ndarray, fill: Any) -> np.ndarray:
    """The windows of a pooling, with what hangs over."""
    kernel, strides, dilations, begins, ends, counts = _pool_geometry(n, x.shape[2:])
    reach = [
        max((c - 1) * s + (k - 1) * d + 1 - size - a, b)
        for c, s, k, d, size, a, b in zip(
            counts, strides, kernel, dilations, x.shape[2:], begins, ends, strict=True
        )
    ]
    found = windows(x, kernel, strides, dilations, list(zip(begins, reach, strict=True)), fill)
    return found[(slice(None), slice(None), *(slice(c) for c in counts))]


@evaluates("MaxPool")
def _max_pool_on_host(n: Attributes, x: np.ndarray) -> tuple[np.ndarray, ...]:
    rank = x.ndim - 2
    low = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    found = _pool_windows(n, x, low)
    flat = found.reshape(*found.shape[: 2 + rank], -1)
    made = np.max(flat, -1)
    if n.outputs < 2:
        return (made,)
    order = range(rank) if n.attr("storage_order", 0) == 0 else range(rank)[::-1]
    numbers = np.arange(x[0, 0].size).reshape([x.shape[2 + i] for i in order])
    if n.attr("storage_order", 0):
        numbers = numbers.T
    count = x[0, 0].size
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *(1,) * rank)
    every = planes * count + numbers
    where = _pool_windows(n, every, -1).reshape(flat.shape)
    return made, np.take_along_axis(where, np.argmax(flat, -1)[..., None], -1)[..., 0]


@evaluates("AveragePool")
def _average_pool_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    rank = x.ndim - 2
    axes = tuple(range(2 + rank, 2 + 2 * rank))
    total = np.sum(_pool_windows(n, x, 0), axis=axes)
    ones = np.ones_like(x)
    if n.attr("count_include_pad", 0):  # the padding counts, what hangs over does not
        _, _, _, begins, ends, _ = _pool_geometry(n, x.shape[2:])
        padded = np.pad(ones, [(0, 0), (0, 0), *zip(begins, ends, strict=True)], constant_values=1)
        count = np.sum(_pool_windows(_Unpadded(n), padded, 0), axis=axes)
        count = count[(..., *(slice(size) for size in total.shape[2:]))]
    else:
        count = np.sum(_pool_windows(n, ones, 0), axis=axes)
    return (total / count).astype(x.dtype)


class _Unpadded(Attributes):
    """A node without its pads."""

    def __init__(self, n: Attributes) -> None:
        super().__init__(n.node, n._where)

    def attr(self, name: str, default: Any = None) -> Any:
        if name == "ceil_mode":
            return 1
        return "VALID" if name == "auto_pad" else super().attr(name, default)


@lowers("MaxPool", "AveragePool")
def _pool(n: Call) -> Value:
    x = n[0]
    rank = x.ndim - 2
    kernel, strides, dilations, begins, ends, counts = _pool_geometry(n, x.shape[2:])
    is_max = n.node.op == "MaxPool"
    if not x.is_float or rank not in (1, 2, 3) or any(d != 1 for d in dilations) or n.wants(1):
        raise NotHere
    attrs: dict[str, Any] = {}
    if not is_max:
        attrs["count_include_pad"] = bool(n.attr("count_include_pad", 0))
    made = n.op(
        f"{'max' if is_max else 'avg'}_pool{rank}d",
        x,
        kernel=kernel,
        stride=strides,
        padding=[*begins, *ends],
        ceil_mode=bool(n.attr("ceil_mode", 0)),
        outs=("out",),
        **attrs,
    )
    if list(made.shape[2:]) != counts:
        raise NotHere
    return made


@evaluates("LpPool")
def _lp_pool_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    rank, p = x.ndim - 2, n.attr("p", 2)
    found = np.abs(_pool_windows(n, x, 0)) ** p
    return (np.sum(found, axis=tuple(range(2 + rank, 2 + 2 * rank))) ** (1 / p)).astype(x.dtype)


@evaluates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    axes = tuple(range(2, x.ndim))
    if n.node.op == "GlobalAveragePool":
        return np.mean(x, axis=axes, keepdims=True).astype(x.dtype)
    if n.node.op == "GlobalMaxPool":
        return np.max(x, axis=axes, keepdims=True)
    p = n.attr("p", 2)
    return (np.sum(np.abs(x) ** p, axis=axes, keepdims=True) ** (1 / p)).astype(x.dtype)


@lowers("GlobalAveragePool", "GlobalMaxPool")
def _global(n: Call) -> Value:
    op = "global_avg_pool" if n.node.op == "GlobalAveragePool" else "global_max_pool"
    return n.op(op, n[0], outs=("out",))


@evaluates("MaxUnpool")
def _max_unpool(n: Attributes, x: np.ndarray, ids: np.ndarray, shape: Any = None) -> np.ndarray:
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
    made = np.zeros(int(np.prod(small)), x.dtype)
    made[ids.reshape(-1)] = x.reshape(-1)
    made = made.reshape(small)
    if shape is not None and list(shape) != small:
        whole = np.zeros([int(dim) for dim in shape], x.dtype)
        whole[tuple(slice(dim) for dim in small)] = made
        return whole
    return made


@evaluates("Col2Im")
def _col_to_image(n: Attributes, x: np.ndarray, image: np.ndarray, block: np.ndarray) -> np.ndarray:
    sizes, kernel = [int(v) for v in image], [int(v) for v in block]
    strides, dilations, pads = _geometry(n, kernel, sizes)
    counts = [
        (size + a + b - (k - 1) * d - 1) // s + 1
        for size, (a, b), k, d, s in zip(sizes, pads, kernel, dilations, strides, strict=True)
    ]
    channels = x.shape[1] // int(np.prod(kernel))
    columns = x.reshape(len(x), channels, *kernel, *counts)
    padded = [size + a + b for size, (a, b) in zip(sizes, pads, strict=True)]
    made = np.zeros((len(x), channels, *padded), x.dtype)
    for tap in itertools.product(*map(range, kernel)):
        where = tuple(
            slice(t * d, t * d + (c - 1) * s + 1, s)
            for t, d, c, s in zip(tap, dilations, counts, strides, strict=True)
        )
        made[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *tap)]
    inner = tuple(slice(a, size - b) for size, (a, b) in zip(padded, pads, strict=True))
    return made[(slice(None), slice(None), *inner)]
