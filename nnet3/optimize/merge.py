"""Merging of matrices: copies that need not be made, and components that run in place.

y = x, or y = f(x) where f may write over its argument: the matrix of y becomes part of that of x,
or that of x part of that of y. Source: VariableMergingOptimizer in Kaldi's nnet-optimize-utils.h,
whose conditions c1 to c7 are those of `_Merger.allowed`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from ..analyze import BACKPROPS, Analysis, is_zeroing, overlap
from ..computation import Command, Computation, SubMatrix
from ..topology import FLAGS
from .options import OptimizeOptions

_MERGING = BACKPROPS | {"MatrixCopy", "Propagate"}


def merge_variables(computation: Computation, options: OptimizeOptions) -> Computation:
    """In rounds, until nothing is left to merge; a sub-matrix is merged once in a round."""
    merger = _Merger(computation, options)
    while merger.round():
        pass
    return merger.result()


class _Merger:
    def __init__(self, computation: Computation, options: OptimizeOptions):
        self.computation = computation = computation.copy()
        self.options = options
        self.analysis = Analysis(computation)
        self.dropped: set[int] = set()
        self.dirty: dict[int, list[int]] = {}  # matrix -> its sub-matrices merged in this round
        self.changed = set(range(len(computation.matrices)))  # since the round before
        self.parts: list[list[int]] = [[] for _ in computation.matrices]
        for number, s in enumerate(computation.submatrices):
            self.parts[s.matrix].append(number)
        self.zeroings: set[int] = set()
        self.candidates: list[tuple[int, int, int]] = []  # command, what it reads, what it writes
        for number, command in enumerate(computation.commands):
            if command.type in _MERGING:
                pair = self._pair(command)
                if pair is not None:
                    self.candidates.append((number, *pair))
            elif is_zeroing(command):
                self.zeroings.add(number)

    def _pair(self, command: Command) -> tuple[int, int] | None:
        """What a command reads and writes that could be one."""
        options = self.options
        if command.type == "MatrixCopy":
            return (command.source, command.target) if options.remove_assignments else None
        if command.type == "Propagate" and options.propagate_in_place:
            if self._flags(command) & FLAGS.PROPAGATE_IN_PLACE and command.source:
                return command.source, command.target
        elif command.type in BACKPROPS and options.backprop_in_place:
            value_in, value_out, out_deriv, in_deriv = command.deriv
            if self._flags(command) & FLAGS.BACKPROP_IN_PLACE and in_deriv:
                if not {out_deriv, in_deriv} & {value_in, value_out}:
                    return out_deriv, in_deriv
        return None

    def _flags(self, command: Command) -> int:
        return self.computation.topology.nodes[command.node].properties

    def round(self) -> bool:
        """Tries candidates once; whether anything was merged.

        What was refused stays so until one of its matrices is merged with another.
        """
        submatrices, is_whole = self.computation.submatrices, self.computation.is_whole
        changed, dirty = self.changed, self.dirty
        left = []
        for candidate in self.candidates:
            number, source, target = candidate
            a, b = submatrices[source].matrix, submatrices[target].matrix
            if a == b or not (is_whole(source) or is_whole(target)):
                continue  # nor will it ever be possible
            if a in changed or b in changed or a in dirty or b in dirty:
                into_source, into_target = self.allowed(number, source, target)
                if into_source or into_target:
                    keep, drop = (source, target) if into_source else (target, source)
                    self._merge(number, keep, drop)
                    continue
            left.append(candidate)
        self.candidates, self.changed, self.dirty = left, set(dirty), {}
        return bool(self.changed)

    def _is_dirty(self, part: SubMatrix) -> bool:
        merged = self.dirty.get(part.matrix)
        if merged is None:
            return False
        submatrices = self.computation.submatrices
        return any(overlap(submatrices[s], part) for s in merged)

    def _is_first(self, number: int, part: SubMatrix) -> bool:
        """Whether a command is the first, zeroing aside, that touches a sub-matrix."""
        submatrices = self.computation.submatrices
        for other, s, _ in self.analysis.of_matrix[part.matrix]:
            if other >= number:
                return True
            if other not in self.zeroings and overlap(submatrices[s], part):
                return False
        return True

    def allowed(self, number: int, source: int, target: int) -> tuple[bool, bool]:
        """Whether the target may become part of the source's matrix, and the other way round."""
        computation, analysis, never = self.computation, self.analysis, (False, False)
        a, b = computation.submatrices[source], computation.submatrices[target]
        if self._is_dirty(a) or self._is_dirty(b):
            return never
        whole_a, whole_b = computation.is_whole(source), computation.is_whole(target)
        given, taken = analysis.given, analysis.taken  # each is a matrix of its own
        if (a.matrix in given and b.matrix in given) or (a.matrix in taken and b.matrix in taken):
            return never
        if not (whole_a and whole_b) and (
            a.matrix in given or b.matrix in given or a.matrix in taken or b.matrix in taken
        ):
            return never
        left = self.options.allow_left_merge and whole_b
        right = self.options.allow_right_merge and whole_a
        left &= whole_a or not computation.matrices[b.matrix].contiguous
        right &= whole_b or not computation.matrices[a.matrix].contiguous
        if not (left or right) or not self._is_first(number, b):
            return never
        command = computation.commands[number]
        if command.type == "MatrixCopy" and command.alpha == 1:
            safe = analysis.last_write(source) < number and analysis.last_use(
                source
            ) < analysis.invalidated(number, target)
        else:
            safe = analysis.last_use(source) == number
        return (left, right) if safe else never

    def _merge(self, number: int, keep: int, drop: int) -> None:
        """Makes the whole matrix `drop` the sub-matrix `keep` of another."""
        computation, analysis = self.computation, self.analysis
        commands, submatrices = computation.commands, computation.submatrices
        home, old = submatrices[keep], submatrices[drop].matrix
        command = commands[number]
        if command.type == "MatrixCopy" and command.alpha == 1:
            self._drop(number)
        # Memory is taken and given up once; what the caller gives and takes decides where.
        if analysis.released[old] >= 0:
            self.dropped.add(analysis.released[old])
        elif analysis.released[home.matrix] >= 0:
            self.dropped.add(analysis.released[home.matrix])
            analysis.released[home.matrix] = -1
        given = commands[analysis.allocated[old]].type == "AcceptInput"
        dismissed = home.matrix if given else old
        if analysis.allocated[dismissed] >= 0:
            self.dropped.add(analysis.allocated[dismissed])
        if given:
            analysis.allocated[home.matrix] = analysis.allocated[old]
        listed = analysis.of_matrix[dismissed]
        if listed and listed[0][0] in self.zeroings:
            self._drop(listed[0][0])
        for s in self.parts[old]:
            part = submatrices[s]
            row, col = home.row + part.row, home.col + part.col
            submatrices[s] = SubMatrix(home.matrix, row, part.rows, col, part.cols)
        self.parts[home.matrix] += self.parts[old]
        analysis.of_matrix[home.matrix] += analysis.of_matrix[old]
        analysis.of_matrix[home.matrix].sort()
        analysis.of_matrix[old] = []
        for listed_set in (analysis.given, analysis.taken):
            if old in listed_set:
                listed_set.add(home.matrix)
        if (
            computation.matrices[old].contiguous
            and not computation.matrices[home.matrix].contiguous
        ):
            matrix = computation.matrices[home.matrix]
            computation.matrices[home.matrix] = replace(matrix, contiguous=True)
        self.dirty.setdefault(home.matrix, []).append(keep)

    def _drop(self, number: int) -> None:
        """Takes a command out of the list and of the accesses."""
        self.dropped.add(number)
        submatrices, analysis = self.computation.submatrices, self.analysis
        for s, _ in analysis.of_command[number]:
            listed = analysis.of_matrix[submatrices[s].matrix]
            begin = bisect_left(listed, (number,))
            end = bisect_left(listed, (number + 1,), begin)
            del listed[begin:end]

    def result(self) -> Computation:
        """The computation without what was dropped."""
        computation = self.computation
        computation.commands = [
            command for i, command in enumerate(computation.commands) if i not in self.dropped
        ]
        return computation
