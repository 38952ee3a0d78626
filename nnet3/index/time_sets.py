"""Sets of times as integers, a bit for each time, counted from some first one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Series(NamedTuple):
    """A set of times at one distance: the number of the first bit, the distance, how many."""

    start: int
    step: int
    count: int


def series(bits: int) -> Series | None:
    """The series that a set that is not empty is; None where it is none."""
    start = (bits & -bits).bit_length() - 1
    bits >>= start
    count = bits.bit_count()
    rest = bits ^ 1
    step = (rest & -rest).bit_length() - 1 if rest else 1
    if bits != ((1 << count * step) - 1) // ((1 << step) - 1):
        return None
    return Series(start, step, count)


def set_of(flags: np.ndarray) -> int:
    """The set of the times at which `flags` holds."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def flags_of(bits: int, size: int) -> np.ndarray:
    """For each of the first `size` times, whether it is in the set."""
    data = (bits & ((1 << size) - 1)).to_bytes((size + 7) // 8, "little")
    flags = np.unpackbits(np.frombuffer(data, np.uint8), count=size, bitorder="little")
    return flags.view(bool)
