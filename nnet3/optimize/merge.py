"""Merging of matrices: copies that need not be made, and components that run in place.

y = x, or y = f(x) where f may write over its argument: the matrix of y becomes part of x's matrix,
or the other way round. Source: VariableMergingOptimizer in Kaldi's nnet-optimize-utils.h;
`_Merger.allowed` checks its conditions c1 to c7. What a round merges is left alone for the
rest of it, so that nothing has to move before its end.
"""

from __future__ import annotations

import sys
from bisect import bisect_left

from ..compiler.analyze import BACKPROPS, READ, READ_WRITE, WRITE, Access, Analysis, overlap
from ..compiler.command import OF_MANY
from ..compiler.computation import Computation, SubMatrix, without_memory
from ..graph.topology_node import FLAGS
from ..index.spans import Spans
from .options import OptimizeOptions

Candidate = tuple[int, int, int, bool]
_FEW = 32  # accesses that are quicker looked at one by one
_NEVER = sys.maxsize  # after all commands


def merge_variables(computation: Computation, options: OptimizeOptions) -> Computation:
    """In rounds, until nothing is left to merge; a sub-matrix is merged once in a round."""
    merger = _Merger(computation, options)
    while merger.round():
        pass
    return merger.result()


class _Merger:
    """The state of merging.

    Attributes:
        uses: by matrix its accesses, see `Analysis`.
        left, right: whether a target may become part of the source's matrix, and the other way
            round.
        whole: for every sub-matrix whether it is the whole of its matrix.
        candidates: commands, the two sub-matrices that may become one, and whether the command
            falls away then.
        before: the sub-matrices as they were.
        bound: matrices that the caller gives or takes.
        released: by matrix the command that gives up its memory.
        gone: matrices that became parts of others.
        parts: by matrix its sub-matrices.
        dirty: matrix -> the parts of it that were merged in this round, as accesses.
        use_rows, dirty_rows: matrix -> its many accesses in `uses` or `dirty`, by rows.
        moves: matrix -> the other that it becomes a part of by this round, the row and column where
            it begins there, and whether it is all of the other.
        changed: the matrices that were merged in the round before.
    """

    def __init__(self, computation: Computation, options: OptimizeOptions):
        self.before = computation.submatrices
        analysis, computation.analysis = computation.analysis, None  # as it is changed here
        self.computation = computation = computation.copy()
        self.options = options
        self.left = options.allow_left_merge
        self.right = options.allow_right_merge
        self.analysis: Analysis = analysis or Analysis(computation)
        self.analysis.commands = computation.commands
        self.analysis.submatrices = computation.submatrices
        self.submatrices = computation.submatrices
        self.matrices = computation.matrices
        self.uses = self.analysis.of_matrix
        self.dropped = self.analysis.dropped
        self.parts: list[list[int]] = [[] for _ in self.matrices]
        for number, part in enumerate(self.submatrices):
            self.parts[part[0]].append(number)
        sizes = [matrix[:2] for matrix in self.matrices]
        self.whole: list[bool] = [
            (rows, cols) == sizes[matrix] for matrix, _, rows, _, cols in self.submatrices
        ]
        self.of_many: list[int] = []
        self.candidates = self._find_candidates()
        commands = computation.commands
        self.released: dict[int, int] = {}
        for number in self.of_many:
            if commands[number].type == "DeallocMatrices":
                freed = [self.submatrices[s][0] for s in commands[number].of_many()]
                self.released |= dict.fromkeys(freed, number)
        self.bound = self.analysis.accepted | self.analysis.provided
        self.merged: set[int] = set()
        self.dirty: dict[int, list[Access]] = {}
        self.moves: dict[int, tuple[int, int, int, bool]] = {}
        self.use_rows: dict[int, Spans] = {}
        self.dirty_rows: dict[int, Spans] = {}
        self.changed = set(range(len(computation.matrices)))

    def _find_candidates(self) -> list[Candidate]:
        """The candidates; fills `of_many` on the way."""
        submatrices = self.submatrices
        sized = self.analysis.sized
        options = self.options
        nodes = self.computation.topology.nodes
        copies, forward, backward = (
            options.remove_assignments,
            options.propagate_in_place,
            options.backprop_in_place,
        )
        candidates: list[Candidate] = []
        for number, c in enumerate(self.computation.commands):
            kind = c.type
            if kind == "MatrixCopy":
                if copies:
                    candidates.append((number, c.source, c.target, c.alpha == 1))
            elif kind == "Propagate":
                if forward and c.source and nodes[c.node].properties & FLAGS.PROPAGATE_IN_PLACE:
                    candidates.append((number, c.source, c.target, False))
            elif (
                kind in BACKPROPS
                and backward
                and nodes[c.node].properties & FLAGS.BACKPROP_IN_PLACE
            ):
                value_in, value_out, out_deriv, in_deriv = c.deriv
                # In place the command would write over a value that it still reads.
                if in_deriv and not {out_deriv, in_deriv} & {value_in, value_out}:
                    candidates.append((number, out_deriv, in_deriv, False))
            elif kind in OF_MANY:
                self.of_many.append(number)
        if sized:
            return [c for c in candidates if sized.isdisjoint(submatrices[s][0] for s in c[1:3])]
        return candidates

    def round(self) -> bool:
        """Tries candidates once; whether anything was merged.

        What was refused stays so until one of its matrices is merged with another.
        """
        submatrices, whole = self.submatrices, self.whole
        changed, dirty, allowed = self.changed, self.dirty, self.allowed
        left: list[Candidate] = []
        for candidate in self.candidates:
            number, source, target, falls_away = candidate
            a, b = submatrices[source][0], submatrices[target][0]
            whole_a, whole_b = whole[source], whole[target]
            if a == b or not (whole_a or whole_b):
                continue  # nor will it ever be possible
            if (whole_a and a in dirty) or (whole_b and b in dirty):
                left.append(candidate)  # all of a matrix touches what was merged in this round
            elif a in changed or b in changed or a in dirty or b in dirty:
                into_source, into_target = allowed(number, source, target, a, b, falls_away)
                if not (into_source or into_target):
                    left.append(candidate)
                    continue
                self._merge(number, *((source, target) if into_source else (target, source)))
                if falls_away:
                    self.dropped.add(number)
            else:
                left.append(candidate)
        self._move()
        self.candidates = left
        self.changed = set(dirty)
        self.dirty = {}
        self.dirty_rows = {}
        return bool(dirty)

    def allowed(
        self, number: int, source: int, target: int, a: int, b: int, is_copy: bool
    ) -> tuple[bool, bool]:
        """Whether the target may become part of the source's matrix, and the other way round.

        Args:
            a, b: the matrices of source and target.
        """
        matrices = self.matrices
        dirty = self.dirty
        uses_of = self.uses
        never = (False, False)
        whole_a, whole_b = self.whole[source], self.whole[target]
        if a in dirty and self._is_touched(source, dirty[a], _NEVER, self.dirty_rows):
            return never
        if b in dirty and self._is_touched(target, dirty[b], _NEVER, self.dirty_rows):
            return never
        if a in self.bound or b in self.bound:  # each is a matrix of its own
            if not (whole_a and whole_b):
                return never
            # Two arrays of the caller's cannot become one, but an input may become an output.
            for bound in (self.analysis.accepted, self.analysis.provided):
                if a in bound and b in bound:
                    return never
        left, right = whole_b and self.left, whole_a and self.right
        # A part of a wider matrix has gaps between its rows.
        if left and not whole_a and matrices[b].contiguous:
            left = False
        if right and not whole_b and matrices[a].contiguous:
            right = False
        if not (left or right):
            return never
        uses = uses_of[b]
        if uses[0][0] < number and self._is_touched(target, uses, number, self.use_rows):
            return never  # zeroing aside, this must be the first that touches the target
        if uses_of[a][-1][0] > number:
            last = self._last_read(number, source, is_copy)
            if last is None or (last >= 0 and not self._stays_equal(number, target, last)):
                return never
        return left, right

    def _last_read(self, number: int, source: int, is_copy: bool) -> int | None:
        """The last command after a candidate that touches its source; -1: none does.

        None where one does more than a copy can bear, which is that its source is read later.
        """
        uses = self.uses[self.submatrices[source][0]]
        last = -1
        touches_all = self.whole[source]
        if not touches_all and len(uses) > _FEW:
            uses = self._touching(source, uses, bisect_left(uses, (number + 1,)), len(uses))
            touches_all = True
        submatrices = self.submatrices
        _, row, rows, col, cols = submatrices[source]
        row_end, col_end = row + rows, col + cols
        for use, mode, other in reversed(uses):
            if use <= number:
                break
            if last >= 0 and mode == READ:
                continue  # before the last one only writes matter
            if not touches_all:
                _, r, n, c, m = submatrices[other]
                if r >= row_end or row >= r + n or c >= col_end or col >= c + m:
                    continue
            if not is_copy or mode & WRITE:
                return None
            if last < 0:
                last = use
        return last

    def _stays_equal(self, number: int, target: int, last: int) -> bool:
        """Whether the target of a copy is as good as its source up to command `last`."""
        matrix = self.submatrices[target][0]
        if self.released.get(matrix, last + 1) <= last:
            return False
        uses, touches_all = self.uses[matrix], self.whole[target]
        if not touches_all and len(uses) > _FEW:
            begin, end = bisect_left(uses, (number + 1,)), bisect_left(uses, (last + 1,))
            uses = self._touching(target, uses, begin, end)
            touches_all = True
        for use, mode, other in uses:
            if use > last:
                break
            if use > number and mode & WRITE:
                if touches_all or overlap(self.submatrices[other], self.submatrices[target]):
                    return False
        return True

    def _is_touched(
        self, submatrix: int, uses: list[Access], before: int, by_rows: dict[int, Spans]
    ) -> bool:
        """Whether one of some accesses of its matrix, before a command, touches a sub-matrix.

        Args:
            by_rows: where the order by rows of these lists is kept.
        """
        if self.whole[submatrix]:
            return uses[0][0] < before
        if len(uses) > _FEW:
            end = bisect_left(uses, (before,))
            return bool(self._touching(submatrix, uses, 0, end, by_rows))
        submatrices = self.submatrices
        _, row, rows, col, cols = submatrices[submatrix]
        row_end, col_end = row + rows, col + cols
        for number, _, other in uses:  # written out, as it is asked thousands of times
            if number >= before:
                return False
            _, r, n, c, m = submatrices[other]
            if r < row_end and row < r + n and c < col_end and col < c + m:
                return True
        return False

    def _touching(
        self,
        submatrix: int,
        uses: list[Access],
        begin: int,
        end: int,
        by_rows: dict[int, Spans] | None = None,
    ) -> list[Access]:
        """The accesses of its matrix, from `begin` to `end`, that touch a sub-matrix.

        A matrix of all frames has accesses of each: they are looked up by rows.

        Args:
            by_rows: where the order by rows of these lists is kept.
        """
        submatrices = self.submatrices
        by_rows = self.use_rows if by_rows is None else by_rows
        mine = submatrices[submatrix]
        index = by_rows.get(mine[0])
        if index is None:
            index = by_rows[mine[0]] = Spans()
        for i in range(len(index), len(uses)):
            _, r, n, _, _ = submatrices[uses[i][2]]
            index.add(r, r + n)
        near = [uses[i] for i in index.near(mine[1], mine[1] + mine[2]) if begin <= i < end]
        return [use for use in near if overlap(submatrices[use[2]], mine)]

    # Merging

    def _merge(self, number: int, keep: int, drop: int) -> None:
        """Makes the whole matrix `drop` the sub-matrix `keep` of another, after this round."""
        analysis = self.analysis
        matrices = self.matrices
        kept = self.submatrices[keep]
        home = kept[0]
        old = self.submatrices[drop][0]
        if old in self.bound:
            self.bound.add(home)
            if old in analysis.accepted:
                analysis.accepted.add(home)
            if old in analysis.provided:
                analysis.provided.add(home)
                self.released.pop(home, None)
        if matrices[old].contiguous and not matrices[home].contiguous:
            matrices[home] = matrices[home]._replace(contiguous=True)
        dirty = self.dirty
        if home in dirty:
            dirty[home].append((number, READ_WRITE, keep))
        else:
            dirty[home] = [(number, READ_WRITE, keep)]
        dirty[old] = [(number, READ_WRITE, drop)]
        if self.dirty_rows:
            self.dirty_rows.pop(old, None)
        self.merged.add(old)
        self.moves[old] = home, kept[1], kept[3], self.whole[keep]

    def _move(self) -> None:
        """Moves the sub-matrices and accesses of matrices that were merged."""
        submatrices, uses, parts, whole = self.submatrices, self.uses, self.parts, self.whole
        dropped = self.dropped
        homes = set[int]()
        new = tuple.__new__  # a third of the time of SubMatrix(...)
        for old, (home, row, col, is_whole) in self.moves.items():
            mine = parts[old]
            for s in mine:
                _, first, rows, begin, cols = submatrices[s]
                place = home, row + first, rows, col + begin, cols
                submatrices[s] = new(SubMatrix, place)
            if not is_whole:
                for s in mine:
                    whole[s] = False
            parts[home] += mine
            uses[home] += uses[old]
            parts[old], uses[old] = [], []
            homes.add(home)
        for home in homes:
            mine = uses[home] = [use for use in uses[home] if use[0] not in dropped]
            mine.sort()
        if self.use_rows:
            for matrix in (*self.moves, *homes):
                self.use_rows.pop(matrix, None)
        self.moves = {}

    def result(self) -> Computation:
        """The computation without the dropped matrices and commands."""
        computation = self.computation
        idle = {
            "AllocMatrices": self.merged | self.analysis.accepted,
            "DeallocMatrices": self.merged | self.analysis.provided,
        }
        for number in self.of_many:
            c = computation.commands[number]
            computation.commands[number] = without_memory(c, idle[c.type], self.before)
        computation.commands = self.analysis.left()
        computation.analysis = self.analysis
        return computation
