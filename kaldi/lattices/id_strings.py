"""Sequences of transition-ids as numbers: each is its beginning and a last id, kept once."""

from __future__ import annotations

from collections.abc import Iterable

_SHIFT = 32


class IdStrings:
    """All sequences of a determinization; number 0 is the empty one."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._before = [0]
        self._last = [0]
        self._length = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._next)

    def extended(self, string: int, ids: Iterable[int]) -> int:
        """A sequence and ids after it."""
        for number in ids:
            key = string << _SHIFT | number
            longer = self._next.get(key)
            if longer is None:
                longer = self._next[key] = self._new(string, number)
            string = longer
        return string

    def _new(self, before: int, last: int) -> int:
        length = self._length[before] + 1
        if self._free:
            place = self._free.pop()
            self._before[place], self._last[place], self._length[place] = before, last, length
            return place
        self._before.append(before)
        self._last.append(last)
        self._length.append(length)
        return len(self._before) - 1

    def ids(self, string: int, begin: int = 0) -> tuple[int, ...]:
        """The ids of a sequence, from the place `begin` on."""
        backwards: list[int] = []
        for _ in range(self._length[string] - begin):
            backwards.append(self._last[string])
            string = self._before[string]
        return tuple(reversed(backwards))

    def prefix(self, first: int, second: int) -> int:
        """What both sequences begin with."""
        before, length = self._before, self._length
        while length[first] > length[second]:
            first = before[first]
        while length[second] > length[first]:
            second = before[second]
        while first != second:
            first, second = before[first], before[second]
        return first

    def without(self, string: int, prefix: int) -> int:
        """The rest of a sequence after one of its prefixes."""
        if string == prefix:
            return 0
        return self.extended(0, self.ids(string, self._length[prefix])) if prefix else string

    def keep(self, needed: Iterable[int]) -> None:
        """Forget all but some sequences and their beginnings."""
        kept = {0}
        for string in needed:
            while string not in kept:
                kept.add(string)
                string = self._before[string]
        unused = [key for key, string in self._next.items() if string not in kept]
        self._free += [self._next.pop(key) for key in unused]
