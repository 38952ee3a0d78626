"""Merging of matrices: copies that need not be made, and components that run in place.

y = x, or y = f(x) where f may write over its argument: the matrix of y becomes part of that of x,
or that of x part of that of y. Source: VariableMergingOptimizer in Kaldi's nnet-optimize-utils.h,
whose conditions c1 to c7 are those of `_Merger.allowed`. What a round merges is left alone for the
rest of it, so that nothing has to move before its end.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from operator import itemgetter

from ..compiler.analyze import BACKPROPS, READ_WRITE, WRITE, Access, Analysis
from ..compiler.command import OF_MANY, Command
from ..compiler.computation import Computation, SubMatrix, without_memory
from ..graph.topology_node import FLAGS
from ..index.spans import Spans
from .options import OptimizeOptions

Candidate = tuple[int, int, int, bool]
_IN_PLACE = BACKPROPS | {"Propagate"}
_FEW = 32  # accesses that are quicker looked at one by one
_NUMBER_AND_MODE = itemgetter(0, 2)  # of an access: a command reads before it writes


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
        whole: for every sub-matrix whether it is the whole of its matrix.
        candidates: commands, the two sub-matrices that may become one, and whether the command
            falls away then.
        before: the sub-matrices as they were.
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
        self.computation = computation = computation.copy()
        self.options = options
        self.analysis = Analysis(computation)
        self.submatrices, self.matrices = computation.submatrices, computation.matrices
        self.uses, self.dropped = self.analysis.of_matrix, self.analysis.dropped
        self.parts: list[list[int]] = [[] for _ in self.matrices]
        self.whole: list[bool] = []
        sizes = [matrix[:2] for matrix in self.matrices]
        for number, (matrix, _, rows, _, cols) in enumerate(self.submatrices):
            self.parts[matrix].append(number)
            self.whole.append((rows, cols) == sizes[matrix])
        self.candidates = self._find_candidates()
        commands = computation.commands
        self.of_many = [number for number, c in enumerate(commands) if c.type in OF_MANY]
        self.released: dict[int, int] = {}
        for number in self.of_many:
            if commands[number].type == "DeallocMatrices":
                freed = commands[number].of_many()
                self.released.update([(self.submatrices[s][0], number) for s in freed])
        self.gone: set[int] = set()
        self.dirty: dict[int, list[Access]] = {}
        self.moves: dict[int, tuple[int, int, int, bool]] = {}
        self.use_rows: dict[int, Spans] = {}
        self.dirty_rows: dict[int, Spans] = {}
        self.changed = set(range(len(computation.matrices)))

    def _find_candidates(self) -> list[Candidate]:
        submatrices, sized = self.submatrices, self.analysis.sized
        found: list[Candidate] = []
        for number, c in enumerate(self.computation.commands):
            kind = c.type
            if kind == "MatrixCopy":
                if self.options.remove_assignments:
                    found.append((number, c.source, c.target, c.alpha == 1))
            elif kind in _IN_PLACE:
                pair = self._in_place(c)
                if pair is not None:
                    found.append((number, *pair, False))
        if sized:
            found = [c for c in found if sized.isdisjoint(submatrices[s][0] for s in c[1:3])]
        return found

    def _in_place(self, command: Command) -> tuple[int, int] | None:
        """The sub-matrices that a component's command reads and writes and that may be one."""
        options = self.options
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
        submatrices, whole = self.submatrices, self.whole
        changed, dirty, allowed = self.changed, self.dirty, self.allowed
        left = []
        for candidate in self.candidates:
            number, source, target, falls_away = candidate
            a, b = submatrices[source][0], submatrices[target][0]
            if a == b or not (whole[source] or whole[target]):
                continue  # nor will it ever be possible
            if a in changed or b in changed or a in dirty or b in dirty:
                into_source, into_target = allowed(number, source, target, falls_away)
                if into_source or into_target:
                    keep, drop = (source, target) if into_source else (target, source)
                    self._merge(number, keep, drop)
                    if falls_away:
                        self.dropped.add(number)
                    continue
            left.append(candidate)
        self._move()
        self.candidates, self.changed, self.dirty = left, set(dirty), {}
        self.dirty_rows = {}
        return bool(dirty)

    def allowed(self, number: int, source: int, target: int, is_copy: bool) -> tuple[bool, bool]:
        """Whether the target may become part of the source's matrix, and the other way round."""
        options, matrices, dirty, never = self.options, self.matrices, self.dirty, (False, False)
        whole_a, whole_b = self.whole[source], self.whole[target]
        a, b = self.submatrices[source][0], self.submatrices[target][0]
        if a in dirty and self._touching(source, dirty[a], self.dirty_rows):
            return never
        if b in dirty and self._touching(target, dirty[b], self.dirty_rows):
            return never
        for bound in (self.analysis.given, self.analysis.taken):  # each is a matrix of its own
            if a in bound or b in bound:
                if not (whole_a and whole_b) or (a in bound and b in bound):
                    return never
        left = whole_b and options.allow_left_merge
        left = left and (whole_a or not matrices[b].contiguous)
        right = whole_a and options.allow_right_merge
        right = right and (whole_b or not matrices[a].contiguous)
        if not (left or right):
            return never
        uses = self.uses[b]
        if uses[0][0] < number:
            if self._touching(target, uses, self.use_rows, 0, bisect_left(uses, (number,))):
                return never  # zeroing aside, this must be the first that touches the target
        uses = self.uses[a]
        if uses[-1][0] > number:
            begin = bisect_left(uses, (number + 1,))
            later = self._touching(source, uses, self.use_rows, begin)
            if later and not (is_copy and self._stays_equal(number, target, later)):
                return never
        return left, right

    def _stays_equal(self, number: int, target: int, later: list[Access]) -> bool:
        """Whether the target of a copy is as good as its source for what touches that later."""
        matrix, last = self.submatrices[target][0], later[-1][0]
        if any([mode & WRITE for _, _, mode in later]):
            return False
        if self.released.get(matrix, last + 1) <= last:
            return False
        uses = self.uses[matrix]
        begin, end = bisect_left(uses, (number + 1,)), bisect_left(uses, (last + 1,))
        between = self._touching(target, uses, self.use_rows, begin, end)
        return not any([mode & WRITE for _, _, mode in between])

    def _touching(
        self,
        submatrix: int,
        uses: list[Access],
        by_rows: dict[int, Spans],
        begin: int = 0,
        end: int | None = None,
    ) -> list[Access]:
        """Those of some accesses of its matrix, from `begin` to `end`, that touch a sub-matrix.

        Args:
            by_rows: where the order by rows of these lists is kept.
        """
        if self.whole[submatrix] or not uses:
            return uses[begin:end]
        submatrices = self.submatrices
        matrix, row, rows, col, cols = submatrices[submatrix]
        row_end, col_end = row + rows, col + cols
        if len(uses) <= _FEW:
            near = uses[begin:end]
        else:  # a matrix of all frames has accesses of each
            index = by_rows.get(matrix)
            if index is None:
                index = by_rows[matrix] = Spans()
            for i in range(len(index), len(uses)):
                _, r, n, _, _ = submatrices[uses[i][1]]
                index.add(r, r + n)
            last = len(uses) if end is None else end
            near = [uses[i] for i in index.near(row, row_end) if begin <= i < last]
        return [  # written out, as `overlap` would be called thousands of times
            use
            for use in near
            for _, r, n, c, m in (submatrices[use[1]],)
            if r < row_end and row < r + n and c < col_end and col < c + m
        ]

    # Merging

    def _merge(self, number: int, keep: int, drop: int) -> None:
        """Makes the whole matrix `drop` the sub-matrix `keep` of another, behind this round."""
        analysis, matrices, kept = self.analysis, self.matrices, self.submatrices[keep]
        home, old = kept[0], self.submatrices[drop][0]
        if old in analysis.given:
            analysis.given.add(home)
        if old in analysis.taken:
            analysis.taken.add(home)
            self.released.pop(home, None)
        if matrices[old].contiguous and not matrices[home].contiguous:
            matrices[home] = matrices[home]._replace(contiguous=True)
        self.dirty.setdefault(home, []).append((number, keep, READ_WRITE))
        self.dirty[old] = [(number, drop, READ_WRITE)]
        self.dirty_rows.pop(old, None)
        self.gone.add(old)
        self.moves[old] = home, kept[1], kept[3], self.whole[keep]

    def _move(self) -> None:
        """Moves the sub-matrices and accesses of matrices that were merged."""
        submatrices, uses, parts, whole = self.submatrices, self.uses, self.parts, self.whole
        new, homes = partial(tuple.__new__, SubMatrix), set()
        for old, (home, row, col, is_whole) in self.moves.items():
            for s in parts[old]:
                _, first, rows, begin, cols = submatrices[s]
                submatrices[s] = new((home, row + first, rows, col + begin, cols))
                if not is_whole:
                    whole[s] = False
            parts[home] += parts[old]
            uses[home] += uses[old]
            parts[old], uses[old] = [], []
            self.use_rows.pop(old, None)
            homes.add(home)
        for home in homes:
            mine = uses[home] = [use for use in uses[home] if use[0] not in self.dropped]
            mine.sort(key=_NUMBER_AND_MODE)
            self.use_rows.pop(home, None)
        self.moves = {}

    def result(self) -> Computation:
        """The computation without the dropped matrices and commands."""
        computation = self.computation
        idle = {
            "AllocMatrices": self.gone | self.analysis.given,
            "DeallocMatrices": self.gone | self.analysis.taken,
        }
        for number in self.of_many:
            c = computation.commands[number]
            computation.commands[number] = without_memory(c, idle[c.type], self.before)
        computation.commands = self.analysis.left()
        computation.analysis = self.analysis
        return computation
