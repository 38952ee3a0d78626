"""Additions to zeros become copies: x = 0; x += y  ->  x = 0; x = y."""

from __future__ import annotations

from dataclasses import replace

from ..compile.analyze import accesses, overlap, rows_of
from ..compile.computation import Computation
from .options import OptimizeOptions

_COPIES = {
    "MatrixAdd": "MatrixCopy",
    "AddRows": "CopyRows",
    "AddRowsMulti": "CopyRowsMulti",
    "AddToRowsMulti": "CopyToRowsMulti",
}


def convert_additions(computation: Computation, options: OptimizeOptions) -> Computation:
    """Turn the first addition to each sub-matrix into a copy, as every matrix begins as zeros."""
    submatrices, nodes = computation.submatrices, computation.topology.nodes
    touched: list[list[int]] = [[] for _ in computation.matrices]  # sub-matrices, so far
    beside = [
        touched[s[0]] for s in submatrices
    ]  # for each sub-matrix the touched ones of its matrix

    def fresh(number: int) -> bool:
        near, mine = beside[number], submatrices[number]
        return not near or not any([overlap(submatrices[s], mine) for s in near])

    commands = list(computation.commands)
    for number, command in enumerate(commands):
        kind, target, source = command.type, command.target, command.source
        copy = _COPIES.get(kind)
        if copy is None:
            for s, _ in command.accesses or accesses(command, nodes):
                beside[s].append(s)
            continue
        if kind == "AddToRowsMulti":
            many = rows_of(command)
            convert = command.alpha == 1 and all(map(fresh, many))
        else:
            many = rows_of(command) if kind == "AddRowsMulti" else [source]
            convert = fresh(target)
        for s in many:
            beside[s].append(s)
        beside[target].append(target)
        if convert:
            commands[number] = command.as_type(copy, target, source, command.rows)
    return replace(computation, commands=commands)
