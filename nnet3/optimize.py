"""Optimisation of compiled computations: one switch for each pass, in one ordered list.

Names and meaning follow Kaldi's nnet-optimize.h. Every pass takes and leaves a computation that
computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from .computation import Command, Computation

_COPIES = {"MatrixAdd": "MatrixCopy", "AddRows": "CopyRows", "AddRowsMulti": "CopyRowsMulti"}
_SETS = ("SetConst", "MatrixCopy", "CopyRows", "CopyRowsMulti", "Propagate")
_MEMORY = ("AllocMatrix", "DeallocMatrix")


@dataclass(frozen=True)
class OptimizeOptions:
    """Switches of the passes.

    Attributes:
        convert_addition: an addition to zeros becomes a copy.
        initialize_undefined: zeros that are overwritten or never read are not set.
    """

    convert_addition: bool = True
    initialize_undefined: bool = True

    @classmethod
    def none(cls) -> OptimizeOptions:
        """No optimisation at all."""
        return cls(**{field.name: False for field in fields(cls)})


def optimize(computation: Computation, options: OptimizeOptions | None = None) -> Computation:
    """The computation after all passes that are switched on; the given one is not changed."""
    options = options or OptimizeOptions()
    for name, apply in PASSES:
        if getattr(options, name):
            computation = apply(computation)
    return computation


class Pieces:
    """The columns of all matrices, cut wherever some sub-matrix begins or ends."""

    def __init__(self, computation: Computation):
        cuts: list[set[int]] = [set() for _ in computation.matrices]
        for s in computation.submatrices[1:]:
            cuts[s.matrix].update((s.col, s.col + s.cols))
        number: list[dict[int, int]] = []
        count = 0
        for columns in cuts:
            ordered = sorted(columns)
            number.append({col: count + i for i, col in enumerate(ordered)})
            count += len(ordered)
        self.count = count
        self._ranges = [
            range(number[s.matrix][s.col], number[s.matrix][s.col + s.cols]) if i else range(0)
            for i, s in enumerate(computation.submatrices)
        ]
        self._whole_rows = [
            s.rows == computation.matrices[s.matrix].rows for s in computation.submatrices
        ]

    def of(self, submatrix: int) -> range:
        """The pieces that a sub-matrix has a part in."""
        return self._ranges[submatrix]

    def has_all_rows(self, submatrix: int) -> bool:
        """Whether it reaches over all rows."""
        return self._whole_rows[submatrix]


def touched(command: Command) -> list[int]:
    """The sub-matrices that a command reads or writes."""
    named = [command.target, command.source, *command.deriv]
    if command.type.endswith("Multi") and command.rows is not None:
        named += np.unique(command.rows[:, 0]).tolist()
    return [s for s in named if s > 0]


def written_whole(command: Command) -> int:
    """The sub-matrix that a command sets without reading it; 0: none."""
    if command.type == "Backprop":
        return command.deriv[3]
    return command.target if command.type in _SETS else 0


def convert_addition(computation: Computation) -> Computation:
    """x = 0; x += y  becomes  x = 0; x = y."""
    pieces = Pieces(computation)
    zero = np.zeros(pieces.count, bool)
    commands = []
    for command in computation.commands:
        if command.type in _MEMORY:
            commands.append(command)
            continue
        span = pieces.of(command.target)
        whole = pieces.has_all_rows(command.target)
        if command.type == "SetConst" and command.alpha == 0 and whole:
            zero[span] = True
            commands.append(command)
            continue
        if command.type in _COPIES and whole and zero[span].all():
            others = [s for s in touched(replace(command, target=0))]
            if not any(set(pieces.of(s)) & set(span) for s in others):
                command = replace(command, type=_COPIES[command.type])
        for submatrix in touched(command):
            zero[pieces.of(submatrix)] = False
        commands.append(command)
    return replace(computation, commands=commands)


def remove_unnecessary_zeroing(computation: Computation) -> Computation:
    """Drops x = 0 where every column of x is set, or let go, before anything reads it."""
    pieces = Pieces(computation)
    pending = np.full(pieces.count, -1)  # the zeroing that nobody has looked at yet
    needed: set[int] = set()
    zeroings: set[int] = set()
    for number, command in enumerate(computation.commands):
        if command.type in _MEMORY:
            continue
        written = written_whole(command)
        for submatrix in touched(command):
            span = pieces.of(submatrix)
            if submatrix != written or not pieces.has_all_rows(submatrix):
                needed.update(pending[span].tolist())
            pending[span] = -1
        if command.type == "SetConst" and command.alpha == 0:
            zeroings.add(number)
            pending[pieces.of(command.target)] = number
    commands = [
        command
        for number, command in enumerate(computation.commands)
        if number not in zeroings or number in needed
    ]
    return replace(computation, commands=commands)


Pass = Callable[[Computation], Computation]
PASSES: tuple[tuple[str, Pass], ...] = (
    ("convert_addition", convert_addition),
    # After the additions are copies: these overwrite.
    ("initialize_undefined", remove_unnecessary_zeroing),
)
