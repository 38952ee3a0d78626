"""Convolutions of float32 numbers by tiles of AMX (`native/tile_convolution.c`).

A number is the sum of three bf16 numbers, and six products of these are as accurate as one of
float32 (see `backends/bfloat16/bf16_gemm`). An image is split once, and all taps read it where it
lies then; a product of matrices would split it again for each tap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block
from ...framework.fusion.compiled.libraries import Library
from ...framework.ir.kernel_args import KernelArgs
from ..conv.windows import Axis
from .convolution_sums import Ends, Shapes, terms_of
from .images import Work, rooms, steps, threads
from .panels import kept_panels
from .tail import Tail

_FILE = "tile_convolution"
_TILE = 32
"""Channels of a chunk, and outputs of a panel."""
_ROWS, _BUSY = 16, 16
"""Pixels of a tile; of fewer than the second, a product waits for the one before it."""
_PIXEL, _FLAG = 192, 8
"""Bytes of 32 channels of a split pixel, and of a mark."""
_SUMS = 1024
"""Elements of the sums of two tiles of pixels."""
_BLOCK = 192 << 10
"""Bytes of split pixels that stay in the second cache beside weights."""
_FEW = 8
"""Groups that are worth splitting the weights for them, which happens meanwhile."""
_SPLIT, _PRODUCT, _END, _VECTORS = 36, 15, 36, 28
"""Cycles that splitting 32 channels of a pixel takes, multiplying them with 32 outputs, and writing
these; numbers that vectors multiply in a cycle."""
_MARGIN = 4, 3
"""How many times as long vectors must take by these: what layers of few channels gain by themselves
is lost in whole nets."""
_FEWEST = 24
"""Pixels of an image from which tiles gain: weights have 1.5 times as many bytes in them."""
_PACKED = 512
"""Pixels from which weights may be packed in each run."""


def library() -> Library | None:
    """The functions; None without AMX, or without the option `amx`."""
    return native.load(_FILE, "float")


@dataclass(frozen=True)
class _Groups:
    """How pixels of a result are grouped for tiles.

    Positions are pixels of the result and, between its rows, what else lies `step` apart in the
    split image. A group is some that follow each other.

    Attributes:
        size: of a group. per_line, lines: groups of a line, and lines. line_step: pixels of the
            split image from line to line. pitch: positions from row to row of the result.
    """

    size: int
    per_line: int
    lines: int
    line_step: int
    pitch: int

    @property
    def cost(self) -> int:
        """Rows of tiles, or as many as take as long."""
        return self.lines * self.per_line * max(self.size, _BUSY)


def _groups(high: int, wide: int, axes: tuple[Axis, Axis], width: int) -> _Groups:
    """The cheaper one of two: groups within rows, or over all rows with what lies between them.

    Args:
        high, wide: of the result. axes: down and right. width: of the split image.
    """
    down, right = axes
    across = -(-wide // _ROWS)
    size = -(-wide // across)
    within = _Groups(size, across, high, down.stride * width, across * size)
    if down.stride * right.stride != 1:
        return within
    length = (high - 1) * width + wide
    count = -(-length // _ROWS)
    size = -(-length // count)
    over = _Groups(size, 1, count, size, width)
    return over if over.cost <= within.cost else within


class _Shape:
    """Sizes of a group's convolution, and how its pixels are grouped.

    Attributes:
        high, wide: of the result. sizes, distances: of the image, and of its pixels that are split.
        axes: down and right, over these. width: of the split image. taps: of a filter.
    """

    def __init__(self, s: Shapes, x: Any, out: Any) -> None:
        self.high, self.wide = out.shape[2:]
        self.sizes, self.distances = [*x.shape[2:]], steps(x)[2:]
        axes = [s.down, s.right]
        for number, axis in enumerate(axes):
            if axis.kernel == 1 and not axis.before:  # other pixels need not be split
                count = -(-self.sizes[number] // axis.stride)
                self.sizes[number] = min(out.shape[2 + number], count)
                self.distances[number] *= axis.stride
                axes[number] = Axis(1)
        self.axes = down, right = axes[0], axes[1]
        self.width = (self.wide - 1) * right.stride + right.extent
        self.groups = _groups(self.high, self.wide, self.axes, self.width)
        self.taps = down.kernel * right.kernel


def serves(k: KernelArgs, s: Shapes, w: Any, x: Any, out: Any, tail: Tail | None) -> bool:
    """Whether tiles compute one group with its tail, and in less time than vectors."""
    if x.dtype != np.float32 or s.deep or (tail is not None and tail.pool is not None):
        return False
    if any(array.strides[1] != array.itemsize for array in (x, out)) or library() is None:
        return False
    shape = _Shape(s, x, out)
    outs, channels = w.shape[:2]
    chunks, panels = -(-channels // _TILE), -(-outs // _TILE)
    pixels = shape.high * shape.wide
    tiled = (chunks * _SPLIT + panels * _END) * pixels
    tiled += chunks * panels * shape.taps * shape.groups.cost * _PRODUCT
    by_vectors = pixels * channels * outs * shape.taps
    more, less = _MARGIN  # whole numbers, as sizes may be left open
    if pixels < _FEWEST or more * tiled * _VECTORS > less * by_vectors:
        return False
    return len(x) * pixels >= _PACKED or _kept_filters(k, w) is not None


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
    """The convolution of one group that tiles serve, with its tail; arguments as of `Target`."""
    shape = _Shape(s, x, out)
    high, wide, width, groups = shape.high, shape.wide, shape.width, shape.groups
    (down, right), taps = shape.axes, shape.taps
    images, channels = x.shape[:2]
    outs = len(w)
    chunks, panels = -(-channels // _TILE), -(-outs // _TILE)
    pixels = high * wide
    packed = _kept_filters(k, w)
    if packed is None:
        packed = k.scratch((_room(w),), w.dtype)
        _add_packing(work, w, packed)
    reach = (down.extent - 1) * width + right.extent
    most = threads()

    def span(lines: int) -> int:
        """Pixels that so many lines read."""
        positions = groups.per_line * groups.size
        return (lines - 1) * groups.line_step + (positions - 1) * right.stride + reach

    # Threads share the larger one of both, and each reads all of the other.
    shared = packed.nbytes > chunks * _PIXEL * span(groups.lines) and panels >= most
    block = groups.lines
    if not shared:
        fits = _BLOCK // (chunks * _PIXEL * groups.line_step)
        block = min(block, max(fits, -(-_FEW // groups.per_line)))
        if most > 1 and images < 2 * most:
            block = min(block, -(-groups.lines * images // (4 * most)))
        block = min(groups.lines, -(-block // 2) * 2)  # two groups are multiplied at a time
    room = -(-chunks * (span(block) * _PIXEL + _FLAG) // 64) * 64
    made = block * groups.per_line * groups.size * (_TILE if shared else outs)
    functions = library()
    assert functions is not None, "it was there"
    whole = chunks * taps <= functions.constant("piece")
    pairs = 2 if whole else max(2, -(-block * groups.per_line // 2))
    sums = _SUMS * pairs
    parts = rooms(max(0 if shared else room, 4 * sums))
    tiles = k.scratch((images if shared else parts, room), np.uint8)
    out_steps = steps(out)
    fields: dict[str, Any] = {"images": images, "channels": channels, "outs": outs}
    fields |= dict(zip(("height", "width"), shape.sizes, strict=True))
    fields |= dict(zip(("x_row", "x_pixel"), shape.distances, strict=True))
    fields |= {"x": x, "x_image": steps(x)[0], "wide": width}
    fields |= {"top": down.before, "left": right.before, "high": high, "across": wide}
    fields |= {"out": out, "other": other, "out_image": out_steps[0]}
    fields |= {"out_row": out_steps[2], "out_pixel": out_steps[3]}
    fields |= {"kernel_down": down.kernel, "kernel_right": right.kernel}
    fields |= {"tap_down": down.dilation * width, "tap_right": right.dilation}
    fields |= {"group": groups.size, "per_line": groups.per_line, "lines": groups.lines}
    fields |= {"line_step": groups.line_step, "pitch": groups.pitch, "step": right.stride}
    fields |= {"block": block, "shared": int(shared), "threads": parts, "panels": packed}
    fields |= {"bias": terms_of(k, work, ends, outs, x.dtype), "factors": ends.factors}
    fields |= {"activation": activation, "epilogue": epilogue, "made": made}
    fields |= {"memory": None if epilogue is None else k.scratch((parts, made), x.dtype)}
    fields |= {"tiles": tiles, "copies": len(tiles), "room": room}
    fields |= {"sums": k.scratch((parts, sums), x.dtype), "room_of_sums": sums}
    if shared:
        work.add(_FILE, "split_image", images * chunks * span(block) * _TILE, **fields)
    amount = images * pixels * channels * outs * taps * _PRODUCT * _VECTORS // (_TILE * _TILE)
    work.add(_FILE, "tile_conv", max(amount, w.size), **fields)


def _room(w: Any) -> int:
    """Elements of the panels of filters."""
    outs, channels, *kernel = w.shape
    depth = -(-channels // _TILE) * kernel[0] * kernel[1]
    return -(-outs // _TILE) * (depth * _TILE * _TILE + 1)


def _add_packing(work: Work, w: Any, panels: Any) -> None:
    outs, channels, *kernel = w.shape
    names = "out_step", "in_step", "down", "right"
    fields = dict(zip(names, steps(w), strict=True))
    fields |= {"outs": outs, "channels": channels, "panels": panels, "w": w}
    fields |= {"kernel_down": kernel[0], "kernel_right": kernel[1]}
    work.add(_FILE, "pack_filters", 4 * w.size, **fields)


def _kept_filters(k: KernelArgs, w: Any) -> Any:
    """The panels of filters that stay packed from run to run; None for others."""
    return kept_panels(k, w, "tiles", _room(w), _add_packing)
