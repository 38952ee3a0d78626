"""Additions to zeros become copies: x = 0; x += y  ->  x = 0; x = y."""

from __future__ import annotations

from dataclasses import replace

from ..analyze import SIZING, accesses, is_zeroing, overlap, rows_of
from ..computation import Computation
from .options import OptimizeOptions

_COPIES = {
    "MatrixAdd": "MatrixCopy",
    "AddRows": "CopyRows",
    "AddRowsMulti": "CopyRowsMulti",
    "AddToRowsMulti": "CopyToRowsMulti",
}


def convert_additions(computation: Computation, options: OptimizeOptions) -> Computation:
    """Every matrix is zero at first, so what is first added to a sub-matrix may overwrite it."""
    submatrices, nodes = computation.submatrices, computation.topology.nodes
    matrix_of = [s.matrix for s in submatrices]
    used: list[set[int]] = [set() for _ in computation.matrices]  # sub-matrices touched so far

    def fresh(number: int) -> bool:
        mine, touched = submatrices[number], used[matrix_of[number]]
        return number not in touched and not any(overlap(submatrices[s], mine) for s in touched)

    commands = list(computation.commands)
    for number, command in enumerate(commands):
        if command.type in SIZING or is_zeroing(command):
            continue
        kind = _COPIES.get(command.type)
        if kind == "CopyToRowsMulti":
            convert = command.alpha == 1 and all(fresh(s) for s in rows_of(command))
        else:
            convert = kind is not None and fresh(command.target)
        for s, _ in accesses(command, nodes):
            used[matrix_of[s]].add(s)
        if convert:
            commands[number] = command.changed(type=kind)
    return replace(computation, commands=commands)
