"""Shorter commands on lists of rows, and plain copies for rows that follow each other."""

from __future__ import annotations

import numpy as np

from ..compiler.command import Command
from ..compiler.computation import Computation
from .options import OptimizeOptions

# Rows that are spread over more than so many times their number are left alone: the command of a
# part covers all rows between its first and its last.
_WORST_SPREAD = 2
_SPLIT = {  # the types of a part's command: for rows that follow each other, and for others
    "AddRowsMulti": ("MatrixAdd", "AddRows"),
    "CopyRowsMulti": ("MatrixCopy", "CopyRows"),
    "AddToRowsMulti": ("MatrixAdd", "AddRows"),
    # None: CopyRows would set the rows between its own to 0, which this command leaves as they are.
    "CopyToRowsMulti": ("MatrixCopy", None),
}


def snip_row_ops(computation: Computation, options: OptimizeOptions) -> Computation:
    """Cut the rows at both ends that a command does not touch off its target.

    Copies to all rows stay, as they set the other rows to 0.
    """
    result = None
    for number, command in enumerate(computation.commands):
        rows = command.rows
        if rows is None:
            continue
        kind = command.type
        if kind == "AddRows":
            real = rows >= 0
        elif kind in ("AddRowsMulti", "AddToRowsMulti", "CopyToRowsMulti"):
            real = rows[:, 0] >= 0
        elif kind == "AddRowRanges":
            real = rows[:, 0] != rows[:, 1]
        else:
            continue
        if real[0] and real[-1]:
            continue
        result = result or computation.copy()
        first = int(real.argmax())
        count = len(real) - int(real[::-1].argmax()) - first
        target = result.new_part(command.target, first, count)
        rows = rows[first : first + count]
        result.commands[number] = command.as_type(kind, target, command.source, rows)
    return result or computation


def split_row_ops(computation: Computation, options: OptimizeOptions) -> Computation:
    """Replace commands on rows of one or two sub-matrices by a command for each."""
    numbers = [number for number, c in enumerate(computation.commands) if c.type in _SPLIT]
    if not numbers:
        return computation
    result = computation.copy()
    parts: dict[int, list[Command]] = {}
    for number in numbers:
        split = _split(result, computation.commands[number])
        if split is not None:
            parts[number] = split
    if not parts:
        return computation
    for number in sorted(parts, reverse=True):  # so that the numbers before it stay
        result.commands[number : number + 1] = parts[number]
    return result


def _split(computation: Computation, command: Command) -> list[Command] | None:
    subs, rows = command.listed()[:, 0], command.listed()[:, 1]
    changes = np.flatnonzero(subs[1:] != subs[:-1]) + 1
    if len(changes) > 1 or subs.min() < 0:
        return None
    bounds = [0, *changes.tolist(), len(subs)]
    parts = []
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        mine = rows[begin:end]
        least, most = int(mine.min()), int(mine.max())
        even = len(mine) == most + 1 - least and bool((mine[1:] - mine[:-1] == 1).all())
        if most + 1 - least > _WORST_SPREAD * len(mine) or _SPLIT[command.type][not even] is None:
            return None
        parts.append((begin, end, int(subs[begin]), least, most, even))
    commands = []
    for begin, end, sub, least, most, even in parts:
        kind = _SPLIT[command.type][not even]
        target = computation.new_part(command.target, begin, end - begin)
        source = computation.new_part(sub, least, most + 1 - least)
        listed = None if even else (rows[begin:end] - least).astype(np.int32)
        if command.type in ("AddToRowsMulti", "CopyToRowsMulti"):
            target, source = source, target
            if listed is not None:
                back = np.full(most + 1 - least, -1, np.int32)
                back[listed] = np.arange(len(listed))
                listed = back
        commands.append(command.as_type(kind, target, source, listed))
    return commands


def replace_row_ops(computation: Computation, options: OptimizeOptions) -> Computation:
    """Replace commands whose row numbers are one run by copies and additions of sub-matrices.

    A copy of rows also sets the rows around the run to 0. They are 0 already, as the copy is the
    first use of its target.
    """
    commands = computation.commands
    numbers = [i for i, c in enumerate(commands) if c.type in ("CopyRows", "AddRows")]
    runs = _runs([commands[number].listed() for number in numbers])
    if not any(runs):
        return computation
    result = computation.copy()
    for number, run in zip(numbers, runs, strict=True):
        if run is not None:
            command = commands[number]
            (first, count, row) = run
            result.commands[number] = command.as_type(
                "MatrixCopy" if command.type == "CopyRows" else "MatrixAdd",
                result.new_part(command.target, first, count),
                result.new_part(command.source, row, count),
            )
    return result


def _runs(lists: list[np.ndarray]) -> list[tuple[int, int, int] | None]:
    """For each list of row numbers: (place, length, first number) of its run if the list is one run
    of successive numbers with nothing but -1 around it, else None.
    """
    if not lists:
        return []
    rows = np.concatenate(lists)
    ends = np.cumsum([len(rows) for rows in lists])
    starts = ends - [len(rows) for rows in lists]
    real = np.flatnonzero(rows >= 0)
    begin, end = real.searchsorted(starts), real.searchsorted(ends)
    real = np.append(real, 0)  # for lists that end with all others and have none
    first = real[begin]
    last = real[end - 1]
    breaks = np.concatenate(([0], np.cumsum(np.diff(rows) != 1)))  # before each row
    good = (end > begin) & (last - first == end - begin - 1) & (breaks[last] == breaks[first])
    each = zip(
        good.tolist(),
        (first - starts).tolist(),
        (end - begin).tolist(),
        rows[first].tolist(),
        strict=True,
    )
    return [(where, count, row) if is_run else None for is_run, where, count, row in each]
