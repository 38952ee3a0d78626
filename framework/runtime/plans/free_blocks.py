"""Blocks of memory that nothing uses, by size."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


class FreeBlocks:
    """Free blocks by size: the nearest is found without looking at all of them."""

    def __init__(self) -> None:
        self._sizes: list[int] = []  # that some free block has, ascending
        self._blocks: dict[int, deque[tuple[int, int]]] = {}  # size -> (when it came, block)
        self._count = 0

    def add(self, block: int, size: int) -> None:
        """Note a free block."""
        if size not in self._blocks:
            insort(self._sizes, size)
            self._blocks[size] = deque()
        self._count += 1
        self._blocks[size].append((self._count, block))

    def take(self, size: int) -> int | None:
        """The block of the nearest size, of several the one that came first; None without any."""
        if not self._sizes:
            return None
        place = bisect_left(self._sizes, size)
        near = self._sizes[max(place - 1, 0) : place + 1]
        # Nearest, not smallest that fits: blocks grow to their largest holder in any case.
        best = min(near, key=lambda own: (abs(own - size), self._blocks[own][0]))
        blocks = self._blocks[best]
        _, block = blocks.popleft()
        if not blocks:
            del self._blocks[best]
            del self._sizes[bisect_left(self._sizes, best)]
        return block
