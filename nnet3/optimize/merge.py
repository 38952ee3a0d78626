"""Merging of matrices: copies that need not be made, and components that run in place.

y = x, or y = f(x) where f may write over its argument: the matrix of y becomes part of that of x,
or that of x part of that of y. Source: VariableMergingOptimizer in Kaldi's nnet-optimize-utils.h,
whose conditions c1 to c7 are those of `_Merger.allowed`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..analyze import BACKPROPS, WRITE, Access, Analysis, overlap
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
    """The state of merging.

    Attributes:
        whole: for every sub-matrix whether it is the whole of its matrix.
        first, end: for every sub-matrix its first row, and the one behind its last.
        parts: the sub-matrices of every matrix.
        candidates: commands, with what they read and write that could be one.
        dirty: matrix -> its sub-matrices that were merged in this round.
        changed: the matrices that were merged in the round before.
        dropped: commands that fall away.
    """

    def __init__(self, computation: Computation, options: OptimizeOptions):
        self.computation = computation = computation.copy()
        self.options = options
        self.analysis = Analysis(computation)
        submatrices = computation.submatrices
        self.whole = computation.wholes()
        self.first = [s[1] for s in submatrices]
        self.end = [s[1] + s[2] for s in submatrices]
        self.parts: list[list[int]] = [[] for _ in computation.matrices]
        for number, s in enumerate(submatrices):
            self.parts[s[0]].append(number)
        self.candidates: list[tuple[int, int, int]] = []
        for number, command in enumerate(computation.commands):
            if command.type in _MERGING:
                pair = self._pair(command)
                if pair is not None:
                    self.candidates.append((number, *pair))
        self.dirty: dict[int, list[int]] = {}
        self.changed = set(range(len(computation.matrices)))
        self.dropped: set[int] = set()

    def _pair(self, command: Command) -> tuple[int, int] | None:
        """What a command reads and writes that could be one."""
        options = self.options
        if command.type == "MatrixCopy":
            return (command.source, command.target) if options.remove_assignments else None
        flags = self.computation.topology.nodes[command.node].properties
        if command.type == "Propagate":
            if options.propagate_in_place and flags & FLAGS.PROPAGATE_IN_PLACE and command.source:
                return command.source, command.target
        elif options.backprop_in_place and flags & FLAGS.BACKPROP_IN_PLACE:
            value_in, value_out, out_deriv, in_deriv = command.deriv
            if in_deriv and not {out_deriv, in_deriv} & {value_in, value_out}:
                return out_deriv, in_deriv
        return None

    def round(self) -> bool:
        """Tries candidates once; whether anything was merged.

        What was refused stays so until one of its matrices is merged with another.
        """
        submatrices, whole = self.computation.submatrices, self.whole
        changed, dirty = self.changed, self.dirty
        left = []
        for candidate in self.candidates:
            number, source, target = candidate
            a, b = submatrices[source][0], submatrices[target][0]
            if a == b or not (whole[source] or whole[target]):
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

    def allowed(self, number: int, source: int, target: int) -> tuple[bool, bool]:
        """Whether the target may become part of the source's matrix, and the other way round."""
        computation, options, never = self.computation, self.options, (False, False)
        whole_a, whole_b = self.whole[source], self.whole[target]
        a, b = computation.submatrices[source][0], computation.submatrices[target][0]
        given, taken = self.analysis.given, self.analysis.taken  # each is a matrix of its own
        if (a in given and b in given) or (a in taken and b in taken):
            return never
        if not (whole_a and whole_b) and (a in given or b in given or a in taken or b in taken):
            return never
        left = options.allow_left_merge and whole_b
        right = options.allow_right_merge and whole_a
        left &= whole_a or not computation.matrices[b].contiguous
        right &= whole_b or not computation.matrices[a].contiguous
        if not (left or right) or self._is_dirty(source) or self._is_dirty(target):
            return never
        if not self._is_first(number, target):
            return never
        command = computation.commands[number]
        if command.type == "MatrixCopy" and command.alpha == 1:
            safe = self._stays_equal(number, source, target)
        else:
            safe = self._is_last(number, source)
        return (left, right) if safe else never

    # What else touches a sub-matrix

    def _uses(self, submatrix: int) -> list[Access]:
        """The accesses of its matrix."""
        return self.analysis.of_matrix[self.computation.submatrices[submatrix][0]]

    def _touching(self, submatrix: int, uses: Iterable[Access]) -> Iterator[Access]:
        """Those of the accesses of its matrix that touch a sub-matrix."""
        if self.whole[submatrix]:
            yield from uses
            return
        submatrices, firsts, ends = self.computation.submatrices, self.first, self.end
        mine, first, end = submatrices[submatrix], firsts[submatrix], ends[submatrix]
        for use in uses:
            s = use[1]
            # Rows are looked at first: a matrix that many were merged with has them one by one.
            if firsts[s] < end and first < ends[s] and overlap(submatrices[s], mine):
                yield use

    def _is_dirty(self, submatrix: int) -> bool:
        """Whether something of a sub-matrix was merged in this round."""
        submatrices = self.computation.submatrices
        mine = submatrices[submatrix]
        merged = self.dirty.get(mine[0])
        return merged is not None and any(overlap(submatrices[s], mine) for s in merged)

    def _is_first(self, number: int, submatrix: int) -> bool:
        """Whether a command is the first, zeroing aside, that touches a sub-matrix."""
        for other, _, _ in self._touching(submatrix, self._uses(submatrix)):
            return other >= number
        return True

    def _is_last(self, number: int, submatrix: int) -> bool:
        """Whether a command is the last that touches a sub-matrix."""
        for other, _, _ in self._touching(submatrix, reversed(self._uses(submatrix))):
            return other == number
        return False

    def _stays_equal(self, number: int, source: int, target: int) -> bool:
        """Whether a copy is as good as its source for all that still touches the source."""
        last = number
        for other, _, mode in self._touching(source, reversed(self._uses(source))):
            if other <= number:
                break
            if mode & WRITE:
                return False
            last = max(last, other)
        if last == number:
            return True
        uses = self._uses(target)
        behind = uses[bisect_left(uses, (number + 1,)) :]
        for other, _, mode in self._touching(target, behind):
            if other > last:
                break
            if mode & WRITE:
                return False
        return not 0 <= self.analysis.released[self.computation.submatrices[target][0]] <= last

    # Merging

    def _merge(self, number: int, keep: int, drop: int) -> None:
        """Makes the whole matrix `drop` the sub-matrix `keep` of another."""
        computation, analysis = self.computation, self.analysis
        commands, submatrices, whole = computation.commands, computation.submatrices, self.whole
        (home, row, _, col, _), old = submatrices[keep], submatrices[drop][0]
        command = commands[number]
        if command.type == "MatrixCopy" and command.alpha == 1:
            self._drop(number)
        # Memory is taken and given up once; what the caller gives and takes decides where.
        if analysis.released[old] >= 0:
            self.dropped.add(analysis.released[old])
        elif analysis.released[home] >= 0:
            self.dropped.add(analysis.released[home])
            analysis.released[home] = -1
        given = commands[analysis.allocated[old]].type == "AcceptInput"
        dismissed = home if given else old
        if analysis.allocated[dismissed] >= 0:
            self.dropped.add(analysis.allocated[dismissed])
        if given:
            analysis.allocated[home] = analysis.allocated[old]
        if analysis.zeroed[dismissed] >= 0:
            self.dropped.add(analysis.zeroed[dismissed])
            analysis.zeroed[dismissed] = -1
        for s in self.parts[old]:
            _, first, rows, begin, cols = submatrices[s]
            submatrices[s] = SubMatrix(home, row + first, rows, col + begin, cols)
            self.first[s] += row
            self.end[s] += row
            whole[s] &= whole[keep]
        self.parts[home] += self.parts[old]
        analysis.of_matrix[home] += analysis.of_matrix[old]
        analysis.of_matrix[home].sort()
        analysis.of_matrix[old] = []
        for matrices in (analysis.given, analysis.taken):
            if old in matrices:
                matrices.add(home)
        if computation.matrices[old].contiguous and not computation.matrices[home].contiguous:
            computation.matrices[home] = replace(computation.matrices[home], contiguous=True)
        self.dirty.setdefault(home, []).append(keep)

    def _drop(self, number: int) -> None:
        """Takes a command out of the list and of the accesses."""
        self.dropped.add(number)
        submatrices, analysis = self.computation.submatrices, self.analysis
        for s, _ in analysis.of_command[number]:
            listed = analysis.of_matrix[submatrices[s][0]]
            begin = bisect_left(listed, (number,))
            end = bisect_left(listed, (number + 1,), begin)
            del listed[begin:end]

    def result(self) -> Computation:
        """The computation without what was dropped."""
        computation, dropped = self.computation, self.dropped
        computation.commands = [
            command for i, command in enumerate(computation.commands) if i not in dropped
        ]
        return computation
