"""Declarations of the variables of a lowered computation, thousands of them, in their wire form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..framework.desc import STATE, TEMPORARY, VarDesc, make_op, make_var
from ..framework.wire import Heads, delimited
from ..proto import net_pb2 as pb
from .computation import SubMatrix

_VARS = Heads(pb.NetDesc.VARS_FIELD_NUMBER)
_NAME = Heads(VarDesc.NAME_FIELD_NUMBER)


class Declarations:
    """Variables of a NetDesc; names are UTF-8.

    Attributes:
        pieces: their wire form, when joined.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def _add(self, name: bytes, fields: bytes) -> None:
        """A variable from its name and the wire form of the rest of it."""
        head = _NAME[len(name)]
        self.pieces += (_VARS[len(head) + len(name) + len(fields)], head, name, fields)

    def matrix(self, name: bytes, rows: int, cols: int, kind: int = TEMPORARY) -> None:
        """A variable [rows, cols], float32."""
        self._add(name, _matrix(rows, cols, kind))

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
        bases: Sequence[bytes] | Mapping[int, bytes],
        sizes: Sequence[tuple[int, int]] | Mapping[int, tuple[int, int]],
    ) -> list[bytes]:
        """The variables of sub-matrices: views, or the matrix itself where that is the whole.

        Args:
            numbered: sub-matrices and their numbers.
            bases, sizes: by matrix its variable, and its rows and columns.
        """
        names = []
        pieces = self.pieces
        views: dict[int, bytes] = {}
        for number, (matrix, row, rows, col, cols) in numbered:
            name = base = bases[matrix]
            if (rows, cols) != sizes[matrix]:
                view = views.get(matrix)
                if view is None:
                    view = views[matrix] = _view_of(base)
                name = b"%b.s%d" % (base, number)
                fields = _rectangle(row, rows, col, cols)
                length = len(name)
                head = _NAME[length]
                size = len(head) + length + len(view) + len(fields)
                pieces += (_VARS[size], head, name, view, fields)
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


def _view_of(base: bytes) -> bytes:
    """The base of a view. Where a field that holds a message stands twice, both are read as one."""
    view = delimited(VarDesc.View.BASE_FIELD_NUMBER, base)
    return delimited(VarDesc.VIEW_FIELD_NUMBER, view)
