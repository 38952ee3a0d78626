"""Additions to zeros become copies: x = 0; x += y  ->  x = 0; x = y."""

from __future__ import annotations

from dataclasses import replace

from ..compiler.analyze import accesses, overlap, rows_of
from ..compiler.computation import Computation
from ..index.spans import Spans
from .options import OptimizeOptions

_FEW = 32  # sub-matrices that are quicker looked at one by one
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

    by_rows: dict[int, Spans] = {}  # the touched ones of a matrix that has many

    def fresh(number: int) -> bool:
        near, mine = beside[number], submatrices[number]
        if len(near) > _FEW:  # a matrix of all frames; a part of it is near to few others
            if overlap(submatrices[near[0]], mine) or overlap(submatrices[near[-1]], mine):
                return False  # all of the matrix, say, for which all others would be near
            index = by_rows.setdefault(mine[0], Spans())
            for place in range(len(index), len(near)):
                _, row, rows, _, _ = submatrices[near[place]]
                index.add(row, row + rows)
            near = [near[place] for place in index.near(mine[1], mine[1] + mine[2])]
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
