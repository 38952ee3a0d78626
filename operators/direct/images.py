"""What the C functions of this room share: the library, arrays that they take, pieces of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.cpu.threads import most_threads
from ...framework.fusion import native, team
from ...framework.ir.kernel_args import Call, KernelArgs


def lanes(dtype: np.dtype) -> int:
    """Elements of a vector."""
    found = native.typed("images", dtype)
    assert found is not None, "the caller has seen that it is there"
    return found.words("lanes", 1)[0]


def suited(*arrays: Any) -> bool:
    """Whether the C functions take these arrays; None among them is skipped."""
    given = [array for array in arrays if array is not None]
    return (
        all(
            type(array) is np.ndarray
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


@dataclass
class Work:
    """C functions to run one after another, with their arguments."""

    dtype: np.dtype
    items: list[tuple[int, int]] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)
    work: int = 0

    def words(self, values: Sequence[int] | np.ndarray) -> int:
        """The address of some numbers that are kept."""
        array = np.array(values, np.int64)
        self.memory.append(array)
        return array.ctypes.data

    def keep(self, array: Any) -> int:
        """The address of an array that is kept."""
        self.memory.append(array)
        return array.ctypes.data

    def add(self, file: str, name: str, words: Sequence[int], work: int = 0) -> None:
        """Run a function of a file of `native/`, for this element type."""
        address = native.function(file, self.dtype, name)
        self.items.append((address, self.words(words)))
        self.work += work

    def call(self) -> Call:
        """One call for all of it, which threads share."""
        return team.run_together([self.task()])

    def task(self) -> team.ParallelTask:
        """All of it as one task."""
        return team.ParallelTask(tuple(self.items), self.work, self.memory)


def threads() -> int:
    """Threads that get memory of their own."""
    return most_threads()


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
    """A stack of images as `image_T` takes it; a pixel's channels lie side by side there.

    Attributes:
        words: the fifteen numbers. row, pixel: distances of neighboring rows and pixels.
    """

    words: tuple[int, ...]
    row: int
    pixel: int


def image(
    k: KernelArgs,
    work: Work,
    array: Any,
    frame: Frame,
    *,
    at_once: bool,
    rows: bool = False,
    copy: bool = False,
) -> Image:
    """The image of an array [N, C, H, W] seen through a frame.

    It is copied unless the channels lie side by side already and nothing surrounds it.

    Args:
        at_once: copy all images before, as several threads read one of them.
        rows: these must follow each other without a gap.
        copy: in any case.
    """
    batch, channels, height, width = array.shape
    sn, sc, sh, sw = steps(array)
    # NumPy gives the stride of an axis of length 1 any value.
    if channels == 1:
        sc = 1
    plain = sc == 1 and sw >= channels and sh >= width * sw and frame.inside(height, width)
    gaps = sh != width * sw or frame.wide != width
    if plain and not (copy or (rows and gaps)):
        return Image((work.keep(array), sn, *(0,) * 13), sh, sw)
    size = frame.high * frame.wide * channels
    room = -(-size // 16) * 16 + 16  # a vector that begins at the last pixel may reach beyond
    # One image for each thread is enough where a thread does whole images: it stays in its cache.
    copies = k.scratch((batch if at_once else threads(), room), array.dtype)
    words = (
        *(work.keep(array), sn, 1, channels, height, width, sc, sh, sw),
        *(frame.high, frame.wide, frame.top, frame.left, work.keep(copies), room),
    )
    row, pixel = frame.wide * channels, channels
    if not at_once:
        return Image(words, row, pixel)
    work.add("images", "pad", (batch, *words))
    return Image((copies.ctypes.data, room, *(0,) * 13), row, pixel)
