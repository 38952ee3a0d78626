"""Which commands of a computation read and write what: the basis of passes and checker.

Source: Kaldi's nnet-analyze.cc. There matrices are cut into "variables" wherever some sub-matrix
begins or ends; here two sub-matrices are compared as rectangles, and a matrix is cut into a grid
only where all its parts matter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from .computation import Command, Computation, SubMatrix
from .indexes import distinct
from .topology import FLAGS, TopologyNode

READ, WRITE, READ_WRITE = 1, 2, 3
BACKPROPS = frozenset({"Backprop", "BackpropNoModelUpdate"})
SIZING = frozenset({"AllocMatrix", "DeallocMatrix", "SwapMatrix"})
_BOUNDS = frozenset({"SwapMatrix", "AcceptInput", "ProvideOutput"})
_SETTING = BACKPROPS | {"Propagate", "CopyRows"}
Access = tuple[int, int, int]  # command, sub-matrix, READ | WRITE
Accesses = list[tuple[int, int]]  # sub-matrix, READ | WRITE


def is_zeroing(command: Command) -> bool:
    """Whether a command sets something to zero."""
    return command.type == "SetConst" and command.alpha == 0


def rows_of(command: Command) -> list[int]:
    """The sub-matrices in a command's pairs (sub-matrix, row)."""
    numbers = distinct(command.rows[:, 0])  # type: ignore[index]
    return numbers[numbers > 0].tolist()


def overlap(a: SubMatrix, b: SubMatrix) -> bool:
    """Whether two sub-matrices of one matrix share an element."""
    _, row, rows, col, cols = a
    _, other_row, other_rows, other_col, other_cols = b
    return (
        row < other_row + other_rows
        and other_row < row + rows
        and col < other_col + other_cols
        and other_col < col + cols
    )


def accesses(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    """(sub-matrix, READ, WRITE or both) of a command, what it reads first.

    To take, give up or hand on memory is no access. A command is never changed, so what is found
    is kept in it and stays true from pass to pass.
    """
    found = command.accesses
    if found is None:
        find = _FINDERS.get(command.type)
        found = [pair for pair in find(command, nodes) if pair[0] > 0] if find else []
        command.accesses = found
    return found


def _find_copy(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    return [(command.source, READ), (command.target, WRITE)]


def _find_addition(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    return [(command.source, READ), (command.target, READ_WRITE)]


def _find_rows_copy(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    # For Kaldi the rows that nothing is copied to are read, too.
    partial = bool((command.rows < 0).any())  # type: ignore[operator]
    return [(command.source, READ), (command.target, READ_WRITE if partial else WRITE)]


def _find_from_rows(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    mode = WRITE if command.type == "CopyRowsMulti" else READ_WRITE
    return [*((s, READ) for s in rows_of(command)), (command.target, mode)]


def _find_to_rows(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    return [(command.target, READ), *((s, READ_WRITE) for s in rows_of(command))]


def _find_propagate(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    adds = nodes[command.node].properties & FLAGS.PROPAGATE_ADDS
    return [(command.source, READ), (command.target, READ_WRITE if adds else WRITE)]


def _find_backprop(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    adds = nodes[command.node].properties & FLAGS.BACKPROP_ADDS
    a, b, c, d = command.deriv
    return [(a, READ), (b, READ), (c, READ), (d, READ_WRITE if adds else WRITE)]


_FINDERS: dict[str, Callable[[Command, Sequence[TopologyNode]], Accesses]] = {
    **dict.fromkeys(("MatrixCopy", "SetConst", "AcceptInput", "DecompressMatrix"), _find_copy),
    **dict.fromkeys(("MatrixAdd", "AddRows", "AddRowRanges"), _find_addition),
    "CopyRows": _find_rows_copy,
    **dict.fromkeys(("AddRowsMulti", "CopyRowsMulti"), _find_from_rows),
    **dict.fromkeys(("AddToRowsMulti", "CopyToRowsMulti"), _find_to_rows),
    "Propagate": _find_propagate,
    **dict.fromkeys(BACKPROPS, _find_backprop),
    "CompressMatrix": lambda command, nodes: [(command.target, READ_WRITE)],
    "ProvideOutput": lambda command, nodes: [(command.target, READ)],
}


def _setting(pairs: Accesses) -> Accesses:
    """The accesses of a command in `_SETTING` once lowered: components set their results, whatever
    their properties say, and rows that nothing is copied to are set to 0."""
    if pairs and pairs[-1][1] == READ_WRITE:
        return [*pairs[:-1], (pairs[-1][0], WRITE)]
    return pairs


class Analysis:
    """The accesses of a computation, by command and by matrix.

    Args:
        computation: may be changed later; `of_command` and `of_matrix` then stay as they are.
        sets: as lowered operators access: what a component would add to is set.

    Attributes:
        of_command: for every command its (sub-matrix, mode), see `accesses`.
        of_matrix: for every matrix its accesses in order.
        allocated, released: by matrix, the command that takes and that gives up its memory, or -1.
        given, taken: matrices that the caller gives, and takes.
    """

    def __init__(self, computation: Computation, sets: bool = False):
        self.computation = computation
        count = len(computation.matrices)
        self.of_command: list[Accesses] = []
        self.of_matrix: list[list[Access]] = [[] for _ in range(count)]
        self.allocated, self.released = [-1] * count, [-1] * count
        self.given: set[int] = set()
        self.taken: set[int] = set()
        nodes, of_matrix = computation.topology.nodes, self.of_matrix
        matrix_of = [s.matrix for s in computation.submatrices]
        for number, command in enumerate(computation.commands):
            pairs = command.accesses
            if pairs is None:
                pairs = accesses(command, nodes)
            if sets and command.type in _SETTING:
                pairs = _setting(pairs)
            self.of_command.append(pairs)
            for s, mode in pairs:
                of_matrix[matrix_of[s]].append((number, s, mode))
            kind = command.type
            if kind == "AllocMatrix":
                self.allocated[matrix_of[command.target]] = number
            elif kind == "DeallocMatrix":
                self.released[matrix_of[command.target]] = number
            elif kind in _BOUNDS:
                self._bound(number, command, matrix_of)

    def _bound(self, number: int, command: Command, matrix_of: list[int]) -> None:
        """Notes that a matrix is handed on, given or taken."""
        kind, matrix = command.type, matrix_of[command.target]
        if kind == "SwapMatrix":
            self.allocated[matrix] = number
            self.released[matrix_of[command.source]] = number
        elif kind == "AcceptInput":
            self.given.add(matrix)
            if self.allocated[matrix] < 0:
                self.allocated[matrix] = number
        else:
            self.taken.add(matrix)

    def last_use(self, submatrix: int) -> int:
        """The last command that touches a sub-matrix."""
        submatrices = self.computation.submatrices
        mine = submatrices[submatrix]
        for number, s, _ in reversed(self.of_matrix[mine.matrix]):
            if overlap(submatrices[s], mine):
                return number
        return -1

    def last_write(self, submatrix: int) -> int:
        """The last command that writes to a sub-matrix; -1: none does."""
        submatrices = self.computation.submatrices
        mine = submatrices[submatrix]
        for number, s, mode in reversed(self.of_matrix[mine.matrix]):
            if mode & WRITE and overlap(submatrices[s], mine):
                return number
        return -1

    def invalidated(self, command: int, submatrix: int) -> int:
        """The first command behind `command` that changes a sub-matrix or gives up its memory."""
        submatrices = self.computation.submatrices
        mine = submatrices[submatrix]
        end = self.released[mine.matrix]
        if end < 0:
            end = len(self.computation.commands)
        listed = self.of_matrix[mine.matrix]
        for i in range(bisect_left(listed, (command + 1, 0, 0)), len(listed)):
            number, s, mode = listed[i]
            if number >= end:
                break
            if mode & WRITE and overlap(submatrices[s], mine):
                return number
        return end


class Grid:
    """A matrix cut wherever one of the given sub-matrices of it begins or ends.

    Attributes:
        marks: bool, one for each piece, [row pieces, column pieces].
    """

    def __init__(self, rows: int, cols: int, parts: list[SubMatrix]):
        self._rows = sorted({0, rows, *(p.row for p in parts), *(p.row + p.rows for p in parts)})
        self._cols = sorted({0, cols, *(p.col for p in parts), *(p.col + p.cols for p in parts)})
        self.marks = np.zeros((len(self._rows) - 1, len(self._cols) - 1), bool)

    def of(self, part: SubMatrix) -> np.ndarray:
        """The marks of the pieces of a sub-matrix, a view."""
        rows, cols = self._rows, self._cols
        return self.marks[
            bisect_left(rows, part.row) : bisect_left(rows, part.row + part.rows),
            bisect_left(cols, part.col) : bisect_left(cols, part.col + part.cols),
        ]
