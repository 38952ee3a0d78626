"""A hash table in NumPy: numbers for keys of one or more 64-bit parts, of many at once."""

from __future__ import annotations

import numpy as np

_LEAST_SLOTS = 1 << 14
_GROWTH = 4
_MIX = (-7046029254386353131, -4658895280553007687)  # of splitmix64


class KeyTable:
    """Numbers keys from 0 on.

    Open addressing with linear probing, a step of all keys that are not placed yet at a time.

    Args:
        parts: of each key.

    Attributes:
        count: how many keys there are.
        keys: the parts of keys by number, int64; those up to `count` are filled.
    """

    def __init__(self, parts: int) -> None:
        self.count = 0
        self.keys = list(np.empty((parts, _LEAST_SLOTS // 2), np.int64))
        self._slots = np.full(_LEAST_SLOTS, -1, np.int32)

    def numbers(self, *keys: np.ndarray) -> np.ndarray:
        """The numbers of keys, int64; new keys get the next ones, in no particular order."""
        room = self.count + len(keys[0])
        if room > len(self.keys[0]):
            self._widen(room)
        numbers = np.empty(len(keys[0]), np.int64)
        rest: np.ndarray | slice = slice(None)
        place = self._places(*keys)
        slots = self._slots
        last = len(self._slots) - 1
        while True:
            at = slots[place].astype(np.int64)  # int32 is a slow index
            free = np.flatnonzero(at < 0)
            if len(free):
                # Of keys that want the same slot, one is left in it: it gets a number.
                slots[place[free]] = free
                won = free[slots[place[free]] == free]
                new = np.arange(self.count, self.count + len(won))
                for known, key in zip(self.keys, keys, strict=True):
                    known[self.count : self.count + len(won)] = key[won]
                self.count += len(won)
                slots[place[won]] = new
                at[free] = slots[place[free]]
            numbers[rest] = at  # those that are wrong are written over
            wrong = self.keys[0][at] != keys[0]
            for known, key in zip(self.keys[1:], keys[1:], strict=True):
                wrong |= known[at] != key
            other = np.flatnonzero(wrong)
            if not len(other):
                return numbers
            rest = other if isinstance(rest, slice) else rest[other]
            keys = tuple(key[other] for key in keys)
            place = (place[other] + 1) & last

    def _places(self, *keys: np.ndarray) -> np.ndarray:
        mixed = keys[0].astype(np.int64) * _MIX[0]
        mixed ^= mixed >> 29
        for key in keys[1:]:
            mixed += key
            mixed *= _MIX[1]
        mixed ^= mixed >> 32
        mixed &= len(self._slots) - 1
        return mixed

    def _widen(self, room: int) -> None:
        """Make room for so many keys, at most half of the slots filled."""
        slots = len(self._slots)
        while slots < 2 * room:
            slots *= _GROWTH
        more = np.empty(slots // 2 - len(self.keys[0]), np.int64)
        self.keys = [np.concatenate([key, more]) for key in self.keys]
        self._slots = np.full(slots, -1, np.int32)
        rest = np.arange(self.count, dtype=np.int32)
        place = self._places(*(key[: self.count] for key in self.keys))
        while len(rest):
            free = np.flatnonzero(self._slots[place] < 0)
            self._slots[place[free]] = rest[free]
            other = np.flatnonzero(self._slots[place] != rest)
            rest = rest[other]
            place = (place[other] + 1) & (slots - 1)
