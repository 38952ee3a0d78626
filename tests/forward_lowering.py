"""Lowers the forward part of a computation to operators without views, for comparisons.

Each variable is written once, so the generic backward pass differentiates the list:
`PlainNet.add_backward_ops` appends the gradients. The tests compare these gradients with those of
the compiled backward part. Every write to columns of a matrix makes a new variable; a matrix is
remembered as columns of variables, which a reader cuts and joins (`slice`, `concat`). Inputs,
outputs and parameters have the same names as in `lower_commands`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opscope.framework.base.errors import OpscopeError
from opscope.framework.ir.op_list import OpList
from opscope.nnet3.compiler.computation import Command, Computation, SubMatrix, numbered_sources
from opscope.nnet3.lower.commands import Lowering, int_tensor


def lower_forward(computation: Computation, name: str = "forward") -> OpList:
    """The differentiable net of the forward part.

    Args:
        computation: as the compiler makes it, before any optimization.

    Raises:
        OpscopeError: a command uses some rows of a matrix only, as optimized ones do.
    """
    return _ForwardLowering(computation.explicit(), name).net


class _Piece(NamedTuple):
    """Columns of a matrix that are columns of a variable, from `offset` on; zeros if it is ''."""

    begin: int
    end: int
    variable: str
    offset: int


class _ForwardLowering(Lowering):
    def _lower(self) -> None:
        self.cuts: dict[tuple[str, int, int], str] = {}
        self.width: dict[str, int] = {}
        self.pieces = [[_Piece(0, m.cols, "", 0)] for m in self.computation.matrices]
        self.given = {
            matrix: (name, kind) for matrix, (name, kind) in self._io_of_matrices().items()
        }
        methods = {command_type: getattr(self, name) for command_type, name in _METHODS.items()}
        for command in self.computation.commands:
            if command.type == "NoOperationMarker":
                break
            if command.type in methods:
                methods[command.type](command)

    # Columns

    def _name(self, cols: int) -> str:
        """The name of a new variable of so many columns."""
        name = f"v{len(self.width) + 1}"
        self.width[name] = cols
        return name

    def _put(self, target: SubMatrix, variable: str) -> None:
        """From now on the columns of a sub-matrix are those of a variable; '': zeros."""
        self._check(target)
        new = _Piece(target.col, target.col + target.cols, variable, 0)
        kept = []
        for piece in self.pieces[target.matrix]:
            if piece.begin < new.begin:
                kept.append(piece._replace(end=min(piece.end, new.begin)))
            if piece.end > new.end:
                begin = max(piece.begin, new.end)
                offset = piece.offset + begin - piece.begin
                kept.append(_Piece(begin, piece.end, piece.variable, offset))
        self.pieces[target.matrix] = sorted([*kept, new])

    def _check(self, s: SubMatrix) -> None:
        if s.rows != self.computation.matrices[s.matrix].rows:
            raise OpscopeError("an optimized computation has no forward part without views")

    def _get(self, source: SubMatrix) -> str:
        """A variable with the value of a sub-matrix."""
        self._check(source)
        begin, end = source.col, source.col + source.cols
        parts = []
        for piece in self.pieces[source.matrix]:
            first, last = max(piece.begin, begin), min(piece.end, end)
            if first < last:
                offset = piece.offset + first - piece.begin
                parts.append(self._cut(piece.variable, offset, offset + last - first, source.rows))
        if len(parts) == 1:
            return parts[0]
        name = self._name(source.cols)
        self._op("concat", {"x": parts}, name, {"axis": 1})
        self._put(source, name)
        return name

    def _cut(self, variable: str, begin: int, end: int, rows: int) -> str:
        """A variable with some columns of another."""
        if variable and end - begin == self.width[variable]:
            return variable
        key = (variable, begin, end) if variable else ("", rows, end - begin)
        if key not in self.cuts:
            name = self.cuts[key] = self._name(end - begin)
            if variable:
                attrs = {"axes": [1], "starts": [begin], "ends": [end]}
                self._op("slice", {"x": variable}, name, attrs)
            else:
                attrs = {"shape": [rows, end - begin], "value": 0.0}
                self._op("fill_constant", {}, name, attrs)
        return self.cuts[key]

    def _is_zero(self, target: SubMatrix) -> bool:
        end = target.col + target.cols
        return not any(
            piece.variable
            for piece in self.pieces[target.matrix]
            if piece.begin < end and piece.end > target.col
        )

    # Commands

    def _fill(self, c: Command) -> None:
        target = self.computation.submatrices[c.target]
        name = self._name(target.cols) if c.alpha else ""
        if name:
            attrs = {"shape": [target.rows, target.cols], "value": float(c.alpha)}
            self._op("fill_constant", {}, name, attrs)
        self._put(target, name)

    def _accept(self, c: Command) -> None:
        target = self.computation.submatrices[c.target]
        name, kind = self.given[target.matrix]
        self.width[name] = target.cols
        self._put(target, name)
        self.variables.matrix(name, target.rows, target.cols, kind)

    def _provide(self, c: Command) -> None:
        source = self.computation.submatrices[c.target]
        name, kind = self.given[source.matrix]
        self.variables.matrix(name, source.rows, source.cols, kind)
        self._op("assign", {"x": self._get(source)}, name, {})

    def _matrix(self, c: Command) -> None:
        value = self._get(self.computation.submatrices[c.source])
        target = self.computation.submatrices[c.target]
        if c.alpha != 1:
            scaled = self._name(target.cols)
            self._op("scale", {"x": value}, scaled, {"scale": float(c.alpha)})
            value = scaled
        self._add(target, value, copy=c.type == "MatrixCopy")

    def _rows(self, c: Command) -> None:
        value = self._get(self.computation.submatrices[c.source])
        self._take(c, value, np.asarray(c.rows), copy=c.type == "CopyRows")

    def _rows_multi(self, c: Command) -> None:
        """The rows of all matrices, one below the other."""
        numbers, pairs = numbered_sources(c.rows)
        sources = [self.computation.submatrices[number] for number in numbers]
        starts = np.cumsum([0] + [s.rows for s in sources])
        rows = np.where(pairs[:, 0] >= 0, starts[pairs[:, 0]] + pairs[:, 1], -1)
        name = self._name(sources[0].cols)
        self._op("concat", {"x": [self._get(s) for s in sources]}, name, {"axis": 0})
        self._take(c, name, rows, copy=c.type == "CopyRowsMulti")

    def _take(self, c: Command, value: str, rows: np.ndarray, copy: bool) -> None:
        target = self.computation.submatrices[c.target]
        taken = self._name(target.cols)
        attrs = {"alpha": float(c.alpha), "rows": int_tensor(rows)}
        self._op("nnet3.copy_rows", {"x": value}, taken, attrs)
        self._add(target, taken, copy)

    def _add(self, target: SubMatrix, value: str, copy: bool) -> None:
        """Add a variable to the columns of a sub-matrix, or set them."""
        if not copy and not self._is_zero(target):
            total = self._name(target.cols)
            self._op("add", {"x": self._get(target), "y": value}, total, {})
            value = total
        self._put(target, value)

    def _propagate(self, c: Command) -> None:
        component, indexes, rows = self._component(c, c.target)
        source = self._get(self.computation.submatrices[c.source]) if c.source else ""
        target = self.computation.submatrices[c.target]
        out = self._name(target.cols)
        options = {"prefix": f"step{c.step}", "indexes": indexes, "rows": rows}
        component.ops.propagate(self.ops, source, out, **options)
        self._put(target, out)


_METHODS = {
    "SetConst": "_fill",
    "AcceptInput": "_accept",
    "ProvideOutput": "_provide",
    "MatrixCopy": "_matrix",
    "MatrixAdd": "_matrix",
    "CopyRows": "_rows",
    "AddRows": "_rows",
    "CopyRowsMulti": "_rows_multi",
    "AddRowsMulti": "_rows_multi",
    "Propagate": "_propagate",
}
