"""Convolutions of images of 8-bit integers in C (library "native").

Channels lie side by side. Windows are copied, some at a time, and multiplied as a matrix is; where
a window is one pixel nothing is copied. Where each output has one channel of its own, vectors are
of channels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....framework.base.cpu.threads import most_threads
from ....framework.fusion import team
from ....framework.fusion.compiled import arguments, native
from ....framework.fusion.compiled.libraries import Library
from ....framework.ir.kernel_args import Call, KernelArgs
from ...conv.integer_conv import integer_conv
from ...conv.windows import make_axes
from .integer_gemm import columns_of, suits
from .integers import is_signed, pixels_of, windows_of

_SPEED = 4
_NEAR = 64
"""Windows that are copied at a time."""
_LANES, _MOST_TAPS = 16, 1024
_WINDOWS = "kernel_down", "kernel_right", "stride_down", "stride_right"


def _kernel(k: KernelArgs) -> Call | None:
    library = native.load("integer_convolution")
    x, w, out = k["x"], k["w"], k["out"]
    if library is None or x.ndim > 4 or not x.size or not out.size or not suits(k, w):
        return None
    if type(x) is not np.ndarray or not x.flags.aligned:
        return None
    before, pixels = _as_pixels(k, x)
    after, made = _as_pixels(k, out)
    calls: list[Call] = []
    if before is not None:
        calls.append(partial(np.copyto, before, x))
    axes = make_axes(k.attrs, w.shape[2:], x.shape[2:])
    windows = windows_of(axes, pixels, made, dilates=True)
    groups = k.attrs["groups"]
    taps = w[0, 0].size
    deep = groups == len(w) == x.shape[1] and groups >= _LANES and taps <= _MOST_TAPS
    bind = _depthwise if deep else _convolution
    calls.append(bind(k, library, pixels, made, windows))
    if after is not None:
        calls.append(partial(np.copyto, out, after))
    return team.in_order(*calls)


def _as_pixels(k: KernelArgs, array: Any) -> tuple[Any, Any]:
    """An array with its channels last: where it does not lie so scratch memory, seen as the array
    is and as it lies."""
    pixels = pixels_of(array)
    if pixels is not None:
        return None, pixels
    batch, channels, *sizes = array.shape
    memory = k.scratch((batch, *sizes, channels), array.dtype)
    return np.moveaxis(memory, -1, 1), memory


def _convolution(
    k: KernelArgs, library: Library, x: Any, out: Any, windows: dict[str, Any]
) -> Call:
    w = k["w"]
    groups = k.attrs["groups"]
    channels, taps = w.shape[1], w[0, 0].size
    rows = (np.arange(taps)[:, None] + np.arange(channels) * taps).reshape(-1)
    filters = w.reshape(len(w), -1)
    tasks, columns = columns_of(k, x, filters, k.get("w_zero"), rows, channels * taps, groups)
    is_plain = (
        all(windows[name] == 1 for name in _WINDOWS)
        and windows["before_down"] == windows["before_right"] == 0
        and (windows["high"], windows["wide"]) == (windows["height"], windows["width"])
    )
    threads = most_threads()
    memory = None if is_plain else k.scratch((threads, _NEAR * len(rows)), np.uint8)
    block = arguments.bind(
        library,
        "integer_convolution",
        columns=columns,
        channels=channels,
        x=x,
        out=out.view(np.uint8),
        out_pixel=out.shape[-1] * out.itemsize,
        size=out.itemsize,
        threads=threads,
        memory=memory,
        **windows,
    )
    tasks.append(team.block_task(max(out.size * len(rows) // _SPEED, w.size), block))
    return team.run_together(tasks)


def _depthwise(k: KernelArgs, library: Library, x: Any, out: Any, windows: dict[str, Any]) -> Call:
    w, w_zero, scale, out_zero = map(k.get, ("w", "w_zero", "scale", "out_zero"))
    channels, taps = len(w), w[0, 0].size
    packed = {
        "panels": k.scratch((taps, channels), np.int32),
        "first": k.scratch((channels,), np.int32),
        "factors": k.scratch((channels,), np.float32),
        "padding": k.scratch((channels,), np.uint8),
    }
    pack = arguments.bind(
        library,
        "pack_depthwise",
        channels=channels,
        taps=taps,
        w=w.reshape(channels, taps),
        is_unsigned=not is_signed(w),
        w_zero=w_zero,
        w_zeros=0 if w_zero is None else w_zero.size,
        x_is_signed=is_signed(x),
        x_zero=k.get("x_zero"),
        bias=k.get("bias"),
        scale=scale,
        scales=0 if scale is None else scale.size,
        **packed,
    )
    block = arguments.bind(
        library,
        "integer_depthwise",
        channels=channels,
        x=x,
        is_signed=is_signed(x),
        out=out.view(np.uint8),
        out_pixel=channels * out.itemsize,
        size=out.itemsize,
        scaled=scale is not None,
        out_zero=out_zero,
        out_is_signed=out_zero is not None and is_signed(out_zero),
        **packed,
        **windows,
    )
    tasks = [team.block_task(w.size, pack), team.block_task(out.size * taps, block)]
    return team.run_together(tasks)


integer_conv.kernel(_kernel, device="cpu", library="native", channels_last=(("x",), ("out",)))
