"""What happens to few matrices: those that are filled with a constant, and those that are given.

Kaldi's components may add to what they find; the operators here set their results. So most zeros
are read by nobody, and are not set. What is left is filled just before the first command that
touches it, so in the same part of the net.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..compile.analyze import (
    BACKPROPS,
    READ,
    READ_WRITE,
    ROWS_MULTI,
    WRITE,
    Accesses,
    Fill,
    accesses,
)
from ..compile.command import Command
from ..compile.computation import Computation

_GIVING = frozenset({"AcceptInput", "SwapMatrix"})


@dataclass(slots=True)
class _Matrix:
    """A matrix that is watched.

    Attributes:
        parts: its sub-matrices.
        is_given: and nothing has changed it since.
        filled_by: the command that filled it last.
        fill: what it was filled with, as long as it is open whether anything reads that.
        first: the first command behind `filled_by` that touches it.
    """

    number: int
    parts: list[int]
    is_given: bool = False
    filled_by: Command | None = None
    fill: Fill | None = None
    first: int = -1


class FewMatrices:
    """What becomes of the matrices that are filled or given.

    Args:
        matrix_of: for every sub-matrix its matrix.
        begins: the numbers of all commands that fill whole matrices, or accept what is given.
        swaps: whether memory that is handed on is copied.

    Attributes:
        fills: by number of a command those that fill whole matrices before it.
        changed: given matrices that are written to afterwards, or taken as an output.
    """

    def __init__(
        self,
        computation: Computation,
        matrix_of: Sequence[int],
        begins: Sequence[int],
        swaps: bool,
    ) -> None:
        self._computation, self._swaps = computation, swaps
        self._watched: dict[int, _Matrix] = {}  # by sub-matrix
        self._filled: dict[int, _Matrix] = {}  # those where it is open whether `fill` is read
        self.changed: set[int] = set()
        self._read: list[tuple[int, int, Command]] = []  # matrix, its first toucher, fill
        self._follow(begins, matrix_of)
        self.fills: dict[int, list[Command]] = {}
        for _, first, fill in sorted(self._read, key=lambda found: found[0]):
            self.fills.setdefault(first, []).append(fill)

    def _follow(self, begins: Sequence[int], matrix_of: Sequence[int]) -> None:
        """Go through the commands from those on with which something begins."""
        commands, watched, filled = self._computation.commands, self._watched, self._filled
        apart = filled.keys().isdisjoint
        parts: dict[int, list[int]] = {matrix_of[commands[n].target]: [] for n in begins}
        for s, matrix in enumerate(matrix_of):
            if matrix in parts:
                parts[matrix].append(s)
        matrices = {number: _Matrix(number, parts[number]) for number in parts}
        for begin, end in pairwise([*begins, len(commands)]):
            if commands[begin].target in watched:
                self._touch(begin, commands[begin])
            self._begin(matrices[matrix_of[commands[begin].target]], commands[begin])
            for number, command in enumerate(commands[begin + 1 : end], begin + 1):
                # Who reads what is given is of no interest.
                if (
                    command.target in watched
                    or command.source in filled
                    or (
                        command.type in BACKPROPS
                        and (command.deriv[3] in watched or not apart(command.deriv))
                    )
                    or command.type in ROWS_MULTI
                ):
                    self._touch(number, command)

    def _begin(self, matrix: _Matrix, command: Command) -> None:
        """Watch a matrix that is filled or given."""
        if command.type == "AcceptInput":
            matrix.is_given = True
        else:
            matrix.filled_by, matrix.first = command, -1
            matrix.fill = Fill(self._computation.submatrices[command.target])
            self._filled.update(dict.fromkeys(matrix.parts, matrix))
        self._watched.update(dict.fromkeys(matrix.parts, matrix))

    def _touch(self, number: int, command: Command) -> None:
        """See what a command does to matrices that are watched."""
        submatrices = self._computation.submatrices
        for s, mode in self._accesses(command):
            matrix = self._watched.get(s)
            if matrix is None:
                continue
            changes = mode & WRITE or command.type == "ProvideOutput"
            if matrix.is_given and changes and command.type not in _GIVING:
                self.changed.add(matrix.number)
                matrix.is_given = False
            if matrix.fill is not None:
                if matrix.first < 0:
                    matrix.first = number
                is_read = matrix.fill.is_read(submatrices[s], mode)
                if is_read:
                    self._read.append((matrix.number, matrix.first, matrix.filled_by))
                if is_read is not None:
                    matrix.fill = None
                    for part in matrix.parts:
                        del self._filled[part]
            if not matrix.is_given and matrix.fill is None:
                for part in matrix.parts:
                    del self._watched[part]

    def _accesses(self, command: Command) -> Accesses:
        """The accesses of what a command is lowered to: components set their results, whatever
        their properties say, and rows that nothing is copied to are set to 0."""
        kind = command.type
        if kind == "CopyRows" or (kind == "SwapMatrix" and self._swaps):
            return (command.source, READ), (command.target, WRITE)
        pairs = accesses(command, self._computation.topology.nodes)
        if pairs and pairs[-1][1] == READ_WRITE and (kind == "Propagate" or kind in BACKPROPS):
            return *pairs[:-1], (pairs[-1][0], WRITE)
        return pairs
