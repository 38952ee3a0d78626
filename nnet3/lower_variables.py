"""Declarations of the variables of a lowered computation.

There may be thousands. Protobuf copies a message faster than it makes one, so each kind of variable
has a message that is written to and copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..framework.desc import PARAMETER, STATE, TEMPORARY, VarDesc, make_op, set_shape, set_tensor
from ..framework.dtypes import to_pb


class Declarations:
    """Appends variables to those of a net.

    Args:
        variables: of a NetDesc.
    """

    def __init__(self, variables: Any) -> None:
        self._add = variables.add
        self._matrix = VarDesc(dtype=to_pb("float32"), dims=(0, 0), has_dims=True)
        self._matrix_dims = self._matrix.dims
        self._view = VarDesc(dtype=to_pb("float32"), dims=(0, 0), has_dims=True, view={})
        self._view_dims, self._rectangle = self._view.dims, self._view.view
        self._parameter = VarDesc(kind=PARAMETER)
        value = make_op("constant", {}, {"out": "?"}, {"value": np.zeros(0)})
        self._state = VarDesc(kind=STATE, initializer=value)
        self._state_out = self._state.initializer.outputs[0].vars
        self._state_value = self._state.initializer.attrs["value"].tensor

    def matrix(self, name: str, rows: int, cols: int, kind: int = TEMPORARY) -> None:
        """A variable [rows, cols], float32."""
        var, dims = self._matrix, self._matrix_dims
        var.name, var.kind = name, kind
        dims[0], dims[1] = rows, cols
        self._add().CopyFrom(var)

    def view(self, name: str, base: str, row: int, rows: int, col: int, cols: int) -> None:
        """`rows` rows from `row` on and `cols` columns from `col` on of a matrix `base`."""
        var, dims, view = self._view, self._view_dims, self._rectangle
        var.name, view.base = name, base
        dims[0], dims[1] = rows, cols
        view.row_begin, view.row_end = row, row + rows
        view.col_begin, view.col_end = col, col + cols
        self._add().CopyFrom(var)

    def parameter(self, name: str, array: np.ndarray) -> None:
        """A parameter with the shape and dtype of an array."""
        self._array(self._parameter, name, array)

    def state(self, name: str, array: np.ndarray) -> None:
        """A state that begins with the values of an array."""
        self._state_out[0] = name
        set_tensor(self._state_value, array)
        self._array(self._state, name, array)

    def _array(self, var: VarDesc, name: str, array: np.ndarray) -> None:
        var.name, var.dtype = name, to_pb(array.dtype)
        set_shape(var, array.shape)
        self._add().CopyFrom(var)
