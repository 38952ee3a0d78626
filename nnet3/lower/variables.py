"""Declarations of the variables of a lowered computation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...framework.ir.desc import STATE, TEMPORARY, make_op, make_var
from ...framework.ir.op_list import VarDecl, View
from ..compiler.computation import SubMatrix

Matrix = tuple[str, int, int]
"""The variable of a matrix: its name, rows and columns."""
_FLOAT = np.dtype(np.float32)


class Declarations:
    """Variables of a net.

    Attributes:
        vars: in the order in which they were declared.
    """

    def __init__(self) -> None:
        self.vars: list[VarDecl] = []

    def matrix(self, name: str, rows: int, cols: int, kind: int = TEMPORARY) -> Matrix:
        """A variable [rows, cols], float32."""
        self.vars.append(VarDecl(name, (rows, cols), _FLOAT, kind))
        return name, rows, cols

    def array(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype, kind: int = TEMPORARY
    ) -> None:
        """A variable of any shape and dtype."""
        self.vars.append(VarDecl(name, shape, dtype, kind))

    def state(self, name: str, array: np.ndarray) -> None:
        """A state whose initial value is an array."""
        value = make_op("constant", {}, {"out": name}, {"value": array})
        self.vars.append(make_var(name, array.shape, array.dtype, STATE, initializer=value))

    def views(
        self,
        numbered: Iterable[tuple[int, SubMatrix]],
        matrices: Sequence[Matrix] | Mapping[int, Matrix],
    ) -> list[str]:
        """The variables of sub-matrices: views, or the matrix's own variable for a whole matrix.

        Args:
            numbered: sub-matrices and their numbers.
            matrices: the variables of their matrices, by number.
        """
        names = []
        declared = self.vars
        new = tuple.__new__  # in half the time of a call
        for number, (matrix, row, rows, col, cols) in numbered:
            name, height, width = matrices[matrix]
            if rows != height or cols != width:
                view = new(View, (name, row, row + rows, col, col + cols))
                name = f"{name}.s{number}"
                shape = rows, cols
                declared.append(VarDecl(name, shape, _FLOAT, TEMPORARY, None, None, False, view))
            names.append(name)
        return names


def first_value(state: VarDecl) -> np.ndarray:
    """The initial value of a state of a lowered computation; callers must not change it."""
    assert state.initializer is not None
    return state.initializer.attrs["value"]
