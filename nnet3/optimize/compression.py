"""What the backward part reads again is stored in fewer bits until then."""

from __future__ import annotations

from dataclasses import replace

from ..analyze import READ, Analysis
from ..computation import Command, Computation
from .options import OptimizeOptions

RANGE = 10.0
"""Values in 16 bits are cut at this magnitude."""


def compress_memory(computation: Computation, options: OptimizeOptions) -> Computation:
    """Matrices are compressed behind their last forward use and restored before the next use.

    Level 1 does it where a rectified output is only read by its own backprop, which looks at the
    sign: it changes nothing. Level 2 stores all else that is kept in 16 bits, in -10 .. 10.
    """
    commands = computation.commands
    middle = [i for i, c in enumerate(commands) if c.type == "NoOperationMarker"]
    if len(middle) != 1 or not options.memory_compression_level:
        return computation
    if options.memory_compression_level < 2 and not any(
        c.type == "Backprop" and _is_rectifier(computation, c) for c in commands
    ):
        return computation
    analysis = Analysis(computation)
    whole = computation.whole_submatrices()
    before: list[list[Command]] = [[] for _ in range(len(commands) + 1)]
    found = False
    for matrix in range(1, len(computation.matrices)):
        uses = analysis.of_matrix[matrix]
        ahead = [use for use in uses if use[0] < middle[0]]
        behind = [use for use in uses if use[0] > middle[0]]
        if matrix in analysis.taken or not ahead or not behind:
            continue
        back = commands[behind[0][0]]
        alone = all(number == behind[0][0] and mode == READ for number, _, mode in behind)
        if alone and back.type == "Backprop" and _is_rectifier(computation, back):
            storage, limit = "uint8", 0.0
        elif options.memory_compression_level >= 2:
            storage, limit = "int16", RANGE
        else:
            continue
        s = whole[matrix]
        compress = Command("CompressMatrix", s, alpha=limit, storage=storage)
        before[ahead[-1][0] + 1].append(compress)
        before[behind[0][0]].append(Command("DecompressMatrix", s))
        found = True
    if not found:
        return computation
    merged: list[Command] = []
    for extra, command in zip(before, [*commands, None], strict=True):
        merged += extra
        if command is not None:
            merged.append(command)
    return replace(computation, commands=merged)


def _is_rectifier(computation: Computation, command: Command) -> bool:
    return computation.topology.nodes[command.node].component.type == "RectifiedLinearComponent"
