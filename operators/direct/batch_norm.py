"""Batch norm in two readings of its input, and its gradient in two, shared between threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.ir.kernel_args import Call, KernelArgs
from .images import Work, steps, suited, threads

_WORK = 4
"""Work of one element in one reading, beside a multiplication of a product."""


def _layout(*arrays: Any) -> int | None:
    """1 where all arrays are rows of channels, 0 where they are planes; None for any other."""
    shape = arrays[0].shape
    rows = [np.moveaxis(array, 1, -1).flags.c_contiguous for array in arrays]
    if all(rows):
        return 1
    planes = all(array.flags.c_contiguous for array in arrays)
    return 0 if planes and len(shape) > 2 else None


def _sizes(array: Any) -> tuple[int, int, int]:
    """Images, channels, values of a plane."""
    batch, channels = array.shape[:2]
    return batch, channels, array.size // (batch * channels)


def batch_norm(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays do not suit."""
    x, out = k["x"], k["out"]
    given = [k[slot] for slot in ("scale", "bias", "mean", "variance")]
    after = [k.get(slot) for slot in ("mean_out", "variance_out")]
    kept = [k.get(slot) for slot in ("saved_mean", "saved_inv_std")]
    small = [array for array in (*given, *after, *kept) if array is not None]
    if not suited(x, out, *small) or not all(array.flags.c_contiguous for array in small):
        return None
    side, (batch, channels, size) = _layout(x, out), _sizes(x)
    if side is None:
        return None
    learns = k.train and not k.attrs["use_global_stats"]
    if learns and batch * size < 2:
        return None  # the plain kernel says why
    work = Work(x.dtype)
    scale, bias, mean, variance = map(work.keep, given)
    used, inverse = (
        work.keep(k.scratch((channels,), x.dtype) if array is None else array) for array in kept
    )
    factor = work.keep(k.scratch((channels,), x.dtype))
    parts, moments = threads(), 0
    if learns:
        moments = work.keep(k.scratch((parts, channels, 3), np.float64))
        words = (parts, side, batch, channels, size, work.keep(x), steps(x)[0], moments)
        work.add("moments", words, x.size * 2 * _WORK)
    numbers = np.array([k.attrs["momentum"], k.attrs["epsilon"]], np.float64)
    address = work.keep(numbers)
    results = [0 if array is None else work.keep(array) for array in after]
    work.add("settle", (parts, channels, moments, mean, variance, *results, address, address + 8,
                        used, inverse, scale, factor))  # fmt: skip
    work.add("apply", (side, batch, channels, size, x.ctypes.data, steps(x)[0], work.keep(out),
                       steps(out)[0], used, factor, bias), x.size * _WORK)  # fmt: skip
    work.keep(x)
    return work.call()


def batch_norm_grad(k: KernelArgs) -> Call | None:
    """Gradients; None where the arrays do not suit."""
    x, grad, scale = k["x"], k["out_grad"], k["scale"]
    mean, inverse = k["saved_mean"], k["saved_inv_std"]
    x_grad, scale_grad, bias_grad = (k.get(f"{slot}_grad") for slot in ("x", "scale", "bias"))
    small = [a for a in (scale, mean, inverse, scale_grad, bias_grad) if a is not None]
    if not suited(x, grad, x_grad, *small) or not all(a.flags.c_contiguous for a in small):
        return None
    side = _layout(x, grad, *(() if x_grad is None else (x_grad,)))
    if side is None:
        return None
    batch, channels, size = _sizes(x)
    work, parts = Work(x.dtype), threads()
    sums = work.keep(k.scratch((parts, channels, 2), np.float64))
    factors = work.keep(k.scratch((3, channels), x.dtype))
    data = work.keep(x), steps(x)[0], work.keep(grad), steps(grad)[0], work.keep(mean)
    work.add("slopes", (parts, side, batch, channels, size, *data, sums), x.size * 2 * _WORK)
    learns = k.train and not k.attrs["use_global_stats"]
    targets = [0 if a is None else work.keep(a) for a in (scale_grad, bias_grad)]
    work.add("factors", (parts, channels, sums, batch * size if learns else 0, work.keep(inverse),
                         work.keep(scale), *targets, factors))  # fmt: skip
    if x_grad is not None:
        words = (side, batch, channels, size, *data, factors, work.keep(x_grad), steps(x_grad)[0])
        work.add("slope_of", words, x.size * 2 * _WORK)
    return work.call()
