"""Maxima and means over windows of one and two spatial axes, and their gradients.

Where this library computes the maximum, it also computes its gradient: both depend on shapes and
attributes alone. Its winners have another layout than in the plain kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block, made_array
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ..base.calls import copying, is_read
from ..conv.windows import Axis, make_axes, spread
from ..math.reduction import reduced_axes
from .images import Work, steps, suited, turn

_MOST_TAPS = 255
_WORK = 2
"""Work of one value of one window."""


def windows(k: KernelArgs, shape: tuple[int, ...]) -> tuple[Axis, Axis] | None:
    """The windows of an input of that shape; None where the plain kernels serve."""
    kernel = spread(k.attrs["kernel"], len(shape) - 2)
    axes = make_axes(k.attrs, kernel, shape[2:])
    axes_2d = (Axis(1), *axes) if len(axes) == 1 else tuple(axes)
    if (
        len(axes_2d) != 2
        or axes_2d[0].kernel * axes_2d[1].kernel > _MOST_TAPS
        or native.load("pooling", "float") is None
    ):
        return None
    return axes_2d if 0 not in shape and axes_2d != (Axis(1), Axis(1)) else None


def _lift(array: Any) -> Any:
    return array[:, :, None] if array.ndim == 3 else array


def _usable(k: KernelArgs, array: Any) -> tuple[Any, Call | None]:
    """The array, or one with the same values that the functions take and what copies them."""
    if suited(array):
        return array, None
    copy = k.scratch(array.shape, array.dtype)
    return copy, copying(k.xp, array, copy)


_SIZES = "images", "channels", "height", "width"
_STEPS = "image", "channel", "row", "pixel"


def windows_part(
    work: Work, axes: tuple[Axis, Axis], large: Any, small: Any, factors: Any = None
) -> Block:
    """The windows of one array that the places of the other stand for.

    Args:
        factors: of a mean: one for rows and one for columns; None for a maximum.
    """
    large, small = _lift(large), _lift(small)
    fields: dict[str, Any] = dict(zip(_SIZES, large.shape, strict=True))
    fields |= {"high": small.shape[2], "wide": small.shape[3], "means": factors is not None}
    for way, axis in zip(("down", "right"), axes, strict=True):
        fields |= {f"kernel_{way}": axis.kernel, f"stride_{way}": axis.stride}
        fields[f"before_{way}"] = axis.before
    for name, array in (("x", large), ("out", small)):
        strides = steps(array)
        if array.shape[1] == 1:
            strides[1] = 1
        fields |= {f"{name}_{axis}": step for axis, step in zip(_STEPS, strides, strict=True)}
    if factors is not None:
        fields |= {"down": factors[0], "right": factors[1]}
    return work.bind("pooling", "windows", **fields)


def _tiles(axes: tuple[Axis, Axis], large: Any, small: Any) -> bool:
    """Whether every place of the large array lies in exactly one window."""
    return all(
        axis.stride == axis.kernel and not axis.before and count * axis.kernel == size
        for axis, size, count in zip(
            axes, _lift(large).shape[2:], _lift(small).shape[2:], strict=True
        )
    )


def _run(
    k: KernelArgs,
    name: str,
    axes: tuple[Axis, Axis],
    large: Any,
    small: Any,
    winners: Any,
    means: bool,
) -> Call:
    work = Work(large.dtype)
    forward = name == "pool"
    back = None
    if _is_planes(large) or _is_planes(small):  # vectors are of channels
        source, target = (large, small) if forward else (small, large)
        source = _rows_of(k, work, source, copy=True)
        back = target
        target = _rows_of(k, work, target, copy=False)
        large, small = (source, target) if forward else (target, source)
    factors = _factors(k, axes, large, small) if means else None
    given = {"windows": windows_part(work, axes, large, small, factors), "winners": winners}
    amount = small.size * axes[0].kernel * axes[1].kernel * _WORK
    if forward:
        work.add("pooling", name, amount, x=large, out=small, **given)
    else:
        given["tiles"] = _tiles(axes, large, small)
        work.add("pooling", name, amount, x_grad=large, out_grad=small, **given)
    if back is not None and _is_planes(back):
        channels = back.shape[1]
        size = back.size // (len(back) * channels)
        turn(work, target, (size, channels), back)
    return work.call()


def _is_planes(array: Any) -> bool:
    """Whether an array holds plane after plane, and its channels thus lie far apart."""
    return array.flags.c_contiguous and array.shape[1] > 1 and array.size > array.shape[1]


def _rows_of(k: KernelArgs, work: Work, array: Any, *, copy: bool) -> Any:
    """Scratch memory [N, C, ...] whose channels lie last, with the values where `copy` says so;
    the array itself where it does not hold planes."""
    if not _is_planes(array):
        return array
    batch, channels, *plane = array.shape
    memory = k.scratch((batch, *plane, channels), array.dtype)
    rows = np.moveaxis(memory, -1, 1)
    if copy:
        turn(work, array, (channels, array.size // (batch * channels)), memory)
    return rows


def _factors(k: KernelArgs, axes: tuple[Axis, Axis], large: Any, small: Any) -> list[Any]:
    """1 / number of places that each row and each column of windows averages over."""
    make = partial(_means, large.dtype, bool(k.attrs["count_include_pad"]))
    sizes = zip(axes, _lift(large).shape[2:], _lift(small).shape[2:], strict=True)
    return [
        made_array(
            *(make, large.dtype, count, count),
            *(axis.stride, axis.kernel, axis.before, axis.after, size),
        )
        for axis, size, count in sizes
    ]


def _means(
    dtype: np.dtype,
    pads: bool,
    count: int,
    stride: int,
    kernel: int,
    before: int,
    after: int,
    size: int,
) -> np.ndarray:
    """The factors of one axis, which may count its padding."""
    start = np.arange(count) * stride - before
    end = np.minimum(start + kernel, size + after)
    if not pads:
        start = np.maximum(start, 0)
        end = np.minimum(end, size)
    return (1 / (end - start)).astype(dtype)


def max_pool(k: KernelArgs) -> Call | None:
    """Forward; None for windows that are too large."""
    axes = windows(k, k.shape("x"))
    if axes is None or not suited(k["out"]):
        return None
    x, copy = _usable(k, k["x"])
    index = k.get("index")
    # Outside of training nothing reads the winners, and finding them takes as long as the maximum.
    winners = index if index is not None and is_read(k, "index") else None
    return in_order(copy, _run(k, "pool", axes, x, k["out"], winners, False))


def max_pool_grad(k: KernelArgs) -> Call | None:
    """Gradient; None where the maximum was left to the plain kernel."""
    axes = windows(k, k.shape("x"))
    if axes is None or not suited(k["x_grad"]):
        return None
    grad, copy = _usable(k, k["out_grad"])
    return in_order(copy, _run(k, "spread", axes, k["x_grad"], grad, k["index"], False))


def avg_pool(k: KernelArgs) -> Call | None:
    """Forward; None for windows that are too large."""
    axes = windows(k, k.shape("x"))
    if axes is None or not suited(k["x"], k["out"]):
        return None
    return _run(k, "pool", axes, k["x"], k["out"], None, True)


def avg_pool_grad(k: KernelArgs) -> Call | None:
    """Gradient; None for windows that are too large."""
    axes = windows(k, k.shape("x"))
    if axes is None or not suited(k["out_grad"], k["x_grad"]):
        return None
    return _run(k, "spread", axes, k["x_grad"], k["out_grad"], None, True)


def global_avg_pool(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays do not suit, or windows are smaller than the image."""
    return None if max(k.shape("out")[2:]) > 1 else _plane_means(k)


def reduce_mean(k: KernelArgs) -> Call | None:
    """Forward, over whole images; None for other axes, or arrays that do not suit."""
    # Of fewer axes it is a sum over rows, which have kernels of their own.
    return _plane_means(k) if k["x"].ndim == 4 and reduced_axes(k) == (2, 3) else None


def _plane_means(k: KernelArgs) -> Call | None:
    x, out = k["x"], k["out"]
    if x.ndim > 4 or not suited(x, out) or not out.flags.c_contiguous:
        return None
    images = _lift(x)
    work = Work(x.dtype)
    fields = dict(zip(_SIZES, images.shape, strict=True))
    fields |= dict(zip(_STEPS, steps(images), strict=True))
    work.add("pooling", "plane_means", x.size * _WORK, x=images, out=out, **fields)
    return work.call()
