"""Where variables lie in one piece of memory, so that the piece is small.

The largest comes first, and each goes to the lowest place that is free while it lives. This takes
little more than the variables that live at one time, where blocks that are reused as a whole grow
to their largest holder.

Source: Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural Net Inference, greedy
by size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

_ALIGN = 256
"""Bytes: what kernels on a GPU expect, and a multiple of the host's cache line."""
_SHIFT = 2 * _ALIGN
"""Bytes after a large variable, see memory.py: neighbors begin at other places of a page."""
_LARGE = 1 << 15


def pack(sizes: Sequence[int], lives: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Where each variable begins, and how much memory they take together, in bytes.

    Args:
        sizes: in bytes. lives: the first and the last step that uses each of them.
    """
    room = [_room(size) for size in sizes]
    order = sorted(range(len(room)), key=lambda n: (-room[n], lives[n]))
    starts = [0] * len(room)
    placed = np.zeros((4, len(room)), np.int64)  # first and last step, start and end
    for count, number in enumerate(order):
        first, last = lives[number]
        known = placed[:, :count]
        beside = known[2:, (known[0] <= last) & (known[1] >= first)]
        beside = beside[:, np.argsort(beside[0], kind="stable")]
        # The gaps are between what ends before and what begins next.
        ends = np.maximum.accumulate(np.concatenate([[0], beside[1]]))
        fits = np.flatnonzero(beside[0] - ends[:-1] >= room[number])
        start = int(ends[fits[0]] if len(fits) else ends[-1])
        starts[number] = start
        placed[:, count] = first, last, start, start + room[number]
    return starts, int(placed[3].max(initial=0))


def in_a_row(sizes: Sequence[int]) -> list[int]:
    """Where variables begin of which each has memory of its own."""
    return [0, *accumulate(map(_room, sizes))][: len(sizes)]


def _room(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN + (_SHIFT if size >= _LARGE else 0)
