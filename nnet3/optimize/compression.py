"""Compression of the matrices that the backward part reads, from their last forward use on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..compiler.analyze import READ, SIZING, TWO_SIDED, accesses
from ..compiler.command import Command, insert
from ..compiler.computation import Computation
from .options import OptimizeOptions

Use = tuple[int, int]  # command, READ | WRITE
_OF_TWO = frozenset({*TWO_SIDED, "CopyRows"})  # types that read their source and write a target
RECTIFIER = "RectifiedLinearComponent"
RANGE = 10.0
"""Values in 16 bits are cut at this magnitude."""


def compress_memory(computation: Computation, options: OptimizeOptions) -> Computation:
    """Matrices are compressed after their last forward use and restored before the next use.

    Level 1 does it where a rectified output is only read by its own backprop, which looks at the
    sign: it changes nothing. Level 2 stores all other saved matrices in 16 bits, cut at -10 and 10.
    """
    commands, level = computation.commands, options.memory_compression_level
    types = [command.type for command in commands]
    # Without a backward part nothing is saved; of several segments each may read any matrix.
    if types.count("NoOperationMarker") != 1 or not level:
        return computation
    marker = types.index("NoOperationMarker")
    nodes = computation.topology.nodes
    submatrices = computation.submatrices
    rectifiers = [
        number
        for number, kind in enumerate(types[marker:], marker)
        if kind == "Backprop" and nodes[commands[number].node].component.type == RECTIFIER
    ]
    followed = range(1, len(computation.matrices))
    if level < 2:
        followed = sorted({submatrices[commands[number].deriv[1]][0] for number in rectifiers})
    extra: dict[int, list[Command]] = {}  # by the command that they go before
    for whole, uses in _uses(computation, followed):
        later = bisect_left(uses, (marker,))
        if not 0 < later < len(uses):
            continue
        before = uses[later - 1][0]
        back = uses[later][0]
        alone = all(number == back and mode == READ for number, mode in uses[later:])
        if alone and back in rectifiers:
            storage = "uint8"
            limit = 0.0
        elif level >= 2:
            storage = "int16"
            limit = RANGE
        else:
            continue
        compress = Command.compress_matrix(whole, limit, storage)
        extra.setdefault(before + 1, []).append(compress)
        extra.setdefault(back, []).append(Command.decompress_matrix(whole))
    return replace(computation, commands=insert(commands, extra)) if extra else computation


def _uses(computation: Computation, matrices: Iterable[int]) -> Iterator[tuple[int, list[Use]]]:
    """For each of these matrices that is no output: its whole and all its accesses in order."""
    commands = computation.commands
    nodes = computation.topology.nodes
    uses_of: dict[int, list[Use]] = {matrix: [] for matrix in matrices}
    if not uses_of:
        return
    parts = [(s, part) for s, part in enumerate(computation.submatrices) if part[0] in uses_of]
    uses = {s: uses_of[part[0]] for s, part in parts}
    for number, command in enumerate(commands):
        if command.type in _OF_TWO:
            if command.source in uses:
                uses[command.source].append((number, READ))
            if command.target in uses:
                _, (_, mode) = accesses(command, nodes)
                uses[command.target].append((number, mode))
            continue
        if command.type not in SIZING:
            for s, mode in accesses(command, nodes):
                if s in uses:
                    uses[s].append((number, mode))
    wholes = {part[0]: s for s, part in parts if computation.is_whole(s)}
    for matrix, listed in uses_of.items():
        if listed and not any(commands[n].type == "ProvideOutput" for n, _ in listed):
            yield wholes[matrix], listed
