"""Derivatives outside of a range of frames count as zero, and are not computed.

Backpropagation through a recurrent net then goes back, or on, only so far. It must be the first
pass: that what is left out is zero is only true of a computation as it was compiled. Source:
DerivativeTimeLimiter in Kaldi's nnet-optimize-utils.cc.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import OpscopeError
from ..compiler.analyze import BACKPROPS, Analysis, Cover
from ..compiler.command import Command
from ..compiler.computation import Computation, SubMatrix, without_memory
from ..components.base.component import Properties
from ..index.indexes import LazyIndexes, distinct
from .options import MOST, OptimizeOptions


def limit_derivative_times(computation: Computation, options: OptimizeOptions) -> Computation:
    """Leaves out derivatives before `min_deriv_time` and after `max_deriv_time`.

    Raises:
        OpscopeError: the computation does not say what its matrices hold.
    """
    first, last = options.min_deriv_time, options.max_deriv_time
    if options.max_deriv_time_relative != MOST:
        last = options.max_deriv_time_relative + _last_output(computation)
    return _Limiter(computation.copy(), first, last).result


def _last_output(computation: Computation) -> int:
    """The largest t of all outputs."""
    times = [
        int(info.indexes[:, 1].max())
        for command in computation.commands
        if command.type == "ProvideOutput"
        and (info := computation.matrices[computation.submatrices[command.target].matrix])
        and info.indexes is not None
        and not info.is_deriv
    ]
    if not times:
        raise OpscopeError("max_deriv_time_relative: the computation has no output")
    return max(times)


class _Limiter:
    """Attributes: result: the computation. inside: by matrix, bool for each row: in the range."""

    def __init__(self, computation: Computation, first: int, last: int):
        self.result = computation
        self.inside = [np.zeros(0, bool)]
        for number, info in enumerate(computation.matrices[1:], 1):
            if info.indexes is None:
                raise OpscopeError(f"derivative times: nothing is known of the rows of m{number}")
            t = info.indexes[:, 1]
            self.inside.append((t >= first) & (t <= last))
        # Of each matrix the first and the end of the rows that are in the range.
        self.bounds = [(0, 0)]
        for mask in self.inside[1:]:
            rows = np.flatnonzero(mask)
            self.bounds.append((int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0))
        self.mapped = [self._map(s) for s in range(len(computation.submatrices))]
        self.memos: set[int] = set()
        commands = [self._command(command) for command in computation.commands]
        computation.commands = [self._without_memo(c) for c in commands if c is not None]
        self._shorten()

    def _map(self, number: int) -> int:
        """The part of a sub-matrix that is in the range; 0: none is."""
        s = self.result.submatrices[number]
        begin, end = self.bounds[s.matrix]
        begin = max(begin, s.row)
        end = min(end, s.row + s.rows)
        return self.result.new_part(number, begin - s.row, end - begin) if end > begin else 0

    def _deriv(self, number: int) -> int:
        """As `mapped`, where it is a derivative; values stay as they are."""
        s = self.result.submatrices[number]
        return self.mapped[number] if self.result.matrices[s.matrix].is_deriv else number

    def _kept(self, number: int, rows: np.ndarray) -> np.ndarray:
        """Which rows of a sub-matrix are values, or derivatives in the range."""
        s = self.result.submatrices[number]
        if not self.result.matrices[s.matrix].is_deriv:
            return np.ones(len(rows), bool)
        return self.inside[s.matrix][rows + s.row]

    def _cut(self, number: int, mapped: int) -> int:
        """How many rows before its range a sub-matrix has lost."""
        submatrices = self.result.submatrices
        return submatrices[mapped].row - submatrices[number].row

    # Commands

    def _command(self, command: Command) -> Command | None:
        kind = command.type
        if kind == "Propagate" and not self.mapped[command.target]:
            return command.changed(store_stats=False)
        if kind in BACKPROPS:
            return self._backprop(command)
        if kind in ("MatrixCopy", "MatrixAdd"):
            return self._matrix(command)
        if kind in ("CopyRows", "AddRows"):
            return self._rows(command)
        if kind.endswith("Multi"):
            return self._rows_multi(command)
        if kind == "AddRowRanges":
            return self._ranges(command)
        return command

    def _without_memo(self, command: Command) -> Command:
        if command.type == "Propagate" and command.step in self.memos:
            return command.changed(use_memo=False)
        return command

    def _backprop(self, command: Command) -> Command | None:
        flags = self.result.topology.nodes[command.node].component.properties
        if not flags & Properties.SIMPLE:
            return command
        deriv = tuple(self.mapped[s] for s in command.deriv)
        if not deriv[2]:
            self.memos.add(command.step)
            return None
        if flags & (Properties.USES_MEMO | Properties.RANDOM):
            return command  # its statistics are of all rows
        return command.changed(deriv=deriv)

    def _matrix(self, command: Command) -> Command | None:
        target, source = self._deriv(command.target), self._deriv(command.source)
        if not target or not source:
            return None
        submatrices = self.result.submatrices
        rows = submatrices[command.target].rows
        pairs = ((command.target, target), (command.source, source))
        begin = max(self._cut(old, new) for old, new in pairs)
        end = min(self._cut(old, new) + submatrices[new].rows for old, new in pairs)
        if end <= begin:
            return None
        if (begin, end) == (0, rows):
            return command
        target, source = (self.result.new_part(old, begin, end - begin) for old, _ in pairs)
        return command.changed(target=target, source=source)

    def _rows(self, command: Command) -> Command | None:
        target, source = self._deriv(command.target), self._deriv(command.source)
        if not target or not source:
            return None
        begin = self._cut(command.target, target)
        count = self.result.submatrices[target].rows
        rows = command.listed()[begin : begin + count]
        kept = rows >= 0
        kept[kept] = self._kept(command.source, rows[kept])
        kept &= self._kept(target, np.arange(count))
        if not kept.any():
            return None
        rows = np.where(kept, rows - self._cut(command.source, source), -1).astype(np.int32)
        return command.changed(target=target, source=source, rows=rows)

    def _rows_multi(self, command: Command) -> Command | None:
        target = self._deriv(command.target)
        if not target:
            return None
        begin = self._cut(command.target, target)
        count = self.result.submatrices[target].rows
        pairs = command.listed()[begin : begin + count].copy()
        own = self._kept(target, np.arange(count))
        for sub in distinct(pairs[:, 0]).tolist():
            if sub < 0:
                continue
            mine = np.flatnonzero(pairs[:, 0] == sub)
            kept = own[mine] & self._kept(sub, pairs[mine, 1])
            pairs[mine[~kept]] = -1
            if kept.any():
                mapped = self._deriv(sub)
                pairs[mine[kept], 0] = mapped
                pairs[mine[kept], 1] -= self._cut(sub, mapped)
        if (pairs[:, 0] < 0).all():
            return None
        return command.changed(target=target, rows=pairs)

    def _ranges(self, command: Command) -> Command | None:
        target, source = self._deriv(command.target), self._deriv(command.source)
        if not target or not source:
            return None
        begin = self._cut(command.target, target)
        count = self.result.submatrices[target].rows
        ranges = command.listed()[begin : begin + count]
        length = self.result.submatrices[command.source].rows
        kept = np.flatnonzero(self._kept(command.source, np.arange(length)))
        # The first kept row from the beginning of a range on, and the last before its end.
        low = np.searchsorted(kept, ranges[:, 0])
        high = np.searchsorted(kept, ranges[:, 1])
        real = (ranges[:, 0] >= 0) & (high > low) & self._kept(target, np.arange(count))
        if not real.any():
            return None
        result = np.full(ranges.shape, -1, np.int32)
        cut = self._cut(command.source, source)
        result[real, 0] = kept[low[real]] - cut
        result[real, 1] = kept[high[real] - 1] + 1 - cut
        return command.changed(target=target, source=source, rows=result)

    # Matrices

    def _shorten(self) -> None:
        """Cut derivatives to the range where no command reads the other rows."""
        computation = self.result
        analysis = Analysis(computation)
        idle = set()
        for number, info in enumerate(computation.matrices):
            begin, end = self.bounds[number]
            if not info.is_deriv or number in analysis.accepted | analysis.provided:
                continue
            uses = [
                computation.submatrices[s]
                for command, _, s in analysis.of_matrix[number]
                if computation.commands[command].type != "SetConst"
            ]
            if end == begin and not uses:
                idle.add(number)
            elif 0 < end - begin < info.rows and self._only_inside(number, uses):
                self._cut_matrix(number, begin, end)
        if idle:
            computation.commands = [
                without_memory(c, idle, computation.submatrices)
                for c in computation.commands
                if computation.submatrices[c.target].matrix not in idle
            ]

    def _only_inside(self, number: int, uses: list[SubMatrix]) -> bool:
        info = self.result.matrices[number]
        begin, end = self.bounds[number]
        outside = [
            SubMatrix(number, 0, begin, 0, info.cols),
            SubMatrix(number, end, info.rows - end, 0, info.cols),
        ]
        used = Cover(info.cols)
        for use in uses:
            used.add(use)
        return not any(map(used.touches, outside))

    def _cut_matrix(self, number: int, begin: int, end: int) -> None:
        computation = self.result
        info = computation.matrices[number]
        indexes = info.rows_named()[begin:end]
        listed = LazyIndexes(end - begin, 0, lambda: indexes)
        computation.matrices[number] = info._replace(rows=end - begin, listed=listed)
        for s, part in enumerate(computation.submatrices):
            if part.matrix != number:
                continue
            first = max(part.row, begin)
            last = min(part.row + part.rows, end)
            # What lies outside is used by nothing.
            rows = max(last - first, 1)
            computation.submatrices[s] = part._replace(row=max(first - begin, 0), rows=rows)
