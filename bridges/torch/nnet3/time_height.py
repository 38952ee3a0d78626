"""TimeHeightConvolutionComponent as a convolution of images [filters, heights, times]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from .layer import F32, Layer


@dataclass(frozen=True)
class Kernel:
    """The places of a kernel [heights, times].

    Attributes:
        times: time offsets, each once and in order.
        dilation: rows of the input between neighbors over time.
        lowest: the height offset of the first row, 0 or less.
        size: heights and times.
        places: by tap, its height and its time in the kernel.
    """

    times: tuple[int, ...]
    dilation: int
    lowest: int
    size: tuple[int, int]
    places: tuple[tuple[int, int], ...]

    @property
    def is_full(self) -> bool:
        """Whether every place has a tap of its own."""
        return len(set(self.places)) == len(self.places) == self.size[0] * self.size[1]


def kernel_of(c: Any, step: int) -> Kernel:
    """The kernel of a component whose input has rows in steps of `step` frames."""
    times = sorted({t for t, _ in c.offsets})
    heights = [h for _, h in c.offsets]
    apart = gcd(*(t - times[0] for t in times)) or step
    lowest = min(heights)
    size = (max(heights) - lowest + 1, (times[-1] - times[0]) // apart + 1)
    places = tuple((h - lowest, (t - times[0]) // apart) for t, h in c.offsets)
    return Kernel(tuple(times), apart // step, lowest, size, places)


def time_height_layer(c: Any, kernel: Kernel, stride: int) -> Layer:
    """The component as `nn.Conv2d`, or with taps at some places of its kernel alone.

    Args:
        c: the component.
        kernel: its places.
        stride: over time, in rows of the input.
    """
    rows = c.num_filters_out
    taps = len(c.offsets)
    filters = c.num_filters_in
    heights = kernel.size[0]
    lowest = kernel.lowest
    above = max(0, -lowest)
    seen = (c.height_out - 1) * c.height_subsample_out + lowest + heights
    below = max(0, seen - c.height_in)
    options = [f"{filters}, {rows}, kernel_size={kernel.size}"]
    strides = (c.height_subsample_out, stride)
    dilation = (1, kernel.dilation)
    options += [f"stride={strides}"] if strides != (1, 1) else []
    options += [f"dilation={dilation}"] if kernel.size[1] > 1 and dilation != (1, 1) else []
    even = above == below
    options += [f"padding=({above}, 0)"] if even and above else []
    weights = np.asarray(c.linear_params, F32).reshape(rows, taps, filters)
    full = kernel.is_full
    cls = "nn.Conv2d"
    if full:
        weight = np.zeros((rows, filters, *kernel.size), F32)
        for tap, (h, t) in enumerate(kernel.places):
            weight[:, :, h, t] = weights[:, tap]
    else:
        cls = "TapsConv2d"
        weight = np.ascontiguousarray(weights.transpose(0, 2, 1))
        options += [f"places={[list(place) for place in kernel.places]}"]

    def store(component: Any, tensors: Mapping[str, np.ndarray]) -> None:
        given = tensors["weight"]
        if full:
            given = np.stack([given[:, :, h, t] for h, t in kernel.places], 2)
        flat = given.transpose(0, 2, 1).reshape(rows, taps * filters)
        component.linear_params = np.ascontiguousarray(flat, F32)
        component.bias_params = tensors["bias"]

    images = f"{{x}}.unflatten(1, ({c.height_in}, {filters})).transpose(1, 2)"
    first = max(0, lowest)
    if first:  # the lowest rows are not read
        images += f"[:, :, {first}:]"
    if not even:
        images = f"F.pad({images}, (0, 0, {above}, {below}))"
    call = f"{{m}}({images})"
    there = (c.height_in - first + above + below - heights) // c.height_subsample_out + 1
    if there > c.height_out:
        call += f"[:, :, :{c.height_out}]"
    call += ".transpose(1, 2).flatten(1, 2)"
    return Layer(
        f"{cls}({', '.join(options)})",
        call,
        {"weight": weight, "bias": np.asarray(c.bias_params, F32)},
        store,
        helper="" if full else cls,
    )
