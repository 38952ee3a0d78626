"""Declarations of the variables of a lowered computation.

There may be thousands. Protobuf copies a message faster than it makes one, so each kind of variable
has a message that is written to and copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..framework.desc import STATE, TEMPORARY, VarDesc, make_op, set_shape, set_tensor
from ..framework.dtypes import to_pb
from .computation import SubMatrix


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
        self._array = VarDesc(has_dims=True)
        self._array_dims = self._array.dims
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

    def parts(
        self,
        numbered: Iterable[tuple[int, SubMatrix]],
        bases: Sequence[str] | Mapping[int, str],
        sizes: Sequence[tuple[int, int]] | Mapping[int, tuple[int, int]],
    ) -> list[str]:
        """The variables of sub-matrices: views, or the matrix itself where that is the whole.

        Args:
            numbered: sub-matrices and their numbers.
            bases, sizes: by matrix its variable, and its rows and columns.
        """
        var, dims, view, add = self._view, self._view_dims, self._rectangle, self._add
        names = []
        for number, (matrix, row, rows, col, cols) in numbered:
            name = base = bases[matrix]
            if (rows, cols) != sizes[matrix]:
                var.name = name = f"{base}.s{number}"
                view.base = base
                dims[0], dims[1] = rows, cols
                view.row_begin, view.row_end = row, row + rows
                view.col_begin, view.col_end = col, col + cols
                add().CopyFrom(var)
            names.append(name)
        return names

    def array(self, name: str, shape: Sequence[int], dtype: Any, kind: int = TEMPORARY) -> None:
        """A variable of any shape and dtype."""
        var, dims = self._array, self._array_dims
        var.name, var.dtype, var.kind = name, to_pb(dtype), kind
        dims[:] = shape
        self._add().CopyFrom(var)

    def state(self, name: str, array: np.ndarray) -> None:
        """A state that begins with the values of an array."""
        var = self._state
        var.name, var.dtype, self._state_out[0] = name, to_pb(array.dtype), name
        set_shape(var, array.shape)
        set_tensor(self._state_value, array)
        self._add().CopyFrom(var)
