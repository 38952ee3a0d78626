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
        remove_assignments: a matrix that is only a copy of another becomes that other.
        move_sizing_commands: memory is taken just before, and let go just after its use.
        allocate_from_other: memory that is let go is handed to the next matrix of that size.
    """

    convert_addition: bool = True
    initialize_undefined: bool = True
    remove_assignments: bool = True
    move_sizing_commands: bool = True
    allocate_from_other: bool = True

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
            others = touched(command)
            others.remove(command.target)
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


def written(command: Command) -> list[int]:
    """The sub-matrices that a command writes."""
    if command.type == "AddToRowsMulti":
        return [s for s in touched(command) if s != command.target]
    if command.type in ("ProvideOutput", *_MEMORY):
        return []
    return [s for s in (command.deriv[3], command.target) if s > 0]


def remove_assignments(computation: Computation) -> Computation:
    """y = x, where nothing else writes y and nothing writes x later: y is x.

    x may be columns of a matrix. A matrix that the caller gives or takes is not joined with another
    such matrix, and stays a matrix of its own.
    """
    matrix_of = [s.matrix for s in computation.submatrices]
    writes: list[list[int]] = [[] for _ in computation.matrices]
    bound: set[int] = set()  # given or taken by the caller
    for number, command in enumerate(computation.commands):
        for submatrix in written(command):
            writes[matrix_of[submatrix]].append(number)
        if command.type in ("AcceptInput", "ProvideOutput"):
            bound.add(matrix_of[command.target])
    home: dict[int, tuple[int, int]] = {}  # joined matrix -> the one it is now part of, its column
    dropped: set[int] = set()
    for number, command in enumerate(computation.commands):
        if command.type != "MatrixCopy" or command.alpha != 1:
            continue
        target = matrix_of[command.target]
        if writes[target] != [number] or not computation.is_whole(command.target):
            continue
        source = computation.submatrices[command.source]
        root, col = home.get(source.matrix, (source.matrix, 0))
        same_size = (
            source.rows == computation.matrices[root].rows
            and source.cols == computation.matrices[root].cols
        )
        if writes[root][-1:] > [number] or source.rows != computation.matrices[root].rows:
            continue
        if not same_size and (target in bound or computation.matrices[target].contiguous):
            continue
        if target in bound:
            if root in bound:
                continue
            bound.add(root)
        home[target] = root, col + source.col
        dropped.add(number)
    return _joined(computation, home, dropped) if home else computation


def _joined(
    computation: Computation, home: dict[int, tuple[int, int]], dropped: set[int]
) -> Computation:
    """The computation without the matrices in `home`, and without the commands in `dropped`."""
    kept = [m for m in range(len(computation.matrices)) if m not in home]
    new_number = {m: i for i, m in enumerate(kept)}
    submatrices = []
    for s in computation.submatrices:
        root, col = home.get(s.matrix, (s.matrix, 0))
        submatrices.append(replace(s, matrix=new_number[root], col=s.col + col))
    releases: dict[int, list[int]] = {}
    members: dict[int, int] = {}
    for matrix in range(1, len(computation.matrices)):
        root = home.get(matrix, (matrix, 0))[0]
        members[root] = members.get(root, 0) + 1
    for number, command in enumerate(computation.commands):
        if command.type == "DeallocMatrix":
            matrix = computation.submatrices[command.target].matrix
            releases.setdefault(home.get(matrix, (matrix, 0))[0], []).append(number)
    late = {
        numbers[-1] for root, numbers in releases.items() if len(numbers) == members[root]
    }  # where the last of the joined matrices is let go; never, where one is not
    result = replace(
        computation,
        matrices=[computation.matrices[m] for m in kept],
        submatrices=submatrices,
        commands=[],
    )
    whole = result.whole_submatrices()
    for number, command in enumerate(computation.commands):
        if number in dropped:
            continue
        if command.type in _MEMORY:
            matrix = computation.submatrices[command.target].matrix
            if command.type == "AllocMatrix" and matrix in home:
                continue
            if command.type == "DeallocMatrix" and number not in late:
                continue
            command = replace(command, target=whole[submatrices[command.target].matrix])
        result.commands.append(command)
    return result


def move_sizing_commands(computation: Computation) -> Computation:
    """Every AllocMatrix stands just before the first, every DeallocMatrix behind the last use."""
    matrix_of = [s.matrix for s in computation.submatrices]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    sizing: dict[str, dict[int, Command]] = {kind: {} for kind in _MEMORY}
    for number, command in enumerate(computation.commands):
        if command.type in _MEMORY:
            sizing[command.type][matrix_of[command.target]] = command
            continue
        for submatrix in touched(command):
            first.setdefault(matrix_of[submatrix], number)
            last[matrix_of[submatrix]] = number
    before: dict[int, list[Command]] = {}
    behind: dict[int, list[Command]] = {}
    for kind, use, place in (("AllocMatrix", first, before), ("DeallocMatrix", last, behind)):
        for matrix, command in sizing[kind].items():
            if matrix in use:
                place.setdefault(use[matrix], []).append(command)
    commands = []
    for number, command in enumerate(computation.commands):
        if command.type not in _MEMORY:
            commands += [*before.get(number, ()), command, *behind.get(number, ())]
    return replace(computation, commands=commands)


def allocate_from_other(computation: Computation) -> Computation:
    """Free x ... take y of its size  becomes  y takes over the memory of x (SwapMatrix)."""
    free: dict[tuple[int, int, bool], list[int]] = {}  # size -> commands that let go, newest last
    commands: list[Command | None] = []
    for command in computation.commands:
        if command.type in _MEMORY:
            matrix = computation.matrices[computation.submatrices[command.target].matrix]
            listed = free.setdefault((matrix.rows, matrix.cols, matrix.contiguous), [])
            if command.type == "DeallocMatrix":
                listed.append(len(commands))
            elif listed:
                number = listed.pop()
                source = commands[number]
                commands[number] = None
                command = replace(command, type="SwapMatrix", source=source.target)  # type: ignore[union-attr]
        commands.append(command)
    return replace(computation, commands=[c for c in commands if c is not None])


Pass = Callable[[Computation], Computation]
PASSES: tuple[tuple[str, Pass], ...] = (
    ("convert_addition", convert_addition),
    # After the additions are copies: these overwrite.
    ("initialize_undefined", remove_unnecessary_zeroing),
    # After zeroing is gone: the copy must be the only thing that writes.
    ("remove_assignments", remove_assignments),
    ("move_sizing_commands", move_sizing_commands),
    # Needs what is let go to stand before what is taken.
    ("allocate_from_other", allocate_from_other),
)
