"""Memory placement: where each matrix takes its memory, sets it to zero and gives it back."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import groupby
from operator import attrgetter, itemgetter

from ..compiler.analyze import READ, SIZING, Analysis, Fill, analyzed
from ..compiler.command import OF_MANY, Command
from ..compiler.computation import Computation
from .options import OptimizeOptions

_TYPE = attrgetter("type")
Event = tuple[int, int, bool]  # place, sub-matrix, whether it takes its memory there


def gather_memory(computation: Computation, options: OptimizeOptions) -> Computation:
    """Commands that take, or give up, the memory of one matrix become one for many, where they
    follow each other; the inverse of `Computation.explicit`."""
    if SIZING.isdisjoint(map(_TYPE, computation.commands)):
        return computation
    single: list[Command] = []
    for command in computation.commands:
        kind, target = command.type, command.target
        if kind == "DeallocMatrix":
            single.append(Command.dealloc_matrices([target]))
        elif (kind, command.alpha) == ("SetConst", 0) and _takes(single[-1:], target):
            single[-1] = Command.alloc_matrices([target])
        else:
            single.append(command)
    commands: list[Command] = []
    for kind, group in groupby(single, _TYPE):
        if kind in OF_MANY:
            listed = [s for command in group for s in command.of_many()]
            of_many = (
                Command.alloc_matrices if kind == "AllocMatrices" else Command.dealloc_matrices
            )
            commands.append(of_many(listed))
        else:
            commands += group
    return replace(computation, commands=commands)


def _takes(last: list[Command], target: int) -> bool:
    return bool(last) and last[0].type == "AllocMatrix" and last[0].target == target


def place_memory(computation: Computation, options: OptimizeOptions) -> Computation:
    """Gives each matrix commands of its own for its memory.

    With `initialize_undefined` a matrix is set to zero only where something reads the zeros. With
    `move_sizing_commands` memory is taken just before the first use and given up just after the
    last. With `allocate_from_other` a matrix takes over the memory of one that needs it no more.
    """
    analysis = analyzed(computation)
    commands: list[Command | None] = list(analysis.commands)
    of_many = [number for number, c in enumerate(analysis.commands) if c.type in OF_MANY]
    always_zero = not options.has("initialize_undefined")
    events = _events(analysis, of_many, options.has("move_sizing_commands"), always_zero)
    source = _memory_givers(computation, events) if options.has("allocate_from_other") else {}
    givers = set(source.values())
    for number in (*of_many, *analysis.dropped):
        commands[number] = None
    placed: list[Command | None] = []
    begin = 0
    for place, s, takes in events:
        end = place + 1 >> 1
        if end > begin:
            placed += commands[begin:end]
            begin = end
        if takes:
            giver = source.get(s)
            if giver is None:
                placed.append(Command("AllocMatrix", s))
            else:
                placed.append(Command("SwapMatrix", s, giver))
            if always_zero or _zeros_are_read(analysis, s):
                placed.append(Command("SetConst", s, 0, 0.0))
        elif s not in givers:
            placed.append(Command("DeallocMatrix", s))
    placed += commands[begin:]
    return replace(computation, commands=[c for c in placed if c is not None])


def _zeros_are_read(analysis: Analysis, s: int) -> bool:
    """Whether a command reads a part of a matrix that no command has set.

    Args:
        s: the whole of it.
    """
    submatrices = analysis.submatrices
    whole = submatrices[s]
    uses = analysis.of_matrix[whole[0]]
    written = 0
    cols = whole[4]  # columns, from the first on
    for _, mode, number in uses:
        _, _, rows, col, more = submatrices[number]
        if mode & READ or rows != whole[2] or col != written:
            break
        written += more
        if written == cols:
            return False  # set one after the other, as mostly
    fill = Fill(whole)
    for _, mode, number in uses:
        is_read = fill.is_read(submatrices[number], mode)
        if is_read is not None:
            return is_read
    return fill.whole[0] in analysis.provided and fill.shows_in(fill.whole)


def _events(analysis: Analysis, of_many: list[int], moves: bool, zeroes: bool) -> list[Event]:
    """The places where matrices take and give back memory, in order.

    The place 2 i is just before command i, 2 i + 1 just after it.

    Args:
        of_many: the commands that take or give up memory.
        moves: whether this is moved to where it is used.
        zeroes: whether every matrix is set to zero.
    """
    events: list[Event] = []
    for number in of_many:
        command = analysis.commands[number]
        takes = command.type == "AllocMatrices"
        for s in command.of_many():
            uses = analysis.of_matrix[analysis.submatrices[s][0]]
            if moves and uses:
                place = 2 * uses[0][0] if takes else 2 * uses[-1][0] + 1
                events.append((place, s, takes))
            elif takes and moves and zeroes:  # no use but that it is set to zero
                events += (2 * number, s, True), (2 * number, s, False)
            elif takes or not (moves and zeroes):
                events.append((2 * number, s, takes))
    return sorted(events, key=itemgetter(0))


def _memory_givers(computation: Computation, events: list[Event]) -> dict[int, int]:
    """For each matrix that takes over memory the matrix that gives it, of the same size.

    The matrix that is given back last is handed on first, to the next one that is taken.
    """
    matrices, submatrices = computation.matrices, computation.submatrices
    freed: dict[tuple[int, int, bool], list[int]] = {}
    taken: dict[tuple[int, int, bool], list[int]] = {}
    for number, (_, s, takes) in enumerate(events):
        matrix = matrices[submatrices[s][0]]
        size = matrix.rows, matrix.cols, matrix.contiguous
        (taken if takes else freed).setdefault(size, []).append(number)
    source = {}
    for size, givers in freed.items():
        takers = taken.get(size, [])
        for giver in reversed(givers):
            at = bisect_right(takers, giver)
            if at < len(takers):
                source[events[takers.pop(at)][1]] = events[giver][1]
    return source
