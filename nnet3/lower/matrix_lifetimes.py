"""From which command to which a matrix holds a constant that fills it, or an input of the caller.

Kaldi's components may add to the values that they find; the operators here set their results. So
no command reads most of the zeros that a computation sets, and they are left out. The other
matrices are filled just before the first command that uses them, so in the same part of the net.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..compiler.analyze import (
    BACKPROPS,
    READ,
    READ_WRITE,
    ROWS_MULTI,
    WRITE,
    Accesses,
    Fill,
    accesses,
)
from ..compiler.command import Command
from ..compiler.computation import Computation

_NAMING_MORE = BACKPROPS | ROWS_MULTI  # commands with more sub-matrices than target and source
_REPLACING = frozenset({"AcceptInput", "SwapMatrix"})


@dataclass(slots=True)
class _Matrix:
    """A matrix whose commands are followed.

    Attributes:
        submatrices: numbers of its sub-matrices.
        is_input: whether it holds an input that no command has changed.
        fill: the command that filled it last, and the elements that hold its constant; None once
            it is known whether a command reads the constant.
        first: the first command after the fill that uses the matrix; -1 before there is one.
    """

    number: int
    submatrices: list[int]
    is_input: bool = False
    fill: tuple[Command, Fill] | None = None
    first: int = -1


class MatrixLifetimes:
    """Which fills of whole matrices are needed, and which inputs are changed.

    Args:
        matrix_of: the matrix of every sub-matrix.
        begins: numbers of all commands that fill whole matrices, or accept an input.
        swaps: whether SwapMatrix copies values.

    Attributes:
        fills: number of a command -> the commands whose fills come just before it.
        changed_inputs: inputs that a later command writes to, or provides as an output.
    """

    def __init__(
        self,
        computation: Computation,
        matrix_of: Sequence[int],
        begins: Sequence[int],
        swaps: bool,
    ) -> None:
        self._computation = computation
        self._swaps = swaps
        self._watched: dict[int, _Matrix] = {}  # by sub-matrix
        self._filled: dict[int, _Matrix] = {}  # the part of `_watched` with a fill
        self.changed_inputs: set[int] = set()
        self._read: list[tuple[int, int, Command]] = []  # matrix, first command that uses it, fill
        self._follow(begins, matrix_of)
        self.fills: dict[int, list[Command]] = {}
        for _, first, fill in sorted(self._read, key=lambda read: read[0]):
            self.fills.setdefault(first, []).append(fill)

    def _follow(self, begins: Sequence[int], matrix_of: Sequence[int]) -> None:
        """Go through the commands, from the first fill or input on."""
        commands = self._computation.commands
        watched = self._watched
        filled = self._filled
        apart = filled.keys().isdisjoint
        members: dict[int, list[int]] = {matrix_of[commands[n].target]: [] for n in begins}
        for s, matrix in enumerate(matrix_of):
            if matrix in members:
                members[matrix].append(s)
        matrices = {number: _Matrix(number, members[number]) for number in members}
        for begin, end in pairwise([*begins, len(commands)]):
            if commands[begin].target in watched:
                self._touch(begin, commands[begin])
            self._begin(matrices[matrix_of[commands[begin].target]], commands[begin])
            for number, command in enumerate(commands[begin + 1 : end], begin + 1):
                # Reading an input needs nothing.
                if command.target in watched or command.source in filled:
                    self._touch(number, command)
                elif command.type in _NAMING_MORE and (
                    command.deriv[3] in watched
                    or not apart(command.deriv)
                    or command.type in ROWS_MULTI
                ):
                    self._touch(number, command)

    def _begin(self, matrix: _Matrix, command: Command) -> None:
        """Follow a matrix from the command on that fills it or accepts it as an input."""
        if command.type == "AcceptInput":
            matrix.is_input = True
        else:
            matrix.fill = command, Fill(self._computation.submatrices[command.target])
            matrix.first = -1
            self._filled.update(dict.fromkeys(matrix.submatrices, matrix))
        self._watched.update(dict.fromkeys(matrix.submatrices, matrix))

    def _touch(self, number: int, command: Command) -> None:
        """Note how a command uses the matrices that are followed."""
        submatrices = self._computation.submatrices
        for s, mode in self._accesses(command):
            matrix = self._watched.get(s)
            if matrix is None:
                continue
            changes = mode & WRITE or command.type == "ProvideOutput"
            if matrix.is_input and changes and command.type not in _REPLACING:
                self.changed_inputs.add(matrix.number)
                matrix.is_input = False
            if matrix.fill is not None:
                if matrix.first < 0:
                    matrix.first = number
                filling, fill = matrix.fill
                is_read = fill.is_read(submatrices[s], mode)
                if is_read:
                    self._read.append((matrix.number, matrix.first, filling))
                if is_read is not None:
                    matrix.fill = None
                    for part in matrix.submatrices:
                        del self._filled[part]
            if not matrix.is_input and matrix.fill is None:
                for part in matrix.submatrices:
                    del self._watched[part]

    def _accesses(self, command: Command) -> Accesses:
        """The accesses of the operators that a command is lowered to.

        Components set their results, whatever their properties say, and CopyRows sets rows without
        a source to 0.
        """
        kind = command.type
        if kind == "CopyRows" or (kind == "SwapMatrix" and self._swaps):
            return (command.source, READ), (command.target, WRITE)
        pairs = accesses(command, self._computation.topology.nodes)
        if pairs and pairs[-1][1] == READ_WRITE and (kind == "Propagate" or kind in BACKPROPS):
            return *pairs[:-1], (pairs[-1][0], WRITE)
        return pairs
