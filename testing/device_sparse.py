"""The part of `cupyx.scipy.sparse` that the stand-in of CuPy needs: a product with dense ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class csr_matrix:  # noqa: N801  CuPy's name
    """A sparse matrix made of (values, (rows, columns)), all on the device."""

    def __init__(self, arg1: Any, shape: tuple[int, int]) -> None:
        from .device_array import ndarray

        values, (rows, columns) = arg1
        if not type(values) is type(rows) is type(columns) is ndarray:
            raise TypeError("the parts of a sparse matrix are no arrays of the device")
        if values.dtype.char not in "?fdFD":
            raise ValueError("Only bool, float32, float64, complex64 and complex128 are supported")
        self._dense = np.zeros(shape, values.dtype)
        np.add.at(self._dense, (rows.memory, columns.memory), values.memory)

    def __matmul__(self, dense: Any) -> Any:
        from .device_array import launches, ndarray

        if type(dense) is not ndarray:
            raise TypeError("the dense factor is no array of the device")
        launches.append("sparse")
        return ndarray(self._dense @ dense.memory)


sparse = SimpleNamespace(csr_matrix=csr_matrix)
