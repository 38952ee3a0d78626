"""Images at other places and sizes, windows as rows: by ONNX's rules where it has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....onnx.importing.calls import Value
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
      "upsample_bilinear2d", "upsample_trilinear3d")  # fmt: skip
def _upsample(n: Aten, x: Value, output_size: Any = None, align_corners: bool = False) -> Value:
    more: dict[str, Any] = {"mode": "nearest" if "nearest" in n.name else "linear"}
    if align_corners:
        more["align_corners"] = True
    factors = _factors(n)
    whole = all(one.is_integer() for one in factors)
    if factors and (whole or more["mode"] != "nearest" or output_size is None):
        more["scale"] = factors
    else:
        more["size"] = listed(output_size, x.ndim - 2)
    return n.op("interpolate", x, **more)


@aten("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
      *(f"_upsample_nearest_exact{d}d" for d in (1, 2, 3)))  # fmt: skip
def _resize(n: Aten, x: Value, output_size: Any = None, align_corners: bool = False) -> Value:
    smooth = n.name.endswith("_aa")
    kind = next(mode for mode in ("nearest", "linear", "cubic") if mode in n.name)
    more: dict[str, Any] = {
        "mode": kind,
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "axes": list(range(2, x.ndim)),
    }
    if kind == "nearest":
        more["nearest_mode"] = "round_prefer_ceil"
    if smooth:
        n.refuse_unless(not align_corners, "antialias with align_corners")
        more |= {"antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5}
    factors = _factors(n)
    if factors and not align_corners:
        return n.onnx("Resize", x, None, n.const(factors, np.float64), **more)
    if output_size is None:
        output_size = [int(size * by) for size, by in zip(x.shape[2:], factors, strict=True)]
    sizes = n.const(listed(output_size, x.ndim - 2), np.int64)
    return n.onnx("Resize", x, None, None, sizes, **more)


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
