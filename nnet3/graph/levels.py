"""In which order the rows of a loop of nodes can be computed, on sets of times (time_graph.py).

In a recurrent layer the same sets come again and again, a step of the recurrence later. Once a
period is seen to repeat, the next ones are not gone through but taken from it, as far as all rows
in them use what the period's rows use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .units import Loop, Units

Found = tuple[int, int, int]  # level, unit, bits
_Read = tuple[int, int, int, int]  # a unit, how its bits move left and right, for which rows
_ATTEMPTS = 4  # to see a period


class Levels:
    """The rows of a loop by level.

    The level of a row is one more than the highest level of the rows of its epoch that it uses.

    Args:
        needed: the rows of every unit.
        used: for a unit, for which rows each candidate is used; if not there, for all.
        jumps: of a unit with candidates that are more than offsets, and sets of rows: which rows
            of the unit read one of these.

    Attributes:
        levels: (level, unit, bits), sorted. The rows of a joined descriptor are not listed: they
            stand one level before its component's rows.
        complete: no rows wait for each other.
    """

    def __init__(
        self,
        units: Units,
        loop: Loop,
        needed: Sequence[int],
        used: Mapping[int, list[int]],
        jumps: Callable[[int, list[int]], int],
    ):
        self._loop = loop
        self._jumps = jumps
        self._joined = set(units.joined)
        self._jumping = set(units.jumping)
        self._reads = {
            unit: _reads(loop.reads[unit], needed[unit], used.get(unit)) for unit in loop.members
        }
        self._waiting = [0] * len(needed)  # rows that are not computed yet
        for unit in loop.members:
            self._waiting[unit] = needed[unit]
        self._left = self._waiting.copy()  # those whose descriptors are not computed either
        self._landing: list[tuple[int, int]] = []  # whose descriptors were computed last
        self.levels: list[Found] = []
        self._follow()
        self.complete = not any(self._waiting)

    def _follow(self) -> None:
        readers = self._loop.readers
        waiting = self._waiting
        levels = self.levels
        level = 0
        turn = self._loop.members
        begins: list[int] = []  # where periods may begin, in `levels`
        attempts = 0 if self._jumping else _ATTEMPTS
        while turn or self._landing:
            done = self._ready(turn)
            turns = set[int]()
            for unit, ready in sorted(done) if len(done) > 1 else done:
                waiting[unit] ^= ready
                levels.append((level, unit, ready))
                turns.update(readers[unit])
            turn = sorted(turns)
            if attempts and done and done[0][0] == levels[0][1]:
                begins.append(len(levels))
                if len(begins) > 2:
                    attempts -= 1
                    skipped = self._repeat(*begins[-3:])
                    if skipped:
                        level = level + skipped
                        attempts = 0
            level += 1

    def _ready(self, turn: list[int]) -> list[tuple[int, int]]:
        """The units and rows of the next level; of other units than these nothing has changed."""
        done = self._landing
        self._landing = []
        for unit in turn:
            ready = self._left[unit] & ~self._blocked(unit, self._waiting)
            if ready:
                self._left[unit] ^= ready
                (self._landing if unit in self._joined else done).append((unit, ready))
        return done

    def _blocked(self, unit: int, waiting: list[int]) -> int:
        """The rows of a unit that use one that waits."""
        blocked = 0
        for source, left, right, mask in self._reads[unit]:
            blocked |= waiting[source] << left >> right & mask
        return blocked | self._jumps(unit, waiting) if unit in self._jumping else blocked

    # Periods

    def _repeat(self, first: int, second: int, end: int) -> int:
        """Adds what follows if the second of two periods in `levels` equals the first, but for its
        time, and so do others that follow; returns how many levels those are.

        A row one period later has a level one period higher if it uses the same, one period later,
        and if that holds for what it uses. So it holds for all rows that use what the last two
        periods hold, as far as masks and needed rows repeat. All others must wait for later levels.
        """
        before, period = self.levels[first:second], self.levels[second:end]
        length = period[-1][0] - before[-1][0]
        shift = period[-1][2].bit_length() - before[-1][2].bit_length()
        if not shift or period != [
            (level + length, unit, _moved(bits, shift)) for level, unit, bits in before
        ]:
            return 0
        recent = [0] * len(self._waiting)
        for _, unit, bits in (*before, *period):
            recent[unit] |= bits
        for _, unit, bits in period:
            for source, left, right, mask in self._reads[unit]:
                if (bits & mask) << right >> left & ~recent[source]:
                    return 0
        count = min([self._most(unit, bits, shift) for _, unit, bits in period])
        if count < 2 or not all([self._again(*entry[1:], shift, count) for entry in period]):
            return 0
        # The last one is only begun: what is to be computed next belongs to it.
        return self._skip(period, count - 1, length, shift)

    def _most(self, unit: int, bits: int, shift: int) -> int:
        """How many times later rows may wait, at most."""
        waiting = self._waiting[unit]
        if shift > 0:
            return (waiting.bit_length() - bits.bit_length()) // shift
        return (_lowest(bits) - _lowest(waiting)) // -shift

    def _again(self, unit: int, bits: int, shift: int, count: int) -> bool:
        """Whether rows that are later by `shift`, 2 * `shift`, ... wait, and use what these use."""
        rows = _repeated(bits, shift, count)
        if rows & ~self._waiting[unit] or rows.bit_count() != bits.bit_count() * count:
            return False
        masks = [mask for *_, mask in self._reads[unit] if mask >= 0]
        return all([mask & rows == _repeated(mask & bits, shift, count) for mask in masks])

    def _skip(self, period: list[Found], count: int, length: int, shift: int) -> int:
        waiting = self._waiting.copy()
        added = list[Found]()
        for number in range(1, count + 1):
            up, by = number * length, number * shift
            added += [(level + up, unit, _moved(bits, by)) for level, unit, bits in period]
        for _, unit, bits in added:
            waiting[unit] ^= bits
        left = waiting.copy()
        landing = [(unit, _moved(bits, count * shift)) for unit, bits in self._landing]
        for unit, bits in landing:
            left[unit] ^= bits
        last = waiting.copy()  # when the last of these levels was reached
        for level, unit, bits in reversed(added):
            if level < added[-1][0]:
                break
            last[unit] |= bits
        if any(left[unit] & ~self._blocked(unit, last) for unit in self._loop.members):
            return 0
        self.levels += added
        self._left = left
        self._landing = landing
        self._waiting[:] = waiting
        return count * length


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _repeated(bits: int, shift: int, count: int) -> int:
    """The rows that are later by `shift`, 2 * `shift`, ..., if these are all different."""
    every = ((1 << abs(shift) * count) - 1) // ((1 << abs(shift)) - 1)
    return (bits << shift if shift > 0 else bits >> -shift * count) * every


def _moved(bits: int, shift: int) -> int:
    return bits << shift if shift >= 0 else bits >> -shift


def _reads(
    candidates: list[tuple[int, tuple[int, int, int]]], needed: int, used: list[int] | None
) -> list[_Read]:
    """The candidates that are used, with the rows that use them; -1: all."""
    reads = []
    for number, read in candidates:
        mask = needed if used is None else used[number] & needed
        if mask:
            reads.append((*read, -1 if mask == needed else mask))
    return reads
