"""What convolutions and their gradients share: shapes, outputs by the taps that go into them, and
the sums over taps and channels (`conv` of `native/convolution.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...framework.fusion.compiled.arguments import Block, Several, end_of, grid
from ...framework.ir.kernel_args import KernelArgs
from ..conv.windows import Axis, make_axes
from .images import Frame, Image, Work, lanes, rooms, steps, threads
from .panels import add_packing

FEWEST = 4
"""Channels or filters of a group from which a vector of them is worth its other lanes."""
_FULL = 4, 5
"""Share of multiplications with what is no padding from which the others are not left out: of 5."""
_BLOCK = 32 << 10
"""Bytes of results that are turned, or that an epilogue reads, at a time."""
_TILES = 48
"""Pixels of whole tiles, of whatever height."""
_PART = 1 << 16
"""Multiplications from which a part of an image is worth being one."""
READ = 8
"""Work of reading a weight: where pixels are few it takes longer than the multiplications."""


class Shapes:
    """Arrays and windows of one kernel, one-dimensional ones lifted to [N, C, 1, L]."""

    def __init__(self, k: KernelArgs, large: Any, small: Any, w: Any) -> None:
        axes = make_axes(k.attrs, k.shape("w")[2:], k.shape("x")[2:])
        self.lifted = len(axes) == 1
        self.down, self.right = (Axis(1), *axes) if self.lifted else axes
        self.groups = k.attrs["groups"]
        self.large, self.small, self.w = map(self.lift, (large, small, w))
        self.deep = self.groups > 1 and w.shape[1] == 1 and self.groups == w.shape[0]
        if self.deep:  # all groups at once, lane by lane
            self.groups = 1

    def lift(self, array: Any) -> Any:
        return array[:, :, None] if array is not None and self.lifted else array

    def part(self, array: Any, group: int) -> Any:
        """The channels of a group."""
        size = array.shape[1] // self.groups
        return array[:, group * size : (group + 1) * size]

    def taps(self, row: int, pixel: int) -> np.ndarray:
        """Places of the taps, row by row, where the image's pixels have these distances."""
        steps = self.down.dilation * row, self.right.dilation * pixel
        return grid((self.down.kernel, self.right.kernel), steps)

    def pixels(self, row: int, pixel: int, shape: Sequence[int]) -> np.ndarray:
        """Places of the first tap at each position of the small array's `shape`."""
        return grid(shape, (self.down.stride * row, self.right.stride * pixel))

    def frame(self, shape: Sequence[int]) -> Frame:
        """The frame that the windows at all positions of the small array's `shape` read."""
        high, wide = (
            (count - 1) * axis.stride + axis.extent
            for axis, count in zip((self.down, self.right), shape, strict=True)
        )
        return Frame(high, wide, self.down.before, self.right.before)


def declines(k: KernelArgs, rank: int) -> bool:
    """Whether the convolution is better off with matrix products."""
    filters, channels = k.shape("w")[:2]
    groups = k.attrs["groups"]
    deep = groups == filters > FEWEST and channels == 1
    few = min(filters // groups, channels if groups > 1 else filters) < FEWEST
    return rank > 2 or (few and not deep)


class Ends(NamedTuple):
    """What else makes a result of a sum.

    Attributes:
        bias: of the outputs, or None. factors, terms: the same, with zeros to whole vectors.
    """

    bias: Any
    factors: Any = None
    terms: Any = None


@dataclass(frozen=True)
class Target:
    """What a convolution writes.

    Attributes:
        array: the images; where a pooling follows, one image in a thread's memory.
        batch: number of images. activation: what follows.
        pool: of one image, or None; `memory`: of all threads, for it; `pooled`:
            what it writes.
        deep: each output has one channel of its own.
        epilogue: the loop over its results, or None. other: what is added to them before the
            activation, laid out as `array` is, or None.
    """

    array: Any
    batch: int
    activation: Block
    pool: Several | None = None
    memory: Any = None
    pooled: Any = None
    deep: bool = False
    epilogue: Several | None = None
    other: Any = None


@dataclass(frozen=True)
class Phase:
    """Outputs that the same taps go into.

    Attributes:
        taps: their places. panels: weights of these taps, and perhaps of more around them.
        pixels: places in the image. places: in what is written. first: tap among the panels.
    """

    taps: Any
    panels: Any
    pixels: Any
    places: Any
    first: int = 0


def without_padding(phase: Phase, reach: Sequence[slice], rows: int) -> list[Phase]:
    """The phase without the rows of taps that meet nothing but padding, where that pays.

    Args:
        reach: the rows of positions where each row of taps meets the image. rows: of positions.
    """
    met = sum(part.stop - part.start for part in reach)
    part, whole = _FULL  # whole numbers, as sizes may be left open
    if not reach or met * whole > part * rows * len(reach):
        return [phase]
    width = len(phase.pixels) // rows
    across = len(phase.taps) // len(reach)
    taken = [
        [tap for tap, part in enumerate(reach) if part.start <= row < part.stop]
        for row in range(rows)
    ]
    phases = []
    begin = 0
    for row in range(1, rows + 1):
        if row < rows and taken[row] == taken[begin]:
            continue
        own = taken[begin]
        pixels = slice(begin * width, row * width)
        first, end = (own[0] * across, (own[-1] + 1) * across) if own else (0, 0)
        phases.append(
            Phase(
                phase.taps[first:end],
                phase.panels,
                phase.pixels[pixels],
                phase.places[pixels],
                first,
            )
        )
        begin = row
    return phases


def parts_of(batch: int, work: int) -> int:
    """Into how many parts an image is cut, so that all threads get some."""
    # Whole images then: a part reads rows around it that its neighbors read, too.
    if batch >= 2 * threads() or threads() == 1:
        return 1
    return max(1, min(8 * threads() // batch, work // _PART))


def terms_of(k: KernelArgs, work: Work, ends: Ends, outs: int, dtype: np.dtype) -> Any:
    """What is added to the sums of the outputs, with zeros to whole vectors; None for nothing."""
    b, size = ends.bias, lanes(dtype)
    if b is None or (outs % size == 0 and b.flags.c_contiguous):
        return ends.terms if b is None else b
    bias = k.scratch((-(-outs // size) * size,), dtype)
    add_packing(work, b, (outs, 1, *steps(b), 0), np.zeros(1), bias.reshape(-1, size))
    return bias


def add_sums(
    k: KernelArgs,
    work: Work,
    seen: Image,
    phases: Sequence[Phase],
    step: int,
    into: Target,
    ends: Ends,
    cut: tuple[int, bool],
    depth: int,
) -> None:
    """The sums of all phases, times the factors, plus bias and terms.

    Args:
        cut: the number of parts of an image, and whether these are of outputs.
    """
    out = into.array
    outs = into.array.shape[1]
    dtype = into.array.dtype
    sn, sc = steps(out)[:2]
    bias = terms_of(k, work, ends, outs, dtype)
    memory = None
    room = block = 0
    turned = sc != 1 and outs > 1
    span = max(end_of(phase.places) for phase in phases)
    if into.pool is not None:
        memory = into.memory
        room = into.memory[0].size
        span = 1
        out = into.pooled
        sn = steps(into.pooled)[0]
        turned = False
    elif turned or into.epilogue is not None:
        block = max(_BLOCK // (outs * dtype.itemsize * _TILES), 1) * _TILES
        room = (block + block // 2) * outs  # the last block may be larger
        memory = k.scratch((rooms(room * dtype.itemsize), room), dtype)
    bound = []
    for phase in phases:
        vectors, _, inner, _ = phase.panels.shape
        panels = phase.panels[:, phase.first :]
        here = phase.places
        one = work.bind(
            *("convolution", "phase"),
            **{
                "vectors": vectors,
                "inner": inner,
                "taps": phase.taps.size,
                "tap_places": phase.taps,
            },
            **{"panels": panels, "panel": phase.panels[0].size, "pixels": here.size},
            pixel_places=phase.pixels,
            memory_places=grid((here.size,), (outs,)) if block else here,
            places=here,
            **{"depth": outs if into.deep else inner, "image_span": seen.span},
        )
        bound.append(one)
    most = rooms(0) if memory is None else len(memory)
    if seen.part.struct.copied:
        most = min(most, seen.part.struct.count)
    fields: dict[str, Any] = {"images": into.batch, "threads": most}
    fields |= dict(zip(("parts", "sliced"), cut, strict=True))
    fields |= {"channels": phases[0].panels.shape[2], "outs": outs}
    fields |= {"activation": into.activation}
    fields |= {"bias": bias, "factors": ends.factors, "image": seen.part, "deep": into.deep}
    fields |= {"out": out, "out_image": sn, "out_channel": sc, "span": span, "step": step}
    fields |= {"memory": memory, "room": room, "block": block, "pool": into.pool}
    fields |= {"epilogue": into.epilogue, "other": into.other}
    fields |= {"count": len(bound), "phases": Several.of(bound)}
    read = sum(phase.panels.size for phase in phases)
    amount = max(into.batch * into.array[0].size * depth, READ * read)
    work.add("convolution", "conv", amount, **fields)
