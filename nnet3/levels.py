"""In which order the rows of a loop of nodes can be computed, on sets of times (time_graph.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .units import Loop, Units

Found = tuple[int, int, int]  # level, unit, bits


def levels(
    units: Units,
    loop: Loop,
    needed: Sequence[int],
    used: Sequence[list[int] | None],
    jumps: Callable[[int, list[int]], int],
) -> list[Found] | None:
    """The rows of a loop as (level, unit, bits), sorted; None where rows wait for each other.

    The level of a row is one more than the highest of those that it uses in its epoch. The rows of
    a joined descriptor are not listed: they stand one level before those of its component.

    Args:
        needed: the rows of every unit.
        used: for every unit, for which rows each candidate is used; None: for all.
        jumps: of a unit with candidates that are more than offsets, and sets of rows: which rows
            of the unit read one of these.
    """
    members, readers = loop.members, loop.readers
    joined, jumping = set(units.joined), set(units.jumping)
    reads = {unit: _reads(loop.reads[unit], needed[unit], used[unit]) for unit in members}
    waiting = [0] * len(needed)  # rows that are not computed yet
    for unit in members:
        waiting[unit] = needed[unit]
    begun = {unit: 0 for unit in members}  # rows of components whose descriptors are computed
    found: list[Found] = []
    landing: list[tuple[int, int]] = []
    level, turn = 0, members
    while turn or landing:
        done, landing = landing, []
        for unit in turn:
            ready = waiting[unit] & ~begun[unit]
            if not ready:
                continue
            for source, left, right, mask in reads[unit]:
                if waiting[source]:
                    ready &= ~(waiting[source] << left >> right & mask)
            if unit in jumping:
                ready &= ~jumps(unit, waiting)
            if not ready:
                continue
            if unit in joined:
                begun[unit] |= ready
                landing.append((unit, ready))
            else:
                done.append((unit, ready))
        if len(done) > 1:
            done.sort()
        for unit, ready in done:
            waiting[unit] ^= ready
            found.append((level, unit, ready))
        if len(done) == 1:
            turn = readers[done[0][0]]
        else:
            turn = sorted({reader for unit, _ in done for reader in readers[unit]})
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
