"""Merging of matrices: copies that need not be made, and components that run in place.

y = x, or y = f(x) where f may write over its argument: the matrix of y becomes part of that of x,
or that of x part of that of y. Source: VariableMergingOptimizer in Kaldi's nnet-optimize-utils.h,
whose conditions c1 to c7 are those of `_Merger.allowed`.
"""

from __future__ import annotations

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


def _reads_first(access: Access) -> tuple[int, int]:
    """The order of accesses: a command reads before it writes, in place, too."""
    number, _, mode = access
    return number, mode


class _Merger:
    """The state of merging.

    Attributes:
        whole: for every sub-matrix whether it is the whole of its matrix.
        first, end: for every sub-matrix its first row, and the one behind its last.
        parts: the sub-matrices of every matrix.
        candidates: commands, with what they read and write that could be one.
        dirty: matrix -> its sub-matrices that were merged in this round.
        changed: the matrices that were merged in the round before.
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
        written, read = self._touching(target), self._touching(source)
        if written[0][0] < number:
            return never  # zeroing aside, this must be the first that touches the target
        command = computation.commands[number]
        if command.type == "MatrixCopy" and command.alpha == 1:
            safe = self._stays_equal(number, read, written, self.analysis.released[b])
        else:
            safe = read[-1][0] == number
        return (left, right) if safe else never

    def _touching(self, submatrix: int) -> list[Access]:
        """The accesses that touch a sub-matrix, in order."""
        submatrices, firsts, ends = self.computation.submatrices, self.first, self.end
        mine = submatrices[submatrix]
        uses = self.analysis.of_matrix[mine[0]]
        if self.whole[submatrix]:
            return uses
        first, end = firsts[submatrix], ends[submatrix]
        return [
            use
            for use in uses  # rows first: a matrix that many were merged with has them in turn
            if firsts[use[1]] < end and first < ends[use[1]] and overlap(submatrices[use[1]], mine)
        ]

    def _is_dirty(self, submatrix: int) -> bool:
        """Whether something of a sub-matrix was merged in this round."""
        submatrices = self.computation.submatrices
        mine = submatrices[submatrix]
        merged = self.dirty.get(mine[0])
        return merged is not None and any([overlap(submatrices[s], mine) for s in merged])

    @staticmethod
    def _stays_equal(number: int, read: list[Access], written: list[Access], released: int) -> bool:
        """Whether a copy is as good as its source for all that still touches the source.

        Args:
            number: of the copy.
            read, written: what touches the source, and the target.
            released: the command that gives up the memory of the target, or -1.
        """
        last = read[-1][0]
        for other, _, mode in reversed(read):
            if other <= number:
                break
            if mode & WRITE:
                return False
        if last > number:
            for other, _, mode in reversed(written):
                if other <= number:
                    break
                if mode & WRITE and other <= last:
                    return False
        return not 0 <= released <= last

    # Merging

    def _merge(self, number: int, keep: int, drop: int) -> None:
        """Makes the whole matrix `drop` the sub-matrix `keep` of another."""
        computation, analysis = self.computation, self.analysis
        commands, submatrices, whole = computation.commands, computation.submatrices, self.whole
        (home, row, _, col, _), old = submatrices[keep], submatrices[drop][0]
        uses, dropped = analysis.of_matrix, analysis.dropped
        command = commands[number]
        if command.type == "MatrixCopy" and command.alpha == 1:
            dropped.add(number)
            for s, mode in analysis.of_command[number]:
                uses[submatrices[s][0]].remove((number, s, mode))
        # Memory is taken and given up once; what the caller gives and takes decides where.
        given = old in analysis.given
        dismissed = home if given else old
        for listed, matrix in (
            (analysis.released, old if analysis.released[old] >= 0 else home),
            (analysis.allocated, dismissed),
            (analysis.zeroed, dismissed),
        ):
            if listed[matrix] >= 0:
                dropped.add(listed[matrix])
                listed[matrix] = -1
        if given:
            analysis.allocated[home] = analysis.allocated[old]
        for s in self.parts[old]:
            _, first, rows, begin, cols = submatrices[s]
            submatrices[s] = SubMatrix(home, row + first, rows, col + begin, cols)
            self.first[s] += row
            self.end[s] += row
            whole[s] &= whole[keep]
        self.parts[home] += self.parts[old]
        uses[home] += uses[old]
        uses[home].sort(key=_reads_first)
        uses[old] = []
        for matrices in (analysis.given, analysis.taken):
            if old in matrices:
                matrices.add(home)
        if computation.matrices[old].contiguous and not computation.matrices[home].contiguous:
            computation.matrices[home] = replace(computation.matrices[home], contiguous=True)
        self.dirty.setdefault(home, []).append(keep)

    def result(self) -> Computation:
        """The computation without what was dropped."""
        computation = self.computation
        computation.commands = self.analysis.left()
        computation.analysis = self.analysis
        return computation
