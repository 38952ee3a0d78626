"""Constants, filled arrays, shapes as values, casts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from .....framework.base.dtypes import DTYPES
from .....framework.base.errors import FormatError
from .....framework.base.sizes.dims import Dim
from .....framework.base.untrusted.values import check_fill
from ...files.tensors import dtype_of
from ..calls import Attributes, Call, NotHere, Sizes, Value, evaluates, follows, lowers


@evaluates("Constant")
def _constant(n: Attributes) -> np.ndarray:
    attrs = n.node.attrs
    for name, dtype in (
        ("value", None),
        ("sparse_value", None),
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_string", object),
        ("value_strings", object),
    ):
        if name in attrs:
            return np.asarray(attrs[name], dtype)
    n.fail("a constant without a value")


@evaluates("Identity")
def _identity_on_host(n: Attributes, x: Any) -> Any:
    return (x,)


@lowers("Identity")
def _identity(n: Call) -> Value:
    return n[0]


@evaluates("ConstantOfShape")
def _constant_of_shape(n: Attributes, shape: np.ndarray) -> np.ndarray:
    value = n.attr("value")
    value = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    dims = [int(dim) for dim in shape]
    check_fill(dims, value.dtype.itemsize, n.node.title())
    return np.full(dims, value[0], value.dtype)


@follows("ConstantOfShape")
def _constant_that_follows(n: Call) -> Value:
    dims = n.known_ints(0) or []
    here = Attributes(n.node, n.where)
    dtype = _constant_of_shape(here, np.zeros(1, np.int64)).dtype
    return n.following(lambda *own: _constant_of_shape(here, np.array(own)), dims, dtype, *dims)


@evaluates("Range")
def _range(n: Attributes, start: np.ndarray, limit: np.ndarray, step: np.ndarray) -> np.ndarray:
    first, last, by = (x.reshape(-1)[0] for x in (start, limit, step))
    count = max(int(np.ceil((float(last) - float(first)) / float(by))), 0)
    check_fill([count], start.dtype.itemsize, n.node.title())
    return (first + np.arange(count).astype(start.dtype) * by).astype(start.dtype)


@follows("Range")
def _range_that_follows(n: Call) -> Value:
    (start,), (limit,), (step,) = (n.known_ints(number) or [0] for number in range(3))
    if n[0].dtype.kind not in "iu" or isinstance(step, Dim) or not step:
        raise NotHere
    count = -((start - limit) // step)
    dtype = n[0].dtype
    make = partial(line, step, dtype)
    return n.following(make, [count if count > 0 else 0], dtype, start, count)


def line(step: int, dtype: Any, start: int, count: int) -> np.ndarray:
    """So many numbers from one on, `step` apart."""
    return (start + step * np.arange(count)).astype(dtype)


@lowers("EyeLike")
def _eye_like_here(n: Call) -> Value:
    rows, columns = n[0].shape
    return n.const(np.eye(rows, columns, n.attr("k", 0), dtype=dtype_attr(n, n[0].dtype)))


def dtype_attr(n: Attributes, default: Any) -> np.dtype:
    """The dtype that the attribute `dtype` names."""
    number = n.attr("dtype")
    return np.dtype(default) if number is None else dtype_of(number, n.node.title())


@lowers("Shape")
def _shape(n: Call) -> Value:
    return n.const(n[0].shape[n.attr("start", 0) : n.attr("end")], np.int64)


@lowers("Size")
def _size(n: Call) -> Value:
    return n.const(math.prod(n[0].shape), np.int64)


# -- casts -----------------------------------------------------------------------------------------


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An array in another dtype, as ONNX casts."""
    if x.dtype == object:
        return np.array([float(text) for text in x.reshape(-1)]).reshape(x.shape).astype(dtype)
    if dtype.kind == "b":
        return x != 0
    if dtype.kind in "iu" and x.dtype.kind not in "iub" and dtype.itemsize < 8:
        return x.astype(np.int64).astype(dtype)  # out of bounds: modulo, not undefined
    return x.astype(dtype)


def _target(n: Attributes) -> np.dtype | None:
    """The dtype to cast to; None for strings."""
    number = n.attr("to", 0)
    if number == 8:
        return None
    return dtype_of(number, n.node.title())


@evaluates("Cast")
def _cast_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    dtype = _target(n)
    if n.attr("to", 0) in (21, 22, 25, 26):
        raise FormatError(f"{n.node.title()}: a cast to integers of 2 or 4 bits is not supported")
    if dtype is None:
        texts = [_text(v) for v in x.reshape(-1)]
        array = np.empty(len(texts), object)
        array[:] = texts
        return array.reshape(x.shape)
    return cast(x, dtype)


def _text(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return str(value)
    if isinstance(value, (np.floating, float)):
        value = float(np.float32(value))
        return {float("inf"): "INF", float("-inf"): "-INF"}.get(value) or (
            "NaN" if value != value else f"{value:.8g}"
        )
    return str(value)


@lowers("Cast")
def _cast(n: Call) -> Value:
    dtype = _target(n)
    return _cast_to(n, dtype)


def _cast_to(n: Call, dtype: np.dtype | None) -> Value:
    x = n[0]
    if dtype is None or dtype not in DTYPES or n.attr("to", 0) in (21, 22):
        raise NotHere
    if dtype == x.dtype:
        return x
    if isinstance(x, Sizes):
        return n.const(x.sizes, dtype)
    if x.array is not None and not x.is_parameter:  # of CastLike: its other input is not known
        return n.const(cast(x.array, dtype), dtype)
    if dtype.kind == "b":
        return n.op("not_equal", x, n.const(0, x.dtype))
    return n.op("cast", x, dtype=dtype)


@evaluates("CastLike")
def _cast_like(n: Attributes, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    if like.dtype == object:
        array = np.empty(x.size, object)
        array[:] = [_text(v) for v in x.reshape(-1)]
        return array.reshape(x.shape)
    return cast(x, like.dtype)


@lowers("CastLike")
def _cast_like_here(n: Call) -> Value:
    return _cast_to(n, n[1].dtype)


@evaluates("BitCast")
def _bit_cast(n: Attributes, x: np.ndarray) -> np.ndarray:
    dtype = _target(n)
    if dtype is None or dtype.itemsize != x.dtype.itemsize:
        n.fail("a cast of bits between types of different sizes")
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape)
