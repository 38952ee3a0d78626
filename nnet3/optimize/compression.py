"""What the backward part reads again is stored in fewer bits until then."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from ..analyze import READ, Analysis
from ..computation import Command, Computation, insert
from .options import OptimizeOptions

RANGE = 10.0
"""Values in 16 bits are cut at this magnitude."""


def compress_memory(computation: Computation, options: OptimizeOptions) -> Computation:
    """Matrices are compressed behind their last forward use and restored before the next use.

    Level 1 does it where a rectified output is only read by its own backprop, which looks at the
    sign: it changes nothing. Level 2 stores all else that is kept in 16 bits, in -10 .. 10.
    """
    commands, level = computation.commands, options.memory_compression_level
    middle = [i for i, c in enumerate(commands) if c.type == "NoOperationMarker"]
    if len(middle) != 1 or not level:
        return computation
    marker = middle[0]
    rectifiers = {
        number
        for number in range(marker, len(commands))
        if commands[number].type == "Backprop" and _is_rectifier(computation, commands[number])
    }
    if level < 2 and not rectifiers:
        return computation
    analysis, whole = Analysis(computation), computation.whole_submatrices()
    extra: dict[int, list[Command]] = {}  # by the command that they go before
    for matrix, uses in enumerate(analysis.of_matrix):
        if not uses or uses[-1][0] < marker:
            continue
        behind = bisect_left(uses, (marker,))
        before = uses[behind - 1][0] if behind else analysis.zeroed.get(matrix, -1)
        if matrix in analysis.taken or before < 0 or before > marker:
            continue
        back = uses[behind][0]
        alone = all(number == back and mode == READ for number, _, mode in uses[behind:])
        if alone and back in rectifiers:
            storage, limit = "uint8", 0.0
        elif level >= 2:
            storage, limit = "int16", RANGE
        else:
            continue
        s = whole[matrix]
        compress = Command("CompressMatrix", s, alpha=limit, storage=storage)
        extra.setdefault(before + 1, []).append(compress)
        extra.setdefault(back, []).append(Command("DecompressMatrix", s))
    return replace(computation, commands=insert(commands, extra)) if extra else computation


def _is_rectifier(computation: Computation, command: Command) -> bool:
    return computation.topology.nodes[command.node].component.type == "RectifiedLinearComponent"
