"""Declarations of the variables of a lowered computation, thousands of them, in their wire form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...framework.ir.desc import STATE, TEMPORARY, VarDesc, make_op, make_var
from ...framework.ir.wire import Heads, delimited
from ...proto import net_pb2 as pb
from ..compile.computation import SubMatrix

Matrix = tuple[bytes, int, int, bytes]
"""The variable of a matrix: its name, rows and columns, and what all views of it have in common, in
the wire form."""
_VARS = Heads(pb.NetDesc.VARS_FIELD_NUMBER)
_NAME = Heads(VarDesc.NAME_FIELD_NUMBER)
_VIEW = Heads(VarDesc.VIEW_FIELD_NUMBER)
_BASE = Heads(VarDesc.View.BASE_FIELD_NUMBER)
_MOST_KEPT = 1 << 12


class _Begins(dict[tuple[int, int], bytes]):
    """What stands before the name of a variable, by the lengths of the name and of the rest."""

    def __missing__(self, lengths: tuple[int, int]) -> bytes:
        name, rest = lengths
        head = _NAME[name]
        begin = _VARS[len(head) + name + rest] + head
        if len(self) < _MOST_KEPT:
            self[lengths] = begin
        return begin


_BEGINS = _Begins()


class Declarations:
    """Variables of a NetDesc; names are UTF-8.

    Attributes:
        pieces: their wire form, when joined.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def _add(self, name: bytes, fields: bytes) -> None:
        """A variable from its name and the wire form of the rest of it."""
        self.pieces += (_BEGINS[len(name), len(fields)], name, fields)

    def matrix(self, name: bytes, rows: int, cols: int, kind: int = TEMPORARY) -> Matrix:
        """A variable [rows, cols], float32."""
        self._add(name, _matrix(rows, cols, kind))
        # Where a field that holds a message stands twice, both are read as one.
        base = _BASE[len(name)] + name
        return name, rows, cols, _VIEW[len(base)] + base

    def array(self, name: bytes, shape: Sequence[int], dtype: Any, kind: int = TEMPORARY) -> None:
        """A variable of any shape and dtype."""
        self._add(name, _array(tuple(shape), dtype, kind))

    def state(self, name: str, array: np.ndarray) -> None:
        """A state that begins with the values of an array."""
        value = make_op("constant", {}, {"out": name}, {"value": array})
        var = make_var(name, array.shape, array.dtype, STATE, initializer=value)
        self.pieces.append(delimited(pb.NetDesc.VARS_FIELD_NUMBER, var.SerializeToString()))

    def parts(
        self,
        numbered: Iterable[tuple[int, SubMatrix]],
        matrices: Sequence[Matrix] | Mapping[int, Matrix],
    ) -> list[bytes]:
        """The variables of sub-matrices: views, or the matrix itself where that is the whole.

        Args:
            numbered: sub-matrices and their numbers.
            matrices: those that they are parts of, by number.
        """
        names, pieces = [], self.pieces
        for number, (matrix, row, rows, col, cols) in numbered:
            name, height, width, view = matrices[matrix]
            if rows != height or cols != width:
                name = b"%b.s%d" % (name, number)
                fields = _rectangle(row, rows, col, cols)
                begin = _BEGINS[len(name), len(view) + len(fields)]
                pieces += (begin, name, view, fields)
            names.append(name)
        return names


@lru_cache(maxsize=4096)
def _array(shape: tuple[int, ...], dtype: Any, kind: int) -> bytes:
    """All fields of a variable but for its name."""
    return make_var("", shape, dtype, kind).SerializeToString()


@lru_cache(maxsize=4096)
def _matrix(rows: int, cols: int, kind: int) -> bytes:
    return _array((rows, cols), "float32", kind)


@lru_cache(maxsize=4096)
def _rectangle(row: int, rows: int, col: int, cols: int) -> bytes:
    """All fields of a view but for its name and base."""
    view = VarDesc.View(row_begin=row, row_end=row + rows, col_begin=col, col_end=col + cols)
    return make_var("", (rows, cols), view=view).SerializeToString()
