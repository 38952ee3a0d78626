"""Convolutions of float32 numbers with 3x3 taps by 16 products for 2x2 pixels of a result, where
taps have 36 (`native/winograd.c`).

Where channels are many, errors are smaller than tap by tap. They are relative to pixels times the
largest of a filter's weights in their channel: a pixel also counts where it meets a zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.options.settings import read_options
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block
from ...framework.fusion.compiled.libraries import Library
from ...framework.ir.kernel_args import KernelArgs
from ..conv.windows import Axis
from .convolution_sums import Ends, Shapes, terms_of
from .images import Work, lanes, rooms, steps, threads
from .panels import kept_panels
from .tail import Tail

_FILE = "winograd"
_POINTS, _TAPS, _TILE = 16, 9, 4
"""Products of a tile, taps, and pixels of a tile."""
_MIX, _JOIN, _READ, _PRODUCTS = 130, 190, 20, 18
"""What takes as long as so many multiplications by taps: what is done with a vector of a tile's
channels before its products, and of its outputs after them; reading a vector of weights; the
products of a tile."""
_MARGIN = 5, 4
"""How many times as long taps must take by these."""
_BLOCK = 1 << 20
"""Bytes of a block's numbers, which stay in the second cache. Weights are read for each block: with
384 KB 256 channels take 1.3 times as long."""
_PACKED = 512
"""Pixels from which filters may be packed in each run."""
_BUSY = 16
"""Parts for each thread."""


def library(dtype: np.dtype) -> Library | None:
    """The functions; None where there are none, or without the option `winograd`."""
    if dtype != np.float32 or not read_options().winograd:
        return None
    return native.load(_FILE, "float")


def serves(k: KernelArgs, s: Shapes, w: Any, x: Any, out: Any, tail: Tail | None) -> bool:
    """Whether one group is computed so with its tail, in less time than tap by tap."""
    if any(not _suits(axis) for axis in (s.down, s.right)) or s.deep:
        return False
    if tail is not None and tail.pool is not None:
        return False
    if any(array.strides[1] != array.itemsize for array in (x, out)) or library(x.dtype) is None:
        return False
    outs, channels = w.shape[:2]
    size = lanes(x.dtype)
    mixed, joined = -(-channels // size), -(-outs // size)
    products = channels * joined
    tiles = _tiles(out)
    pixels = len(x) * out.shape[2] * out.shape[3]
    short = tiles * (mixed * _MIX + joined * _JOIN + _PRODUCTS * products)
    short += _POINTS * _READ * products
    long = pixels * _TAPS * products + _TAPS * _READ * products
    more, less = _MARGIN  # whole numbers, as sizes may be left open
    if more * short > less * long:
        return False
    return pixels >= _PACKED or _kept_filters(k, w) is not None


def _suits(axis: Axis) -> bool:
    return axis.kernel == 3 and axis.stride == 1 and axis.dilation == 1


def _tiles(out: Any) -> int:
    """Tiles of all images."""
    images, _, high, wide = out.shape
    return images * -(-high // 2) * -(-wide // 2)


def convolve(
    k: KernelArgs,
    work: Work,
    s: Shapes,
    w: Any,
    x: Any,
    out: Any,
    ends: Ends,
    activation: Block,
    epilogue: Any,
    other: Any,
) -> None:
    """The convolution of one group that this serves, with its tail; arguments as of `Target`."""
    packed = _kept_filters(k, w)
    if packed is None:
        packed = k.scratch((_room(w),), w.dtype)
        _add_packing(work, w, packed)
    functions = library(x.dtype)
    assert functions is not None, "it was there"
    group, most, panel = (functions.constant(name) for name in ("group", "most", "panel"))
    outs, channels = w.shape[:2]
    size = lanes(x.dtype)
    row = -(-channels // size) * size
    tiles = _tiles(out)
    each = _POINTS * (row + panel)
    block = max(1, min(most // group, _BLOCK // (each * group * w.itemsize), -(-tiles // group)))
    blocks = -(-tiles // (block * group))
    # Where tiles are few, threads share the outputs: each of them has the image in its cache.
    slices = 1
    if threads() > 1 and blocks < _BUSY * threads():
        slices = min(-(-outs // panel), -(-_BUSY * threads() // blocks))
    room = block * group * each + 2 * _POINTS * size + row
    room += 0 if epilogue is None else _TILE * block * group * outs
    room = -(-room // size) * size
    parts = rooms(room * w.itemsize)
    fields: dict[str, Any] = {"filters": work.bind(_FILE, "filters", **_filters(w))}
    fields |= {"panels": packed, "images": len(x), "x": x, "out": out, "other": other}
    fields |= dict(zip(("height", "width"), x.shape[2:], strict=True))
    fields |= dict(zip(("high", "across"), out.shape[2:], strict=True))
    for name, array in (("x", x), ("out", out)):
        image, _, down, right = steps(array)
        fields |= {f"{name}_image": image, f"{name}_row": down, f"{name}_pixel": right}
    fields |= {"top": s.down.before, "left": s.right.before}
    fields |= {"bias": terms_of(k, work, ends, outs, x.dtype), "factors": ends.factors}
    fields |= {"activation": activation, "epilogue": epilogue}
    fields |= {"block": block, "slices": slices, "threads": parts}
    fields |= {"memory": k.scratch((parts, room), x.dtype), "room": room}
    work.add(_FILE, "winograd", max(tiles * _POINTS * channels * outs, w.size), **fields)


def _filters(w: Any) -> dict[str, Any]:
    outs, channels = w.shape[:2]
    return {"outs": outs, "channels": channels, "w": w}


def _room(w: Any) -> int:
    """Elements of the panels of filters."""
    outs, channels = w.shape[:2]
    size = lanes(w.dtype)
    return _POINTS * channels * -(-outs // size) * size


def _add_packing(work: Work, w: Any, panels: Any) -> None:
    filters = work.bind(_FILE, "filters", **_filters(w))
    work.add(_FILE, "spread_filters", 4 * w.size, filters=filters, panels=panels)


def _kept_filters(k: KernelArgs, w: Any) -> Any:
    """The panels of filters that stay packed from run to run; None for others."""
    return kept_panels(k, w, _FILE, _room(w), _add_packing)
