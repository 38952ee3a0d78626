"""When memory is taken and given up, and from whom it is taken."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from ..analyze import analysed
from ..computation import Command, Computation
from .options import OptimizeOptions


def move_sizing_commands(computation: Computation, options: OptimizeOptions) -> Computation:
    """Memory is taken just before the first use and given up just behind the last.

    A matrix is set to zero where it is taken, and moves with that.
    """
    analysis = analysed(computation)
    commands = analysis.commands
    # Command i goes to place 3 i; 3 i - 1 is just before it, 3 i + 1 just behind it.
    places: dict[int, int] = {}
    each = zip(
        analysis.of_matrix, analysis.allocated, analysis.released, analysis.zeroed, strict=True
    )
    for uses, taken, freed, zeroed in each:
        if uses and taken >= 0 and commands[taken].type == "AllocMatrix":
            places[taken] = 3 * uses[0][0] - 1
            if zeroed >= 0:
                places[zeroed] = places[taken]
        last = uses[-1][0] if uses else zeroed
        if freed >= 0 and last >= 0 and commands[freed].type == "DeallocMatrix":
            places[freed] = 3 * last + 1
    left = np.ones(len(commands), bool)
    left[list(analysis.dropped)] = False
    place = np.arange(0, 3 * len(commands), 3)
    place[list(places)] = list(places.values())
    numbers = np.flatnonzero(left)
    order = numbers[np.argsort(place[numbers], kind="stable")].tolist()
    return replace(computation, commands=[commands[number] for number in order])


def allocate_from_other(computation: Computation, options: OptimizeOptions) -> Computation:
    """Free x ... take y of its size  ->  y takes over the memory of x (SwapMatrix).

    The matrix that is freed last is served first, by the next that is taken.
    """
    matrices, submatrices = computation.matrices, computation.submatrices
    freed: dict[tuple[int, int, bool], list[int]] = {}
    taken: dict[tuple[int, int, bool], list[int]] = {}
    for number, command in enumerate(computation.commands):
        kind = command.type
        if kind == "AllocMatrix" or kind == "DeallocMatrix":
            matrix = matrices[submatrices[command.target][0]]
            lists = taken if kind == "AllocMatrix" else freed
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
            target, source = (computation.commands[number].target for number in (taker, giver))
            commands[taker] = Command("SwapMatrix", target, source)
            commands[giver] = None
    return replace(computation, commands=[c for c in commands if c is not None])
