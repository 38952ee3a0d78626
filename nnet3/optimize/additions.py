"""Additions to zeros become copies: x = 0; x += y  ->  x = 0; x = y."""

from __future__ import annotations

from dataclasses import replace

from ..compiler.analyze import READ, WRITE, Analysis, overlap, rows_of
from ..compiler.computation import Computation
from ..index.spans import Spans
from .options import OptimizeOptions

_FEW = 32  # accesses that are quicker looked at one by one
_COPIES = {
    "MatrixAdd": "MatrixCopy",
    "AddRows": "CopyRows",
    "AddRowsMulti": "CopyRowsMulti",
    "AddToRowsMulti": "CopyToRowsMulti",
}


def convert_additions(computation: Computation, options: OptimizeOptions) -> Computation:
    """Turn the first addition to each sub-matrix into a copy, as every matrix begins as zeros."""
    result = replace(computation, commands=list(computation.commands))
    own = computation.owns
    result.analysis = analysis = Analysis(result, empty=True)
    commands, submatrices, listed = result.commands, result.submatrices, analysis.listed
    by_rows: dict[int, Spans] = {}  # the accesses so far of a matrix that has many

    def fresh(number: int) -> bool:
        near, mine = listed[number], submatrices[number]
        if len(near) > _FEW:  # a matrix of all frames; a part of it is near to few others
            if any([overlap(submatrices[near[at][2]], mine) for at in (0, -1)]):
                return False  # all of the matrix, say, for which all others would be near
            index = by_rows.setdefault(mine[0], Spans())
            for place in range(len(index), len(near)):
                _, row, rows, _, _ = submatrices[near[place][2]]
                index.add(row, row + rows)
            near = [near[place] for place in index.near(mine[1], mine[1] + mine[2])]
        _, row, rows, col, cols = mine
        row_end, col_end = row + rows, col + cols
        for _, _, other in near:  # written out, as `overlap` would be called thousands of times
            _, r, n, c, m = submatrices[other]
            if r < row_end and row < r + n and c < col_end and col < c + m:
                return False
        return True

    for number, command in enumerate(commands):
        kind, target = command.type, command.target
        copy = _COPIES.get(kind)
        if copy is not None:
            if kind == "AddToRowsMulti":
                convert = command.alpha == 1 and all(map(fresh, rows_of(command)))
            else:
                convert = not listed[target] or fresh(target)
            if convert:
                if not own:
                    command = commands[number] = command.changed()
                kind = command.type = copy
        if kind == "MatrixCopy":  # many are, in a recurrent network
            source = command.source
            listed[source].append((number, READ, source))
            listed[target].append((number, WRITE, target))
        else:
            analysis.note(number, command)
    return result
