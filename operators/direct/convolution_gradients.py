"""Gradients of convolutions: by the data another convolution, by the weights sums over pixels
(`sums_of` of `native/convolution.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...framework.fusion.compiled.arguments import grid
from ...framework.ir.kernel_args import Call, KernelArgs
from ..conv.windows import Axis
from .convolution_sums import (
    FEWEST,
    Ends,
    Phase,
    Shapes,
    Target,
    add_sums,
    declines,
    parts_of,
    without_padding,
)
from .images import Frame, Image, Work, image, lanes, nothing, pixel_step, steps, suited, threads
from .panels import pack
from .tail import activation

_CACHE = 24 << 10
"""Bytes of image and gradient that are gone over again and again for sums."""
_LEAST = 128
"""Pixels that are gone over at least, as all sums pass by for each such piece."""
_MANY = 512
"""Channels of image and gradient together from which it is twice as many."""


def conv_grad(k: KernelArgs) -> Call | None:
    """Gradients; None where the arrays or the shapes do not suit."""
    grad = k["out_grad"]
    w = k["w"]
    x_grad = k.get("x_grad")
    w_grad, b_grad = k.get("w_grad"), k.get("b_grad")
    x = k["x"] if w_grad is not None else None
    if declines(k, grad.ndim - 2) or not suited(grad, w, x, x_grad, w_grad, b_grad):
        return None
    s = Shapes(k, x if x is not None else x_grad, grad, w)
    work = Work(grad.dtype)
    # Vectors are of input channels there: of three, as an image has, most lanes would be idle.
    if x_grad is not None and w.shape[1] < FEWEST and not s.deep:
        return None
    filters = w.shape[0] // s.groups
    for group in range(s.groups):
        own = slice(group * filters, (group + 1) * filters)
        if w_grad is not None or b_grad is not None:
            of_w = None if w_grad is None else s.lift(w_grad)[own]
            of_b = None if b_grad is None else b_grad[own]
            by_weights(k, work, s, group, s.part(s.small, group), of_w, of_b)
        if x_grad is not None:
            target = s.part(s.lift(x_grad), group)
            by_data(k, work, s, s.part(s.small, group), s.w[own], target, Ends(None))
    return work.call()


def by_weights(
    k: KernelArgs, work: Work, s: Shapes, group: int, grad: Any, w_grad: Any, b_grad: Any
) -> None:
    """Gradients of one group by its weights and its bias: sums of `grad`, the smaller images where
    there are weights, times the windows of the larger ones."""
    dtype = grad.dtype
    (batch, outs), shape = grad.shape[:2], grad.shape[2:]
    room = -(-outs // lanes(dtype)) * lanes(dtype)
    parts = sets = min(batch, threads())
    # All sums pass by for each image. Images of few pixels, or fewer of them than threads, are one,
    # and threads share the outs.
    few_images = prod(shape) < _LEAST or batch < threads()
    joined = w_grad is not None and few_images and not s.deep and pixel_step(grad) == room == outs
    if w_grad is None:  # the bias alone: no rows of weights
        x = grad
        seen = nothing(work, grad)
        at = places = np.zeros(0, np.int64)
        step, in_order = 0, True
    else:
        x = s.part(s.large, group)
        ragged = s.deep and room != outs
        seen = image(k, work, x, s.frame(shape), as_one=joined, copy=ragged)
        channels = 1 if s.deep else x.shape[1]
        so, si, down, right = steps(w_grad)
        # Where the taps of a filter lie side by side its gradients are written in that order; sums
        # of one vector, of many rows at once, want channels side by side.
        by_channel = w_grad[0].flags.c_contiguous and room > lanes(dtype)
        dense = 1, channels, channels * s.right.kernel
        in_order = by_channel or (si, right, down) == dense
        seen_steps = s.down.dilation * seen.row, s.right.dilation * seen.pixel
        axes = (channels, *w_grad.shape[2:])
        at, places = (
            grid(axes, (apart, *taps))
            if by_channel
            else grid((*axes[1:], channels), (*taps, apart))
            for taps, apart in ((seen_steps, 1), ((down, right), si))
        )
        step = so
    pixels = s.pixels(seen.row, seen.pixel, shape)
    if joined:
        parts, sets = min(room // lanes(dtype), threads()), 1
        pixel_steps = s.down.stride * seen.row, s.right.stride * seen.pixel
        pixels = grid((batch, *shape), (seen.step, *pixel_steps))
        by_pixel = grad.transpose(0, 2, 3, 1).reshape(1, 1, pixels.size, outs)
        grad = by_pixel.transpose(0, 3, 1, 2)
    plane = Frame(grad.shape[2], grad.shape[3], 0, 0)
    # The vector of the last pixel may reach beyond the array: it is read from a copy then.
    given = image(k, work, grad, plane, at_once=False, rows=True, copy=room != outs)
    sums = k.scratch((sets, len(at) + 1, room), dtype)
    depth = x.shape[1] + room
    few = max(_CACHE // dtype.itemsize // depth, _LEAST * (2 if depth >= _MANY else 1))
    fields: dict[str, Any] = {"rows": len(at), "outs": room, "sums": sums}
    work.add(
        "convolution",
        "sums_of",
        grad.size * len(at),
        **{"parts": parts, "sets": sets, "images": len(grad), "threads": threads()},
        **{"row_places": at, "pixels": pixels.size, "few": few},
        **{"pixel_places": pixels, "image": seen.part, "grad": given.part},
        **{"grad_step": given.pixel, "deep": s.deep} | fields,
    )
    work.add(
        *("convolution", "total"),
        **{"parts": sets, "wanted": outs, "w_grad": w_grad, "w_step": step, "in_order": in_order},
        **{"places": places, "b_grad": b_grad} | fields,
    )


def by_data(
    k: KernelArgs,
    work: Work,
    s: Shapes,
    grad: Any,
    w: Any,
    x_grad: Any,
    ends: Ends,
    after: KernelArgs | None = None,
    keep: bool = False,
) -> None:
    """Gradient of one group by its input: for each remainder of the places a convolution.

    Args:
        ends, after: what else makes a result, and the activation that follows. keep: see `pack`.
    """
    taps = [
        [_taps(axis, rest) for rest in range(min(axis.stride, size))]
        for axis, size in zip((s.down, s.right), x_grad.shape[2:], strict=True)
    ]
    spans = [_span(axis_taps, size, axis.stride) for axis_taps, size, axis in
             zip(taps, x_grad.shape[2:], (s.down, s.right), strict=True)]  # fmt: skip
    (top, high), (left, wide) = spans
    parts = parts_of(grad.shape[0], grad[0].size * w[0].size)
    ragged = s.deep and grad.shape[1] % lanes(grad.dtype) != 0
    frame = Frame(high, wide, top, left)
    seen = image(k, work, grad, frame, at_once=parts > 1, copy=ragged)
    phases = []
    for row, down in enumerate(taps[0]):
        for column, right in enumerate(taps[1]):
            count = [
                -((first - size) // axis.stride)
                for first, axis, size in zip(
                    (row, column), (s.down, s.right), x_grad.shape[2:], strict=True
                )
            ]
            numbers = np.array(
                [ky * w.shape[3] + kx for ky, _ in down for kx, _ in right], np.int64
            )
            *_, below, beside = steps(x_grad)
            phase = Phase(
                _tap_places(down, right, seen, top, left),
                pack(k, work, w, 0 if s.deep else 1, numbers, keep=keep),
                grid(count, (seen.row, seen.pixel)),
                grid(
                    count,
                    (s.down.stride * below, s.right.stride * beside),
                    row * below + column * beside,
                ),
            )
            reach = [_reach(shift, count[0], grad.shape[2]) for _, shift in down]
            phases += without_padding(phase, reach, count[0]) if right else [phase]
    depth = (1 if s.deep else w.shape[0]) * w[0, 0].size // max(len(phases), 1)
    into = Target(x_grad, len(x_grad), activation(work, after), deep=s.deep)
    add_sums(k, work, seen, phases, seen.pixel, into, ends, (parts, False), depth)


def _tap_places(
    down: Sequence[tuple[int, int]],
    right: Sequence[tuple[int, int]],
    seen: Image,
    top: int,
    left: int,
) -> Any:
    """Where taps lie in the image, row by row; see `_taps`."""
    if not down or not right:
        return np.zeros(0, np.int64)
    (first_row, row), (first_column, column) = (
        (taps[0][1], taps[1][1] - taps[0][1] if len(taps) > 1 else 0) for taps in (down, right)
    )
    first = (first_row + top) * seen.row + (first_column + left) * seen.pixel
    return grid((len(down), len(right)), (row * seen.row, column * seen.pixel), first)


def _taps(axis: Axis, rest: int) -> list[tuple[int, int]]:
    """The taps that reach places of that remainder, the last one first, as their positions then
    come in order: number, and position less place // stride."""
    taps = []
    for tap in reversed(range(axis.kernel)):
        # Of places with this remainder only every stride-th tap meets a position.
        distance = rest + axis.before - tap * axis.dilation
        if distance % axis.stride == 0:
            taps.append((tap, distance // axis.stride))
    return taps


def _reach(shift: int, count: int, size: int) -> slice:
    """The rows j < count for which row j + shift of `size` rows is there."""
    begin = min(max(-shift, 0), count)
    return slice(begin, max(begin, min(count, size - shift)))


def _span(taps: Sequence[Sequence[tuple[int, int]]], size: int, stride: int) -> tuple[int, int]:
    """Where positions begin in the frame that the taps of all remainders read, and its size."""
    shifts = [shift for each in taps for _, shift in each] or [0]
    count = -(-size // stride)
    first = min(shifts)
    return -first, max(shifts) - first + count
