"""Images at other places and sizes, windows as rows: by ONNX's rules where it has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....onnx.importing.calls import Value
from ....onnx.importing.kinds.resize import cubic, mixed_along
from ..calls import Aten, aten
from .windows import batched, listed

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sample(
    n: Aten, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    more = {"mode": _MODES[interpolation_mode], "padding_mode": _PADDINGS[padding_mode]}
    return n.onnx("GridSample", x, grid, align_corners=int(align_corners), **more)


@aten("affine_grid_generator")
def _affine_grid(n: Aten, theta: Value, size: list[int], align_corners: bool) -> Value:
    return n.onnx("AffineGrid", theta, n.const(size, np.int64), align_corners=int(align_corners))


def _factors(n: Aten) -> list[float]:
    """How many times larger each axis becomes, where that was said in place of sizes."""
    factors = n.get("scale_factors")
    if factors is None:
        factors = [n.get(key) for key in ("scales_d", "scales_h", "scales_w", "scales")]
    return [float(one) for one in factors if one is not None]


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
      "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")  # fmt: skip
def _upsample(n: Aten, x: Value, output_size: Any = None, align_corners: bool = False) -> Value:
    more: dict[str, Any] = {"mode": _kind(n)}
    if align_corners:
        more["align_corners"] = True
    factors = _factors(n)
    if factors:
        more["scale"] = factors
    else:
        more["size"] = listed(output_size, x.ndim - 2)
    return n.op("interpolate", x, **more)


def _kind(n: Aten) -> str:
    return next(mode for mode in _MODES if mode in n.name)


def _axes(n: Aten, x: Value, output_size: Any) -> list[tuple[int, Any, float]]:
    """The spatial axes, their new sizes, and the factors that are given; 0 where none is."""
    factors = _factors(n)
    if output_size is None:
        sizes = [int(size * by) for size, by in zip(x.shape[2:], factors, strict=True)]
    else:
        sizes = listed(output_size, x.ndim - 2)
    factors = factors or [0.0] * len(sizes)
    return list(zip(range(2, x.ndim), sizes, factors, strict=True))


@aten(*(f"_upsample_nearest_exact{d}d" for d in (1, 2, 3)))
def _nearest(n: Aten, x: Value, output_size: Any = None) -> Value:
    for axis, out, factor in _axes(n, x, output_size):

        def places(size: int, out: int, factor: float = factor) -> np.ndarray:
            # In float32 as PyTorch does: a product just below a whole number decides the place.
            ratio = np.float32(1 / factor if factor else size / out)
            found = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5)) * ratio)
            return found.astype(np.int64).clip(0, size - 1)

        ids = n.following(places, [out], np.int64, x.shape[axis], out)
        x = n.op("gather", x, ids, axis=axis)
    return x


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _antialiased(n: Aten, x: Value, output_size: Any = None, align_corners: bool = False) -> Value:
    share, reach = (_linear, 1.0) if _kind(n) == "linear" else (_cubic, 2.0)
    for axis, out, factor in _axes(n, x, output_size):
        size = x.shape[axis]
        if size == out:
            continue
        if align_corners:
            ratio = (size - 1) / (out - 1) if out > 1 else 0.0
        else:
            ratio = 1 / factor if factor else size / out
        wide = max(ratio, 1.0)
        at = ratio * (np.arange(out)[:, None] + 0.5)  # [out, 1], as below
        first = (at - reach * wide + 0.5).astype(int).clip(0, None)
        end = (at + reach * wide + 0.5).astype(int).clip(None, size)
        places = np.arange(size)
        shares = share(np.abs(places - at + 0.5) / wide)
        shares = np.where((first <= places) & (places < end), shares, 0)
        shares /= shares.sum(1, keepdims=True)
        x = mixed_along(n, x, axis, shares)
    return x


def _linear(distance: np.ndarray) -> np.ndarray:
    return (1 - distance).clip(0, None)


def _cubic(distance: np.ndarray) -> np.ndarray:
    return cubic(distance, -0.5)  # the coefficient of Pillow, whose images these are


@aten("unfold")
def _unfold(n: Aten, x: Value, dimension: int, size: int, step: int) -> Value:
    x = x if x.ndim else n.reshaped(x, [1])
    axis = dimension % x.ndim
    places = np.arange(0, x.shape[axis] - size + 1, step)[:, None] + np.arange(size)
    windows = n.op("gather", x, n.const(places), axis=axis)
    if not n["self"].ndim:
        return n.reshaped(windows, [size])
    axes = [each for each in range(windows.ndim) if each != axis + 1]
    return n.moved(windows, [*axes, axis + 1])


@aten("im2col")
def _im2col(n: Aten, x: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    kernel, gaps, pads, steps = (listed(one, 2) for one in (kernel_size, dilation, padding, stride))

    def columns(x: Value) -> Value:
        if any(pads):
            x = n.op("pad", x, paddings=[0, 0, 0, 0, pads[0], pads[0], pads[1], pads[1]])
        counts = []
        for axis in range(2):
            reach = gaps[axis] * (kernel[axis] - 1)
            first = np.arange(0, x.shape[2 + 2 * axis] - reach, steps[axis])
            places = np.arange(kernel[axis])[:, None] * gaps[axis] + first
            x = n.op("gather", x, n.const(places), axis=2 + 2 * axis)
            counts.append(len(first))
        x = n.moved(x, [0, 1, 2, 4, 3, 5])
        return n.reshaped(x, [x.shape[0], x.shape[1] * math.prod(kernel), math.prod(counts)])

    return batched(n, x, 2, columns)
