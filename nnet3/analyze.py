"""Which commands of a computation read and write what: the basis of passes and checker.

Source: Kaldi's nnet-analyze.cc. There matrices are cut into "variables" wherever some sub-matrix
begins or ends; here two sub-matrices are compared as rectangles, and a matrix is cut into a grid
only where all its parts matter.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from .components.base import Properties
from .computation import Command, Computation, SubMatrix
from .indexes import distinct

READ, WRITE, READ_WRITE = 1, 2, 3
_ADDING = frozenset({"MatrixAdd", "AddRows", "AddRowsMulti", "AddRowRanges"})
_COPYING = frozenset({"MatrixCopy", "SetConst", "AcceptInput", "DecompressMatrix"})
_TO_ROWS = frozenset({"AddToRowsMulti", "CopyToRowsMulti"})
BACKPROPS = frozenset({"Backprop", "BackpropNoModelUpdate"})
SIZING = frozenset({"AllocMatrix", "DeallocMatrix", "SwapMatrix"})
_SETTING = BACKPROPS | {"Propagate", "CopyRows"}
_PROPAGATE_ADDS = int(Properties.PROPAGATE_ADDS)
_BACKPROP_ADDS = int(Properties.BACKPROP_ADDS)
Access = tuple[int, int, int]  # command, sub-matrix, READ | WRITE


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


class AccessTable:
    """What single commands read and write, looked up once each.

    A command is never changed, so what is known of it stays true from pass to pass, until the
    sub-matrices are numbered anew.
    """

    def __init__(self, topology: Any):
        self._nodes = topology.nodes
        self._flags: dict[int, int] = {}
        self._known: dict[int, tuple[Command, list[tuple[int, int]]]] = {}

    def flags(self, node: int) -> int:
        """The properties of the component of a node."""
        found = self._flags.get(node)
        if found is None:
            found = self._flags[node] = int(self._nodes[node].component.properties)
        return found

    def of(self, command: Command) -> list[tuple[int, int]]:
        """(sub-matrix, READ, WRITE or both) of a command, what it reads first.

        To take, give up or hand on memory is no access.
        """
        known = self._known.get(id(command))
        if known is None:  # the entry keeps the command, and so its id
            known = self._known[id(command)] = command, self._find(command)
        return known[1]

    def _find(self, command: Command) -> list[tuple[int, int]]:
        kind = command.type
        if kind in _COPYING:
            found = [(command.source, READ), (command.target, WRITE)]
        elif kind in _ADDING:
            found = [(command.source, READ), (command.target, READ_WRITE)]
            if kind == "AddRowsMulti":
                found[:1] = [(s, READ) for s in rows_of(command)]
        elif kind == "Propagate":
            adds = self.flags(command.node) & _PROPAGATE_ADDS
            found = [(command.source, READ), (command.target, READ_WRITE if adds else WRITE)]
        elif kind in BACKPROPS:
            adds = self.flags(command.node) & _BACKPROP_ADDS
            found = [(s, READ) for s in command.deriv[:3]]
            found.append((command.deriv[3], READ_WRITE if adds else WRITE))
        elif kind == "CopyRows":
            # For Kaldi the rows that nothing is copied to are read, too.
            partial = bool((command.rows < 0).any())  # type: ignore[operator]
            found = [(command.source, READ), (command.target, READ_WRITE if partial else WRITE)]
        elif kind == "CopyRowsMulti":
            found = [*((s, READ) for s in rows_of(command)), (command.target, WRITE)]
        elif kind in _TO_ROWS:
            found = [(command.target, READ), *((s, READ_WRITE) for s in rows_of(command))]
        elif kind == "CompressMatrix":
            found = [(command.target, READ_WRITE)]
        elif kind == "ProvideOutput":
            found = [(command.target, READ)]
        else:
            return []
        return [pair for pair in found if pair[0] > 0]

    def setting(self, command: Command) -> list[tuple[int, int]]:
        """As `of`, where components set their results, whatever their properties say, and rows
        that nothing is copied to are set to 0, as in lowered computations."""
        pairs = self.of(command)
        if command.type in _SETTING and pairs and pairs[-1][1] == READ_WRITE:
            return [*pairs[:-1], (pairs[-1][0], WRITE)]
        return pairs


def access_table(computation: Computation) -> AccessTable:
    """The table of a computation, which those made from it by passes share."""
    if computation.accesses is None:
        computation.accesses = AccessTable(computation.topology)
    return computation.accesses


class Analysis:
    """The accesses of a computation, by command and by matrix.

    Args:
        computation: may be changed later; `of_command` and `of_matrix` then stay as they are.
        sets: as `AccessTable.setting` sees it.

    Attributes:
        of_command: for every command its (sub-matrix, mode).
        of_matrix: for every matrix its accesses in order.
        allocated, released: by matrix, the command that takes and that gives up its memory, or -1.
        given, taken: matrices that the caller gives, and takes.
    """

    def __init__(self, computation: Computation, sets: bool = False):
        self.computation = computation
        table = access_table(computation)
        find = table.setting if sets else table.of
        submatrices = computation.submatrices
        count = len(computation.matrices)
        self.of_command: list[list[tuple[int, int]]] = []
        self.of_matrix: list[list[Access]] = [[] for _ in range(count)]
        self.allocated, self.released = [-1] * count, [-1] * count
        self.given: set[int] = set()
        self.taken: set[int] = set()
        matrix_of = [s.matrix for s in submatrices]
        for number, command in enumerate(computation.commands):
            pairs = find(command)
            self.of_command.append(pairs)
            for s, mode in pairs:
                self.of_matrix[matrix_of[s]].append((number, s, mode))
            kind, matrix = command.type, matrix_of[command.target]
            if kind in ("AllocMatrix", "SwapMatrix"):
                self.allocated[matrix] = number
            elif kind == "DeallocMatrix":
                self.released[matrix] = number
            elif kind == "AcceptInput":
                self.given.add(matrix)
                if self.allocated[matrix] < 0:
                    self.allocated[matrix] = number
            elif kind == "ProvideOutput":
                self.taken.add(matrix)
            if kind == "SwapMatrix":
                self.released[matrix_of[command.source]] = number

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
