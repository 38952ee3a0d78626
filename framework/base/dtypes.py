"""Element types: the wire enum, NumPy dtypes and their names."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from ...proto import net_pb2 as pb
from .errors import ShapeError, nearest

_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
_TO_PB = {np.dtype(name): getattr(pb, name.upper()) for name in _NAMES}
_BY_NAME = {name: np.dtype(name) for name in _NAMES}
_FROM_PB = {value: dtype for dtype, value in _TO_PB.items()}
DTYPES = frozenset(_TO_PB)
"""The dtypes that a net can hold."""
FLOATS = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"))


def to_dtype(value: Any) -> np.dtype:
    """NumPy dtype of a name, a NumPy dtype or type, or a wire value.

    Raises:
        ShapeError: `value` names no dtype that a net can hold.
    """
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    if isinstance(value, int) and not isinstance(value, bool):
        if value in _FROM_PB:
            return _FROM_PB[value]
        raise ShapeError(f"dtype number {value} is none of a net's dtypes")
    dtype: np.dtype | None = None
    with contextlib.suppress(TypeError):
        dtype = np.dtype(value)  # pyright: ignore[reportCallIssue, reportArgumentType]  or fails
    if dtype is None or dtype not in _TO_PB:
        hint = nearest(str(value), _NAMES)
        raise ShapeError(f"{value!r} is not a dtype of a net{hint}; known: {', '.join(_NAMES)}")
    return dtype


def to_pb(value: object) -> int:
    """Wire value of a dtype; the inverse of `to_dtype`."""
    return _TO_PB[value if isinstance(value, np.dtype) and value in _TO_PB else to_dtype(value)]


class _Names(dict[np.dtype, str]):
    def __missing__(self, dtype: np.dtype) -> str:
        return dtype.name


NAMES = _Names((dtype, name) for name, dtype in _BY_NAME.items())
"""`dtype.name` of every dtype; NumPy works it out anew every time."""
