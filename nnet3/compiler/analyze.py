"""Which commands of a computation read and write what: the basis of passes and checker.

Source: Kaldi's nnet-analyze.cc. There matrices are cut into "variables" wherever some sub-matrix
begins or ends; here two sub-matrices are compared as rectangles, and only where all parts of a
matrix matter their union is formed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import compress

import numpy as np

from ..graph.topology_node import FLAGS, TopologyNode
from ..index.indexes import distinct
from .command import Command
from .computation import Computation, SubMatrix

READ, WRITE, READ_WRITE = 1, 2, 3
BACKPROPS = frozenset({"Backprop", "BackpropNoModelUpdate"})
ROWS_MULTI = frozenset({"AddRowsMulti", "CopyRowsMulti", "AddToRowsMulti", "CopyToRowsMulti"})
SIZING = frozenset({"AllocMatrix", "DeallocMatrix", "SwapMatrix"})
BOUNDS = frozenset({"AcceptInput", "ProvideOutput"})
_ON_ROWS = frozenset({"AddRows", "CopyRows"})
_NOTED = BOUNDS | {"AllocMatrix", "SwapMatrix", "SetConst"}
Access = tuple[int, int, int]  # command, READ | WRITE, sub-matrix: sorted, reads come first
Accesses = tuple[tuple[int, int], ...]  # sub-matrix, READ | WRITE


def rows_of(command: Command) -> list[int]:
    """The sub-matrices in a command's pairs (sub-matrix, row)."""
    numbers = distinct(command.listed()[:, 0])
    return numbers[numbers > 0].tolist()


def overlap(a: SubMatrix, b: SubMatrix) -> bool:
    """Whether two sub-matrices of one matrix share an element."""
    # By position: the function is called very often, and mostly the rows differ.
    row, other = a[1], b[1]
    if row >= other + b[2] or other >= row + a[2]:
        return False
    col, other = a[3], b[3]
    return col < other + b[4] and other < col + a[4]


TWO_SIDED = {
    "MatrixCopy": WRITE,
    **dict.fromkeys(("MatrixAdd", "AddRows", "AddRowRanges"), READ_WRITE),
}
"""How commands access their target that read all of their source: most commands do."""


def accesses(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    """The accesses of a command: (sub-matrix, READ, WRITE or both), reads first.

    Taking, giving back and handing on memory are no accesses.
    """
    mode = TWO_SIDED.get(command.type)
    if mode is not None:
        return (command.source, READ), (command.target, mode)
    find = _FINDERS.get(command.type)
    return find(command, nodes) if find else _NONE


def _find_setting(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    return ((command.target, WRITE),)


def _find_rows_copy(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    # For Kaldi the rows that nothing is copied to are read, too.
    partial = bool((command.listed() < 0).any())
    return (command.source, READ), (command.target, READ_WRITE if partial else WRITE)


def _find_from_rows(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    mode = WRITE if command.type == "CopyRowsMulti" else READ_WRITE
    return *((s, READ) for s in rows_of(command)), (command.target, mode)


def _find_to_rows(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    return (command.target, READ), *((s, READ_WRITE) for s in rows_of(command))


def _find_propagate(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    adds = nodes[command.node].properties & FLAGS.PROPAGATE_ADDS
    written = command.target, READ_WRITE if adds else WRITE
    return ((command.source, READ), written) if command.source else (written,)


def _find_backprop(command: Command, nodes: Sequence[TopologyNode]) -> Accesses:
    *read, target = command.deriv
    reads = tuple([(s, READ) for s in read if s])
    if not target:
        return reads
    adds = nodes[command.node].properties & FLAGS.BACKPROP_ADDS
    return *reads, (target, READ_WRITE if adds else WRITE)


_NONE: Accesses = ()
_FINDERS: dict[str, Callable[[Command, Sequence[TopologyNode]], Accesses]] = {
    **dict.fromkeys(("SetConst", "AcceptInput", "DecompressMatrix"), _find_setting),
    "CopyRows": _find_rows_copy,
    **dict.fromkeys(("AddRowsMulti", "CopyRowsMulti"), _find_from_rows),
    **dict.fromkeys(("AddToRowsMulti", "CopyToRowsMulti"), _find_to_rows),
    "Propagate": _find_propagate,
    **dict.fromkeys(BACKPROPS, _find_backprop),
    "CompressMatrix": lambda command, nodes: ((command.target, READ_WRITE),),
    "ProvideOutput": lambda command, nodes: ((command.target, READ),),
}


def _with_gaps(commands: Sequence[Command]) -> set[int]:
    """The numbers of commands on lists of rows that leave out some; all are looked at together."""
    numbers = [number for number, c in enumerate(commands) if c.type in _ON_ROWS]
    if not numbers:
        return set()
    lists = [commands[number].listed() for number in numbers]
    sizes = np.array([len(rows) for rows in lists])
    lowest = np.minimum.reduceat(np.concatenate(lists), np.cumsum(sizes) - sizes)
    return {number for number, low in zip(numbers, lowest.tolist(), strict=True) if low < 0}


def takes_memory(command: Command, s: int) -> bool:
    """Whether a command gives memory to a matrix of which `s` is the whole."""
    return command.target == s and (command.type == "AllocMatrix" or command.type == "SwapMatrix")


class Analysis:
    """The accesses of a computation, by command and by matrix.

    A pass that has one for its result, or only leaves commands out, hands it on (`analyzed`).
    Commands that take or give up the memory of many matrices touch none of them.

    Args:
        computation: may change later; the analysis stays as it is.
        empty: the commands are noted later, in order, by those who use it.

    Attributes:
        commands, submatrices: of the computation, by number.
        listed: for every sub-matrix the accesses of its matrix.
        dropped: the numbers of the commands that were removed since.
        of_matrix: for every matrix its accesses in order, see `accesses`.
        sized: matrices that take or hand on memory by a command of their own.
        zeroed: by matrix, the command that sets it to zero as soon as it has such memory; it is not
            listed among the accesses.
        accepted, provided: matrices of AcceptInput and of ProvideOutput.
    """

    def __init__(self, computation: Computation, empty: bool = False):
        # Not the computation itself, which may hold this: that would be a circle.
        self.commands = computation.commands
        self.submatrices = computation.submatrices
        self.dropped: set[int] = set()
        self.of_matrix: list[list[Access]] = [[] for _ in computation.matrices]
        self.sized: set[int] = set()
        self.zeroed: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.provided: set[int] = set()
        self._nodes = computation.topology.nodes
        self._gaps = _with_gaps(self.commands)
        of_matrix = self.of_matrix
        self.listed = listed = [of_matrix[s[0]] for s in computation.submatrices]
        for number, command in enumerate(() if empty else computation.commands):
            mode = TWO_SIDED.get(command.type)
            if mode is None:
                self.note(number, command)
                continue
            target, source = command.target, command.source
            listed[source].append((number, READ, source))
            listed[target].append((number, mode, target))

    def note(self, number: int, command: Command) -> None:
        """Add the accesses of a command, after the accesses of all before it."""
        kind = command.type
        if kind in _NOTED:
            matrix = self.submatrices[command.target][0]
            if kind == "AcceptInput":
                self.accepted.add(matrix)
            elif kind == "ProvideOutput":
                self.provided.add(matrix)
            elif kind != "SetConst":
                self.sized |= {matrix, self.submatrices[command.source][0]}
            elif command.alpha == 0 and takes_memory(self.commands[number - 1], command.target):
                self.zeroed[matrix] = number
                return
        listed = self.listed
        # The most frequent kinds as in `accesses`, but without a list of their accesses.
        if kind == "Propagate":
            source, target = command.source, command.target
            adds = self._nodes[command.node].properties & FLAGS.PROPAGATE_ADDS
            if source:
                listed[source].append((number, READ, source))
            listed[target].append((number, READ_WRITE if adds else WRITE, target))
            return
        if kind in BACKPROPS:
            value_in, value_out, out_deriv, in_deriv = command.deriv
            if value_in:
                listed[value_in].append((number, READ, value_in))
            if value_out:
                listed[value_out].append((number, READ, value_out))
            if out_deriv:
                listed[out_deriv].append((number, READ, out_deriv))
            if in_deriv:
                adds = self._nodes[command.node].properties & FLAGS.BACKPROP_ADDS
                listed[in_deriv].append((number, READ_WRITE if adds else WRITE, in_deriv))
            return
        if kind == "CopyRows":  # each list is looked at there alone
            mode = READ_WRITE if number in self._gaps else WRITE
            listed[command.source].append((number, READ, command.source))
            listed[command.target].append((number, mode, command.target))
            return
        for s, mode in accesses(command, self._nodes):
            listed[s].append((number, mode, s))

    def left(self) -> list[Command]:
        """The commands that were not removed."""
        remaining = bytearray(b"\x01") * len(self.commands)
        for number in self.dropped:
            remaining[number] = 0
        return list(compress(self.commands, remaining))


def analyzed(computation: Computation) -> Analysis:
    """The analysis that the pass before has handed on, or a new one."""
    return computation.analysis or Analysis(computation)


class Cover:
    """A part of a matrix: for each span of columns some rows, which are the bits of an integer."""

    def __init__(self, cols: int):
        self._edges = [0, cols]  # the first columns of the spans, and the end
        self._rows = [0]

    def _cut(self, col: int) -> int:
        """The span that begins at a column; it is made if there is none."""
        span = bisect_left(self._edges, col)
        if self._edges[span] != col:
            self._edges.insert(span, col)
            self._rows.insert(span, self._rows[span - 1])
        return span

    def add(self, part: SubMatrix) -> None:
        """Add a sub-matrix."""
        _, row, rows, col, cols = part
        begin = self._cut(col) if col else 0
        last = len(self._rows)
        end = col + cols
        end = last if end == self._edges[last] else self._cut(end)
        for span in range(begin, end):
            self._rows[span] |= ((1 << rows) - 1) << row

    def _of(self, part: SubMatrix) -> tuple[int, list[int]]:
        """The rows of a sub-matrix as bits, and the added rows of each span of its columns."""
        _, row, rows, col, cols = part
        begin = bisect_right(self._edges, col) - 1
        return ((1 << rows) - 1) << row, self._rows[begin : bisect_left(self._edges, col + cols)]

    def contains(self, part: SubMatrix) -> bool:
        """Whether all of a sub-matrix was added."""
        rows, added = self._of(part)
        return not any([rows & ~there for there in added])

    def touches(self, part: SubMatrix) -> bool:
        """Whether anything of a sub-matrix was added."""
        rows, added = self._of(part)
        return any([rows & there for there in added])


class Fill:
    """The parts of a matrix that still have the zeros with which it began.

    Args:
        whole: all of the matrix.
    """

    __slots__ = ("_written", "whole")

    def __init__(self, whole: SubMatrix):
        self.whole = whole
        self._written: Cover | None = None

    def shows_in(self, part: SubMatrix) -> bool:
        """Whether a part still has some of them."""
        return not (self._written and self._written.contains(part))

    def is_read(self, part: SubMatrix, mode: int) -> bool | None:
        """Whether the next access reads some of them. False: none is left; None: not yet."""
        if mode & READ and self.shows_in(part):
            return True
        if part == self.whole:
            return False
        self._written = self._written or Cover(self.whole[4])
        if not mode & READ:
            self._written.add(part)
        return None
