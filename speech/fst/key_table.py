"""A hash table in NumPy: numbers for pairs of 64-bit keys, of many at once."""

from __future__ import annotations

import numpy as np

_LEAST_SLOTS = 1 << 12
_MIX = (-7046029254386353131, -4658895280553007687)  # of splitmix64


class KeyTable:
    """Numbers pairs of keys from 0 on.

    Open addressing with linear probing, a step of all keys that are not placed yet at a time.

    Attributes:
        count: how many pairs there are.
        first, second: the pairs by number, int64; those up to `count` are filled.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first, self.second = np.empty((2, _LEAST_SLOTS // 2), np.int64)
        self._slots = np.full(_LEAST_SLOTS, -1, np.int32)

    def numbers(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The numbers of pairs, int64; new pairs get the next ones, in no particular order."""
        room = self.count + len(first)
        if room > len(self.first):
            self._widen(room)
        found = np.empty(len(first), np.int64)
        rest = np.arange(len(first))
        place = self._places(first, second)
        slots, last = self._slots, len(self._slots) - 1
        while len(rest):
            at = slots[place].astype(np.int64)  # int32 is a slow index
            free = np.flatnonzero(at < 0)
            if len(free):
                # Of keys that want the same slot, one is left in it: it gets a number.
                slots[place[free]] = free
                won = free[slots[place[free]] == free]
                new = np.arange(self.count, self.count + len(won), dtype=np.int32)
                self.count += len(won)
                self.first[new], self.second[new] = first[rest[won]], second[rest[won]]
                slots[place[won]] = new
                at[free] = slots[place[free]]
            there = (self.first[at] == first[rest]) & (self.second[at] == second[rest])
            hits = np.flatnonzero(there)
            found[rest[hits]] = at[hits]
            other = np.flatnonzero(~there)
            rest, place = rest[other], (place[other] + 1) & last
        return found

    def _places(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        mixed = first * _MIX[0]
        mixed ^= mixed >> 29
        mixed += second
        mixed *= _MIX[1]
        mixed ^= mixed >> 32
        mixed &= len(self._slots) - 1
        return mixed

    def _widen(self, room: int) -> None:
        """Make room for so many pairs, at most half of the slots filled."""
        more = max(room, 2 * len(self.first)) - len(self.first)
        self.first = np.concatenate([self.first, np.empty(more, np.int64)])
        self.second = np.concatenate([self.second, np.empty(more, np.int64)])
        slots = len(self._slots)
        while slots < 2 * len(self.first):
            slots *= 2
        self._slots = np.full(slots, -1, np.int32)
        rest = np.arange(self.count, dtype=np.int32)
        place = self._places(self.first[: self.count], self.second[: self.count])
        while len(rest):
            free = np.flatnonzero(self._slots[place] < 0)
            self._slots[place[free]] = rest[free]
            other = np.flatnonzero(self._slots[place] != rest)
            rest, place = rest[other], (place[other] + 1) & (slots - 1)
