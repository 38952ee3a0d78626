"""When memory is taken and given up, and from whom it is taken."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from ..analyze import Analysis, is_zeroing
from ..computation import Command, Computation
from .options import OptimizeOptions


def move_sizing_commands(computation: Computation, options: OptimizeOptions) -> Computation:
    """Memory is taken just before the first use and given up just behind the last.

    A matrix is set to zero where it is taken, and moves with that.
    """
    analysis = Analysis(computation)
    commands = computation.commands
    pairs = set()  # commands that take a matrix and are followed by its zeroing
    for number, command in enumerate(commands[:-1]):
        after = commands[number + 1]
        if command.type == "AllocMatrix" and is_zeroing(after) and after.target == command.target:
            pairs.add(number)
    # Command i goes to place 3 i; 3 i - 1 is just before it, 3 i + 1 just behind it.
    places = [3 * number for number in range(len(commands))]
    for matrix in range(1, len(computation.matrices)):
        uses = analysis.of_matrix[matrix]
        taken, freed = analysis.allocated[matrix], analysis.released[matrix]
        if taken >= 0 and commands[taken].type == "AllocMatrix":
            skipped = taken + 1 if taken in pairs else -1
            first = next((number for number, _, _ in uses if number != skipped), -1)
            if first >= 0:
                places[taken] = 3 * first - 1
        if freed >= 0 and uses and commands[freed].type == "DeallocMatrix":
            places[freed] = 3 * uses[-1][0] + 1
    ordered: list[Command] = []
    for number in sorted(range(len(commands)), key=places.__getitem__):
        if number - 1 not in pairs:
            ordered.append(commands[number])
            if number in pairs:
                ordered.append(commands[number + 1])
    return replace(computation, commands=ordered)


def allocate_from_other(computation: Computation, options: OptimizeOptions) -> Computation:
    """Free x ... take y of its size  ->  y takes over the memory of x (SwapMatrix).

    The matrix that is freed last is served first, by the next that is taken.
    """
    freed: dict[tuple[int, int, bool], list[int]] = {}
    taken: dict[tuple[int, int, bool], list[int]] = {}
    for number, command in enumerate(computation.commands):
        if command.type in ("AllocMatrix", "DeallocMatrix"):
            matrix = computation.matrices[computation.submatrices[command.target].matrix]
            lists = taken if command.type == "AllocMatrix" else freed
            size = matrix.rows, matrix.cols, matrix.contiguous
            lists.setdefault(size, []).append(number)
    commands: list[Command | None] = list(computation.commands)
    for size, givers in freed.items():
        takers = taken.get(size, [])
        for giver in reversed(givers):
            at = bisect_right(takers, giver)
            if at == len(takers):
                continue
            taker = takers.pop(at)
            source = computation.commands[giver].target
            commands[taker] = computation.commands[taker].changed(type="SwapMatrix", source=source)
            commands[giver] = None
    return replace(computation, commands=[c for c in commands if c is not None])
