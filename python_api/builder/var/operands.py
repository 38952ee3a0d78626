"""Two operands of an infix operator: constants made of numbers and arrays, one dtype for both.

Dtypes follow NumPy, with one exception: where integers meet floats they become floats of the dtype
that is there, else of the builder's, and not float64. So `x / 2` of an integer x is float32 in a
net of float32. Numbers and arrays beside a variable take its dtype where that can hold their kind.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ....framework.base.dtypes import FLOATS
from ....framework.base.errors import AttributeTypeError, ShapeError
from ....operators.math.powers import raised
from ..calls import where
from .base import Builder, Handle

_ORDER = "bif"
"""Kinds of numbers, each of which holds those before it."""

_EXACT = 1 << 53  # the whole numbers up to here are floats, as attributes are

# op(x, number) as scale * x + bias, with (number, swapped) -> (scale, bias); None: no such form.
_WITH_NUMBER = {
    "add": lambda c, swapped: (1.0, c),
    "sub": lambda c, swapped: (-1.0, c) if swapped else (1.0, -c),
    "mul": lambda c, swapped: (c, 0.0),
    "div": lambda c, swapped: (None, 0.0) if swapped or c == 0 else (1.0 / c, 0.0),
}
_OF_TRUTH_VALUES = {"add": "logical_or", "mul": "logical_and"}
"""What NumPy computes for two arrays of truth values."""


def kind_of(dtype: np.dtype | None) -> str:
    """b (truth values), i (integers) or f (floats; also where the dtype is unknown)."""
    if dtype is None or dtype in FLOATS:
        return "f"
    return "i" if dtype.kind in "iu" else "b"


def as_array(value: Any) -> np.ndarray | None:
    """A number, an array or a (nested) list of numbers as an array; None: something else."""
    if not isinstance(value, (bool, int, float, np.generic, np.ndarray, list, tuple)):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return array if array.dtype.kind in "biuf" or array.dtype in FLOATS else None


def refuse(x: Handle, symbol: str, other: Any) -> NoReturn:
    """Raise what there is to say of an operand that is neither variable nor number."""
    operand = f"{other!r} ({type(other).__name__})" if other is not None else "None"
    raise AttributeTypeError(
        f"{where()}: {x.name!r} {symbol} {operand}: a variable goes together with variables,"
        " numbers and arrays"
    )


def is_foreign(other: Any) -> bool:
    """Whether an operand is of a class that may know itself what to do with a variable."""
    return type(other).__module__ not in ("builtins", "numpy")


def constant(builder: Builder, array: np.ndarray, dtype: np.dtype) -> Any:
    """A variable that holds an array, as `dtype`.

    Raises:
        ShapeError: it has integers that this dtype cannot hold.
    """
    if kind_of(dtype) == "i" and array.size:
        info = np.iinfo(dtype)
        least, most = int(array.min()), int(array.max())
        if least < info.min or most > info.max:
            bad = least if least < info.min else most
            raise ShapeError(f"{where()}: {bad} is out of bounds for {dtype}")
    if array.ndim == 0 and (array.dtype.kind not in "iu" or abs(int(array)) <= _EXACT):
        return builder.add_op("fill_constant", shape=[], dtype=str(dtype), value=float(array))
    return builder.add_op("constant", value=array.astype(dtype))


def cast(x: Handle, dtype: np.dtype) -> Any:
    """A variable in a dtype: itself, where it has that."""
    return x if x.dtype in (None, dtype) else x.builder.add_op("cast", x, dtype=str(dtype))


def _common(builder: Builder, one: np.dtype, two: np.dtype) -> np.dtype:
    """The dtype for two variables."""
    ranks = [_ORDER.index(kind_of(dtype)) for dtype in (one, two)]
    if ranks[0] != ranks[1]:
        return one if ranks[0] > ranks[1] else two
    try:
        return np.promote_types(one, two)
    except TypeError:  # float16 and bfloat16
        return np.dtype(np.float32)


def _beside(x: Handle, array: np.ndarray) -> np.dtype:
    """The dtype for a variable and a constant."""
    own, other = kind_of(x.dtype), kind_of(array.dtype)
    if _ORDER.index(other) <= _ORDER.index(own):
        return x.dtype or x.builder.dtype
    return x.builder.dtype if other == "f" else np.dtype(np.int64)


def pair(x: Handle, other: Any, symbol: str, *, floats: bool = False) -> tuple[Any, Any]:
    """Both operands as variables of one dtype.

    Args:
        symbol: of the operator, for messages.
        floats: integers and truth values become floats in any case.

    Raises:
        AttributeTypeError: `other` is no operand.
        ShapeError: a constant that the variable's dtype cannot hold.
    """
    if isinstance(other, Handle):
        if x.dtype is None or other.dtype is None:
            return x, other
        dtype = _common(x.builder, x.dtype, other.dtype)
        if floats and kind_of(dtype) != "f":
            dtype = x.builder.dtype
        return cast(x, dtype), cast(other, dtype)
    array = as_array(other)
    if array is None:
        refuse(x, symbol, other)
    dtype = _beside(x, array)
    if floats and kind_of(dtype) != "f":
        dtype = x.builder.dtype
    return cast(x, dtype), constant(x.builder, array, dtype)


def arithmetic(op_type: str, symbol: str, x: Handle, other: Any, swapped: bool) -> Any:
    """x op other, or other op x where swapped."""
    number = None if isinstance(other, Handle) else as_array(other)
    if op_type in _WITH_NUMBER and kind_of(x.dtype) == "f":
        if number is not None and number.ndim == 0:
            scale, bias = _WITH_NUMBER[op_type](float(number), swapped)
            if scale is not None:
                return x.builder.add_op("scale", x, scale=scale, bias=bias)
    left, right = pair(x, other, symbol, floats=op_type == "div")
    if kind_of(left.dtype) == "b":
        if op_type not in _OF_TRUTH_VALUES:
            raise ShapeError(
                f"{where()}: {x.name!r} {symbol} ...: holds truth values; convert them first, as in"
                f" {x.name}.astype('int64')"
            )
        op_type = _OF_TRUTH_VALUES[op_type]
    return x.builder.add_op(op_type, *((right, left) if swapped else (left, right)))


def compare(op_type: str, symbol: str, x: Handle, other: Any) -> Any:
    """x < other and the like: truth values."""
    return x.builder.add_op(op_type, *pair(x, other, symbol))


def logic(op_type: str, symbol: str, x: Handle, other: Any, swapped: bool) -> Any:
    """x & other and the like, of truth values."""
    array = None if isinstance(other, Handle) else as_array(other)
    for operand in (x, other):
        dtype = array.dtype if operand is other and array is not None else None
        if isinstance(operand, Handle):
            dtype = operand.dtype
        if dtype is not None and kind_of(dtype) != "b":
            what = operand.name if isinstance(operand, Handle) else operand
            raise ShapeError(
                f"{where()}: {x.name!r} {symbol} ...: {symbol} wants truth values, and {what!r} has"
                f" dtype {dtype}; comparisons give them: (x > 0) {symbol} (x < 1)"
            )
    left, right = pair(x, other, symbol)
    return x.builder.add_op(op_type, *((right, left) if swapped else (left, right)))


def power(x: Handle, other: Any, swapped: bool) -> Any:
    """x ** other, or other ** x where swapped.

    Integers have whole powers from 0 on only, which are products.

    Raises:
        ShapeError: a power of integers that is not such a one.
    """
    number = None if isinstance(other, Handle) else as_array(other)
    if number is not None and number.ndim == 0 and not swapped and kind_of(x.dtype) != "b":
        is_float = kind_of(x.dtype) == "f"
        if number.dtype.kind in "iu" or is_float and number.dtype.kind == "f":
            result = raised(x.builder.add_op, x, number.item(), is_float)
            if result is not None:
                return result
    left, right = pair(x, other, "**")
    if kind_of(left.dtype) != "f":
        raise ShapeError(
            f"{where()}: {x.name!r} ** ...: integers have powers by numbers from 0 on only; convert"
            f" them first, as in {x.name}.astype('float32')"
        )
    return x.builder.add_op("pow", *((right, left) if swapped else (left, right)))
