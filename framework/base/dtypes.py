"""Element types: the wire enum, NumPy dtypes and their names."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from .errors import ShapeError, nearest, spelled

try:  # an optional package: NumPy itself has no bfloat16
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

_NAMES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
_NO_BFLOAT16 = "bfloat16 needs the package ml_dtypes: pip install opscope[bf16]"
_BY_NAME = {name: np.dtype(name) for name in _NAMES if name != "bfloat16"}
if bfloat16 is not None:
    _BY_NAME["bfloat16"] = np.dtype(bfloat16)
WIRE_VALUES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "uint8": 6,
    "float16": 7,
    "float32": 8,
    "float64": 9,
    "bfloat16": 10,
}
"""`DataType` of net.proto, which never changes: no message has to be loaded for it."""
_TO_PB = {dtype: WIRE_VALUES[name] for name, dtype in _BY_NAME.items()}
_FROM_PB = {value: dtype for dtype, value in _TO_PB.items()}
DTYPES = frozenset(_TO_PB)
"""The dtypes that a net can hold."""
HALVES = tuple(_BY_NAME[name] for name in ("float16", "bfloat16") if name in _BY_NAME)
"""Floats of 16 bits; kernels compute on float32 copies of them (framework/runtime/halves.py)."""
SINGLE, DOUBLE = np.dtype("float32"), np.dtype("float64")
FLOATS = (*HALVES, SINGLE, DOUBLE)


def is_float(dtype: Any) -> bool:
    """Whether a NumPy dtype is a floating one; NumPy itself does not count bfloat16 as such."""
    # ml_dtypes registers bfloat16 with the kind "V".
    return dtype.kind == "f" or dtype in HALVES


def is_whole(value: Any) -> bool:
    """Whether something is a whole number, of Python's or NumPy's, and no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def wide(dtype: np.dtype) -> np.dtype:
    """float32 for a float of 16 bits, any other dtype as it is: what sums and losses are in."""
    return SINGLE if dtype in HALVES else dtype


def to_dtype(value: Any) -> np.dtype:
    """NumPy dtype of a name, a NumPy dtype or type, or a wire value.

    Raises:
        ShapeError: `value` names no dtype that a net can hold, or bfloat16 where ml_dtypes is not
            installed.
    """
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    # True equals 1, the wire value of bool, but is not meant as a dtype.
    if isinstance(value, int) and not isinstance(value, bool):
        if value in _FROM_PB:
            return _FROM_PB[value]
        if value == WIRE_VALUES["bfloat16"]:
            raise ShapeError(_NO_BFLOAT16)
        raise ShapeError(f"dtype number {value} is none of a net's dtypes")
    dtype: np.dtype | None = None
    with contextlib.suppress(TypeError, ValueError, SyntaxError):
        dtype = np.dtype(value)  # pyright: ignore[reportCallIssue, reportArgumentType]  or fails
    if dtype is None or dtype not in _TO_PB:
        if isinstance(value, str) and value in _NAMES:
            raise ShapeError(_NO_BFLOAT16)
        ours = spelled(str(value), _NAMES)
        if ours != value and ours in _NAMES:
            return to_dtype(ours)
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
