"""In which order the rows of a loop of nodes can be computed, on sets of times (time_graph.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .units import Loop, Units

Found = tuple[int, int, int]  # level, unit, bits


def levels(
    units: Units,
    loop: Loop,
    needed: Sequence[int],
    used: Mapping[int, list[int]],
    jumps: Callable[[int, list[int]], int],
) -> list[Found] | None:
    """The rows of a loop as (level, unit, bits), sorted; None where rows wait for each other.

    The level of a row is one more than the highest of those that it uses in its epoch. The rows of
    a joined descriptor are not listed: they stand one level before those of its component.

    Args:
        needed: the rows of every unit.
        used: for a unit, for which rows each candidate is used; if not there, for all.
        jumps: of a unit with candidates that are more than offsets, and sets of rows: which rows
            of the unit read one of these.
    """
    readers, joined, jumping = loop.readers, set(units.joined), set(units.jumping)
    reads = {unit: _reads(loop.reads[unit], needed[unit], used.get(unit)) for unit in loop.members}
    waiting = [0] * len(needed)  # rows that are not computed yet
    for unit in loop.members:
        waiting[unit] = needed[unit]
    left = waiting.copy()  # those of components whose descriptors are not computed either
    found: list[Found] = []
    landing: list[tuple[int, int]] = []
    level, turn = 0, loop.members
    while turn or landing:
        done, landing = landing, []
        for unit in turn:
            ready = left[unit]
            for source, up, down, mask in reads[unit]:
                ready &= ~(waiting[source] << up >> down & mask)
            if not ready:
                continue
            if unit in jumping:
                ready &= ~jumps(unit, waiting)
                if not ready:
                    continue
            left[unit] ^= ready
            (landing if unit in joined else done).append((unit, ready))
        if len(done) == 1:
            ((unit, ready),) = done
            waiting[unit] ^= ready
            found.append((level, unit, ready))
            turn = readers[unit]
        else:
            turns = set[int]()
            for unit, ready in sorted(done):
                waiting[unit] ^= ready
                found.append((level, unit, ready))
                turns.update(readers[unit])
            turn = sorted(turns)
        level += 1
    return None if any(waiting) else found


def _reads(
    candidates: list[tuple[int, tuple[int, int, int]]], needed: int, used: list[int] | None
) -> list[tuple[int, int, int, int]]:
    """The candidates that are used, with the rows that use them; -1: all."""
    reads = []
    for number, read in candidates:
        mask = needed if used is None else used[number] & needed
        if mask:
            reads.append((*read, -1 if mask == needed else mask))
    return reads
