"""Spans of numbers, looked up by what they overlap without a look at all of them."""

from __future__ import annotations


class Spans:
    """Spans from a first number to an end, in the order in which they were added.

    A span is kept on the level of the next power of two of its length, by where it begins there;
    so a level has few places to look at for a short range.
    """

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, list[int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, first: int, end: int) -> None:
        """Add the span of the numbers from `first` up to `end`, without that."""
        level = max(end - first - 1, 0).bit_length()
        self._levels.setdefault(level, {}).setdefault(first >> level, []).append(self._count)
        self._count += 1

    def near(self, first: int, end: int) -> list[int]:
        """Places of spans, ascending, among which are all that overlap the one given."""
        places: list[int] = []
        for level, begins in self._levels.items():
            lowest = (first >> level) - 1
            highest = (end - 1) >> level
            if highest - lowest < len(begins):
                for begin in range(lowest, highest + 1):
                    places += begins.get(begin, ())
            else:
                for begin, here in begins.items():
                    if lowest <= begin <= highest:
                        places += here
        places.sort()
        return places
