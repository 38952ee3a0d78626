"""A compiled computation: matrices, sub-matrices, and commands on them, as Kaldi prints them.

Source: Kaldi's NnetComputation (nnet-computation.h). Matrix 0 and sub-matrix 0 are empty and stand
for "none". Commands name sub-matrices, lists of row numbers and components by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ..graph.topology import Topology
from ..index.indexes import Columns, IndexList, distinct, format_indexes, format_integers, shorten
from .command import OF_MANY, Command
from .listing import readable

_DEBUG_HEADER = """\
# The following show how matrices correspond to network-nodes and
# cindex-ids.  Format is: matrix = <node-id>.[value|deriv][ <list-of-cindex-ids> ]
# where a cindex-id is written as (n,t[,x]) but ranges of t values are compressed
# so we write (n, tfirst:tlast)."""

_COMMAND_BYTES, _INDEX_BYTES = 1024, 24
"""What a command takes with its sub-matrices and accesses, and the index of a row."""


class SubMatrix(NamedTuple):
    """A rectangle of a matrix."""

    matrix: int
    row: int
    rows: int
    col: int
    cols: int


def submatrices_of(rows: Iterable[Sequence[int]]) -> list[SubMatrix]:
    """Sub-matrices from sequences of their five numbers."""
    return list(map(tuple.__new__, repeat(SubMatrix), rows))  # in half the time of calls


class MatrixInfo(NamedTuple):
    """A matrix of a computation.

    Attributes:
        rows, cols: its size.
        contiguous: its rows must follow each other in memory without gaps.
        is_deriv: it holds derivatives, not values.
        node: the number of the node whose rows it holds; -1 where that is not known.
        listed: the indexes of its rows, where they are known.
    """

    rows: int
    cols: int
    contiguous: bool = False
    is_deriv: bool = False
    node: int = -1
    listed: IndexList | None = None

    @property
    def indexes(self) -> np.ndarray | None:
        """The indexes of its rows, where they are known."""
        return None if self.listed is None else self.listed.indexes

    def rows_named(self) -> np.ndarray:
        """`indexes` of a matrix whose rows are known."""
        assert self.listed is not None
        return self.listed.indexes


def matrices_of(rows: Iterable[Sequence[Any]]) -> list[MatrixInfo]:
    """Matrices from sequences of their six values."""
    return list(map(tuple.__new__, repeat(MatrixInfo), rows))


@dataclass
class Computation:
    """The result of compiling a request for a network.

    The compiler lets every matrix that is no input begin as zeros, and gives the memory of every
    matrix that is no output back at the end. Two commands do so for all matrices (AllocMatrices,
    DeallocMatrices); passes that merge and remove matrices only shorten their lists, and
    `place_memory` then places each. `explicit` and Kaldi's notation have a command for each.

    Attributes:
        topology: the network's nodes.
        precomputed: precomputed indexes of components by number; number 0 is None.
        precomputed_from: the node and the rows of input and output of each precomputed index;
            empty where that is not known.
        owns: nothing else holds its commands, so that a pass may change them.
        analysis: the analysis that a pass leaves for the next; see `analyze.analyzed`.
    """

    topology: Topology
    matrices: list[MatrixInfo] = field(default_factory=lambda: [MatrixInfo(0, 0)])
    submatrices: list[SubMatrix] = field(default_factory=lambda: [SubMatrix(0, 0, 0, 0, 0)])
    commands: list[Command] = field(default_factory=list)
    precomputed: list[Any] = field(default_factory=lambda: [None])
    precomputed_from: list[tuple[int, Columns, Columns]] = field(default_factory=list)
    need_model_derivative: bool = False
    owns: bool = field(default=False, repr=False, compare=False)
    analysis: Any = field(default=None, init=False, repr=False, compare=False)

    def nbytes(self) -> int:
        """The memory that it takes, about: indexes are made when they are read."""
        listed = sum(info.rows for info in self.matrices if info.listed is not None)
        rows = sum(command.rows.nbytes for command in self.commands if command.rows is not None)
        return _COMMAND_BYTES * len(self.commands) + _INDEX_BYTES * listed + rows

    @property
    def takes_derivatives(self) -> bool:
        """Whether a backward part is given derivatives, after the forward part."""
        types = [command.type for command in self.commands]
        marker = "NoOperationMarker"
        return marker in types and "AcceptInput" in types[types.index(marker) :]

    def new_matrix(self, rows: int, cols: int, contiguous: bool = False) -> int:
        """A new matrix; returns the number of the sub-matrix that is the whole of it."""
        self.submatrices.append(SubMatrix(len(self.matrices), 0, rows, 0, cols))
        self.matrices.append(MatrixInfo(rows, cols, contiguous))
        return len(self.submatrices) - 1

    def new_part(self, base: int, row: int, rows: int) -> int:
        """A new sub-matrix of rows of sub-matrix `base`; `base` itself where these are all."""
        b = self.submatrices[base]
        if rows == b.rows:
            return base
        self.submatrices.append(SubMatrix(b.matrix, b.row + row, rows, b.col, b.cols))
        return len(self.submatrices) - 1

    def copy(self) -> Computation:
        """A computation whose lists may be changed without changing this one's."""
        return replace(
            self,
            matrices=list(self.matrices),
            submatrices=list(self.submatrices),
            commands=list(self.commands),
        )

    def own_commands(self) -> list[Command]:
        """The commands, each of which may be changed: copies, unless the computation owns them."""
        return list(self.commands) if self.owns else [c.changed() for c in self.commands]

    def explicit(self) -> Computation:
        """The computation with AllocMatrix, SetConst and DeallocMatrix for each single matrix."""
        if OF_MANY.isdisjoint([command.type for command in self.commands]):
            return self
        commands: list[Command] = []
        for command in self.commands:
            if command.type == "AllocMatrices":
                for s in command.of_many():
                    commands += Command.alloc_matrix(s), Command.set_const(s, 0.0)
            elif command.type == "DeallocMatrices":
                commands += map(Command.dealloc_matrix, command.of_many())
            else:
                commands.append(command)
        return replace(self, commands=commands)

    def is_whole(self, submatrix: int) -> bool:
        """Whether a sub-matrix is the whole of its matrix."""
        number, _, rows, _, cols = self.submatrices[submatrix]
        matrix = self.matrices[number]
        return rows == matrix.rows and cols == matrix.cols

    def touched(self, command: Command) -> set[int]:
        """The matrices that a command names."""
        named = {command.target, command.source, *command.deriv}
        if command.type.endswith("Multi") and command.rows is not None:
            named.update(distinct(command.rows[:, 0]).tolist())
        return {self.submatrices[s].matrix for s in named if s > 0}

    def whole_submatrices(self) -> list[int]:
        """For every matrix the last sub-matrix that is the whole of it."""
        whole = [0] * len(self.matrices)
        sizes = [(matrix.rows, matrix.cols) for matrix in self.matrices]
        for number, (matrix, _, rows, _, cols) in enumerate(self.submatrices):
            if (rows, cols) == sizes[matrix]:
                whole[matrix] = number
        return whole

    def __str__(self) -> str:
        """Matrices and commands in words, see `listing.py`; `to_kaldi` has Kaldi's notation."""
        return readable(self)

    # Kaldi's notation

    def to_kaldi(self) -> str:
        """The computation as Kaldi prints it."""
        lines = self.explicit().commands_to_kaldi()
        return "\n".join([f"{self.preamble_to_kaldi()}# begin forward commands", *lines, ""])

    def preamble_to_kaldi(self) -> str:
        """The matrices and their rows, as Kaldi prints them before the commands."""
        return "\n".join([*self._preamble(), ""])

    def _preamble(self) -> Iterator[str]:
        listed = list(enumerate(self.matrices))[1:]
        yield "matrix " + ", ".join(f"m{i}({m.rows}, {m.cols})" for i, m in listed)
        if any(m.indexes is not None for _, m in listed):
            yield _DEBUG_HEADER
            for i, m in listed:
                shown = "[ ]" if m.indexes is None else ""
                if m.indexes is not None:
                    shown = self.topology.nodes[m.node].name + format_indexes(m.indexes)
                yield f"m{i} == {'deriv' if m.is_deriv else 'value'}: {shown}"

    def commands_to_kaldi(self) -> list[str]:
        """The line of each command, as Kaldi prints it; of an explicit computation, see there."""
        names = self.submatrices_to_kaldi()
        return [
            # Kaldi cuts a line with its newline, hence the 1.
            shorten(f"c{i}: {self._command(command, names)}\n")[:-1]
            for i, command in enumerate(self.commands)
        ]

    def submatrices_to_kaldi(self) -> list[str]:
        """The name of each sub-matrix as Kaldi prints it."""
        return [self._name(i) for i in range(len(self.submatrices))]

    def _name(self, submatrix: int) -> str:
        if not submatrix:
            return "[]"
        s = self.submatrices[submatrix]
        if self.is_whole(submatrix):
            return f"m{s.matrix}"
        return f"m{s.matrix}({s.row}:{s.row + s.rows - 1}, {s.col}:{s.col + s.cols - 1})"

    def _command(self, c: Command, names: list[str]) -> str:
        target, source = names[c.target], names[c.source]
        s = self.submatrices[c.target]
        if c.type == "AllocMatrix":
            return f"{target} = undefined({s.rows},{s.cols})"
        if c.type == "DeallocMatrix":
            return f"{target} = []"
        if c.type == "SwapMatrix":
            return f"{target}.swap({source}) [dim = {s.rows} x {s.cols}]"
        if c.type == "CompressMatrix":
            return f"CompressMatrix({target}, {c.alpha:g}, {c.storage}, true)"
        if c.type == "DecompressMatrix":
            return f"DecompressMatrix({target})"
        if c.type == "SetConst":
            return f"{target}.set({c.alpha:g}) [dim = {s.rows} x {s.cols}];"
        if c.type in ("MatrixCopy", "MatrixAdd"):
            sign = "+=" if c.type == "MatrixAdd" else "="
            scale = "" if c.alpha == 1 else f"{c.alpha:g} * "
            return f"{target} {sign} {scale}{source}"
        if c.type in ("AddRows", "CopyRows"):
            return f"{target}.{c.type}({c.alpha:g}, {source}{format_integers(c.listed())})"
        if c.type.endswith("Multi"):
            return f"{target}.{c.type}({c.alpha:g}, {self._pairs(c.listed())})"
        if c.type == "AddRowRanges":
            pairs = c.listed().tolist()
            shown = ",".join("null" if a == -1 else f"{a}:{b - 1}" for a, b in pairs)
            return f"{target}.AddRowRanges({c.alpha:g}, {source}, [{shown}])"
        return self._node_command(c, names)

    def _node_command(self, c: Command, names: list[str]) -> str:
        if c.type == "GotoLabel":
            return f"goto c{c.step}"
        if c.type in _PLAIN:
            return _PLAIN[c.type]
        node = self.topology.nodes[c.node]
        indexes = f"precomputed_indexes[{c.precomputed}]" if c.precomputed else "NULL"
        if c.type == "Propagate":
            return (
                f"{node.component_name}.Propagate({indexes}, {names[c.source]}, &{names[c.target]})"
            )
        if c.type in ("Backprop", "BackpropNoModelUpdate"):
            values = ", ".join(names[i] for i in c.deriv[:3])
            updates = self.need_model_derivative and c.type == "Backprop"
            model = "[component-pointer]" if updates else "NULL"
            into = f"&{names[c.deriv[3]]}" if c.deriv[3] else "NULL"
            return f"{node.component_name}.Backprop({indexes}, {values}, {model}, {into})"
        if c.type == "AcceptInput":
            return f"{names[c.target]} = user input [for node: '{node.name}']"
        assert c.type == "ProvideOutput"
        return f"output {names[c.target]} to user [for node: '{node.name}']"

    def _pairs(self, rows: np.ndarray) -> str:
        parts = []
        for submatrix, row in rows.tolist():
            if submatrix < 0:
                parts.append("NULL")
                continue
            s = self.submatrices[submatrix]
            cols = ":"
            if s.col or s.cols != self.matrices[s.matrix].cols:
                cols = f"{s.col}:{s.col + s.cols - 1}"
            parts.append(f"m{s.matrix}({row + s.row},{cols})")
        return f"[{','.join(parts)}]"


def without_memory(
    command: Command, matrices: set[int], submatrices: Sequence[SubMatrix]
) -> Command:
    """A command of `OF_MANY` without some matrices; any other command as it is."""
    if command.type not in OF_MANY:
        return command
    rest = [s for s in command.of_many() if submatrices[s][0] not in matrices]
    return command.changed(rows=np.array(rest, int))


def numbered_sources(pairs: np.ndarray | None) -> tuple[list[int], np.ndarray]:
    """The sub-matrices in pairs (sub-matrix, row), and the pairs with these counted from 0."""
    assert pairs is not None
    sources = distinct(pairs[:, 0])
    sources = sources[sources >= 0]
    number = np.full(int(sources[-1]) + 2 if len(sources) else 1, -1)  # the last belongs to -1
    number[sources] = np.arange(len(sources))
    numbered = pairs.copy()
    numbered[:, 0] = number[pairs[:, 0]]
    return sources.tolist(), numbered


_PLAIN = {
    "NoOperation": "[no-op]",
    "NoOperationPermanent": "[no-op-permanent]",
    "NoOperationLabel": "[label for goto statement]",
    "NoOperationMarker": "# computation segment separator [e.g., begin backward commands]",
}
