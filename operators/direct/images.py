"""What the C functions of this room share: the library, arrays that they take, pieces of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...framework.base.cpu.threads import most_threads
from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block, is_host_array
from ...framework.ir.kernel_args import Call, KernelArgs
from ...native.constants import SHARES

_ROOM = 1 << 20
"""Bytes up to which there is memory for more parts than threads."""


def lanes(dtype: np.dtype) -> int:
    """Elements of a vector."""
    kernels = native.typed("images", dtype)
    assert kernels is not None, "the caller has seen that it is there"
    return kernels.constant("lanes")


def suited(*arrays: Any) -> bool:
    """Whether the C functions take these arrays; None among them is skipped."""
    given = [array for array in arrays if array is not None]
    return (
        all(
            is_host_array(array)
            and array.size
            and array.dtype == given[0].dtype
            and array.flags.aligned
            and all(step % array.itemsize == 0 for step in array.strides)
            for array in given
        )
        and native.typed("images", given[0].dtype) is not None
    )


def steps(array: Any) -> list[int]:
    """Strides in elements."""
    return [stride // array.itemsize for stride in array.strides]


def pixel_step(array: Any) -> int:
    """Elements from each pixel of images [N, C, ...] to the next; 0 where that is not the same from
    row to row and from image to image."""
    axes = [axis for axis in (*range(array.ndim - 1, 1, -1), 0) if array.shape[axis] > 1]
    if not axes:
        return array.shape[1]
    step = wanted = array.strides[axes[0]]
    for axis in axes:
        if array.strides[axis] != wanted:
            return 0
        wanted *= array.shape[axis]
    return step // array.itemsize


@dataclass
class Work:
    """C functions to run one after another, with their arguments."""

    dtype: np.dtype
    blocks: list[Block] = field(default_factory=list)
    work: int = 0
    short: int = 0

    def bind(self, file: str, name: str, /, **fields: Any) -> Block:
        """The argument of a function of a file of `native/`, or a part of one."""
        return native.bind(file, self.dtype, name, **fields)

    def add(self, file: str, name: str, amount: int = 0, /, **fields: Any) -> None:
        """Run a function of a file of `native/`, for this element type.

        Args:
            amount: of work. fields: of its argument.
        """
        self.blocks.append(self.bind(file, name, **fields))
        self.work += amount
        self.short += isinstance(amount, int) and amount < team.SHORT

    def call(self) -> Call:
        """One call for all of it, which threads share."""
        return self.task()

    def task(self) -> team.ParallelTask:
        """All of it as one task."""
        return replace(team.block_task(self.work, *self.blocks), short=self.short)


def threads() -> int:
    """Threads that get memory of their own."""
    return most_threads()


def rooms(size: int) -> int:
    """Parts of the work that get memory of their own, of so many bytes each."""
    # One thread does all by itself, and of much memory there is no more than threads need.
    return threads() * (SHARES if threads() > 1 and size <= _ROOM else 1)


@dataclass(frozen=True)
class Frame:
    """The part of the plane that windows read: its size, and where the image begins in it."""

    high: int
    wide: int
    top: int
    left: int

    def inside(self, height: int, width: int) -> bool:
        """Whether an image of that size covers all of it, from its first pixel on."""
        return not (self.top or self.left) and self.high <= height and self.wide <= width


@dataclass(frozen=True)
class Image:
    """A stack of images; a pixel's channels lie side by side there.

    Attributes:
        part: of an argument. row, pixel: distances of neighboring rows and pixels.
        span: elements of an image from its first to its last. step: distance of images.
    """

    part: Block
    row: int
    pixel: int
    span: int
    step: int


_UNCOPIED = dict.fromkeys(("copied", "high", "wide", "top", "left", "count", "room"), 0)
_STEPS = "x_step", "down", "row", "pixel"


def _as_it_lies(work: Work, array: Any, shape: Sequence[int], strides: Sequence[int]) -> Image:
    """Images [N, C, H, W] in an array that are not copied; strides in elements."""
    sizes = dict(zip(("images", "channels", "height", "width"), shape, strict=True))
    fields = sizes | dict(zip(_STEPS, strides, strict=True)) | _UNCOPIED
    part = work.bind("images", "image", x=array, **fields)
    inner = zip(shape[1:], strides[1:], strict=True)
    span = 1 + sum((size - 1) * step for size, step in inner)
    return Image(part, strides[2], strides[3], span, strides[0])


def nothing(work: Work, array: Any) -> Image:
    """Images of which nothing is read; `array` is any."""
    return _as_it_lies(work, array[:0], array[:0].shape, (0, 0, 0, 0))


def turn(work: Work, x: Any, sizes: tuple[int, int], target: Any) -> None:
    """Have target[n, j, i] = x[n, i, j] computed for images of i, j < sizes.

    Args:
        x, target: of N images, whose elements lie side by side.
    """
    rows, columns = sizes
    room = target.size // len(target)
    part = work.bind(
        *("images", "image"),
        **{"images": len(x), "x": x, "x_step": steps(x)[0]},
        **{"channels": rows, "height": 1, "width": columns},
        **{"down": columns, "row": 0, "pixel": 1},
        **{"copied": 1, "high": 1, "wide": columns, "top": 0, "left": 0},
        **{"copies": target, "count": len(target), "room": room},
    )
    work.add("images", "pad", image=part)


def image(
    k: KernelArgs,
    work: Work,
    array: Any,
    frame: Frame,
    *,
    at_once: bool = False,
    as_one: bool = False,
    rows: bool = False,
    copy: bool = False,
) -> Image:
    """The image of an array [N, C, H, W] seen through a frame.

    It is copied unless the channels lie side by side already and nothing surrounds it.

    Args:
        at_once: copy all images before, as several threads read one of them.
        as_one: they are one image, whose parts they are.
        rows: these must follow each other without a gap.
        copy: in any case.
    """
    batch, channels, height, width = array.shape
    sn, sc, sh, sw = steps(array)
    # NumPy gives the stride of an axis of length 1 any value.
    sc = 1 if channels == 1 else sc
    sw = channels if width == 1 and sc == 1 else sw
    sh = width * sw if height == 1 else sh
    plain = sc == 1 and sw >= channels and sh >= width * sw and frame.inside(height, width)
    gaps = sh != width * sw or frame.wide != width
    if plain and not (copy or (rows and gaps) or (as_one and sn < 0)):
        lies = _as_it_lies(work, array, array.shape, (sn, sc, sh, sw))
        if not as_one:
            return lies
        span = (batch - 1) * sn + lies.span
        whole = _as_it_lies(work, array, (1, 1, 1, span), (span, 1, 1, 1))
        return Image(whole.part, sh, sw, span, sn)
    size = frame.high * frame.wide * channels
    room = -(-size // 16) * 16 + 16  # a vector that begins at the last pixel may reach beyond
    # One image for each part is enough where a thread does whole images: it stays in its cache.
    each = room * array.itemsize
    before = at_once or as_one
    copies = k.scratch((batch if before else rooms(each), room), array.dtype)
    part = work.bind(
        *("images", "image"),
        **{"images": batch, "x": array, "x_step": sn},
        **{"channels": channels, "height": height, "width": width},
        **{"down": sc, "row": sh, "pixel": sw, "copied": 1},
        **{"high": frame.high, "wide": frame.wide, "top": frame.top, "left": frame.left},
        **{"copies": copies, "count": len(copies), "room": room},
    )
    if not before:
        return Image(part, frame.wide * channels, channels, room, room)
    work.add("images", "pad", image=part)
    count, span = (1, batch * room) if as_one else (batch, room)
    placed = _as_it_lies(work, copies, (count, 1, 1, span), (span, 1, 1, 1))
    return Image(placed.part, frame.wide * channels, channels, span, room)
