"""Integers that stand for reals: quantising, and products of such integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers
from .linear import matmul
from .windows import convolved


def _spread(n: Attributes, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Scales or zero points as they meet the elements: one, one along an axis, or one a block."""
    if values.size == 1:
        return values.reshape((1,) * len(shape))
    axis = n.axis(n.attr("axis", 1), len(shape))
    block = n.attr("block_size", 0)
    if block or values.ndim > 1:
        block = block or -(-shape[axis] // values.shape[axis])
        whole = np.repeat(values, block, axis)
        return np.take(whole, np.arange(shape[axis]), axis)
    dims = [1] * len(shape)
    dims[axis] = values.size
    return values.reshape(dims)


def _rounded(x: np.ndarray, zero: Any, dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(np.rint(x) + zero, info.min, info.max).astype(dtype)


@evaluates("QuantizeLinear")
def _quantize(n: Attributes, x: np.ndarray, scale: np.ndarray, zero: Any = None) -> np.ndarray:
    number = n.attr("output_dtype", 0)
    if number not in (0, 2, 3, 4, 5):
        n.fail(f"output_dtype {number} is not supported")
    dtype = np.dtype({0: "uint8", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}[number])
    if zero is not None:
        dtype = zero.dtype
    wide = x.astype(np.float32) / _spread(n, scale, x.shape).astype(np.float32)
    shift = 0 if zero is None else _spread(n, zero, x.shape).astype(np.int64)
    return _rounded(wide, shift, dtype)


def _known_float(value: Value) -> bool:
    return value.array is not None and value.dtype in (np.float32, np.float64)


_BYTES = (np.dtype("uint8"), np.dtype("int8"))


@lowers("QuantizeLinear")
def _quantize_here(n: Call) -> Value:
    x, scale, zero = n[0], n[1], n.known(2)
    if zero is None or zero.dtype not in _BYTES or not _known_float(scale) or scale.array is None:
        raise NotHere
    if x.dtype != scale.dtype:
        raise NotHere
    made = n.op("round", n.op("div", x, n.const(_spread(n, scale.array, x.shape))))
    if zero.any():
        made = n.op("add", made, n.const(_spread(n, zero, x.shape), x.dtype))
    return _to_bytes(n, made, zero.dtype)


def _to_bytes(n: Call, x: Value, dtype: np.dtype) -> Value:
    info = np.iinfo(dtype)
    limited = n.op("clip", x, minimum=float(info.min), maximum=float(info.max))
    return n.op("cast", limited, dtype=dtype)


@evaluates("DequantizeLinear")
def _dequantize(n: Attributes, x: np.ndarray, scale: np.ndarray, zero: Any = None) -> np.ndarray:
    wide = x.astype(np.int64)
    if zero is not None:
        wide = wide - _spread(n, zero, x.shape).astype(np.int64)
    return (wide * _spread(n, scale, x.shape).astype(np.float32)).astype(scale.dtype)


@lowers("DequantizeLinear")
def _dequantize_here(n: Call) -> Value:
    x, scale = n[0], n[1]
    zero = n.known(2)
    if scale.array is None or scale.dtype not in (np.float32, np.float64):
        raise NotHere
    if x.array is not None:
        return n.const(_dequantize(n, x.array, scale.array, zero))
    wide = n.op("cast", x, dtype=scale.dtype)
    if zero is not None and zero.any():
        wide = n.op("sub", wide, n.const(_spread(n, zero, x.shape), scale.dtype))
    return n.op("mul", wide, n.const(_spread(n, scale.array, x.shape)))


@evaluates("DynamicQuantizeLinear")
def _dynamic(n: Attributes, x: np.ndarray) -> tuple[np.ndarray, ...]:
    low, high = min(float(x.min(initial=0)), 0.0), max(float(x.max(initial=0)), 0.0)
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255)) or np.float32(1)
    zero = np.clip(np.rint(np.float32(-low) / scale), 0, 255).astype(np.uint8)
    return _rounded(x / scale, np.int64(zero), np.dtype("uint8")), np.array(scale), np.array(zero)


@lowers("DynamicQuantizeLinear")
def _dynamic_here(n: Call) -> list[Value]:
    x, zero = n[0], n.const(0, n[0].dtype)
    if x.dtype != np.float32 or 0 in x.shape:
        raise NotHere
    axes = list(range(x.ndim))
    low = n.op("minimum", n.op("reduce_min", x, axes=axes), zero)
    high = n.op("maximum", n.op("reduce_max", x, axes=axes), zero)
    scale = n.op("div", n.op("sub", high, low), n.const(255, x.dtype))
    scale = n.op("where", n.op("equal", scale, zero), n.const(1, x.dtype), scale)
    shift = n.op("round", n.op("div", n.op("neg", low), scale))
    shift = n.op("clip", shift, minimum=0.0, maximum=255.0)
    made = n.op("add", n.op("round", n.op("div", x, scale)), shift)
    dtype = np.dtype("uint8")
    return [_to_bytes(n, made, dtype), scale, n.op("cast", shift, dtype=dtype)]


def _shifted(x: np.ndarray, zero: Any, axis: int) -> np.ndarray:
    """Integers without their zero point, as float64, in which their products are exact."""
    wide = x.astype(np.float64)
    if zero is None:
        return wide
    if zero.ndim == 1 and zero.size > 1:
        shape = [1] * x.ndim
        shape[axis] = zero.size
        zero = zero.reshape(shape)
    return wide - zero.astype(np.float64)


@evaluates("MatMulInteger")
def _matmul_integer(
    n: Attributes, a: np.ndarray, b: np.ndarray, a_zero: Any = None, b_zero: Any = None
) -> np.ndarray:
    left, right = _shifted(a, a_zero, a.ndim - 2), _shifted(b, b_zero, b.ndim - 1)
    return np.asarray(np.matmul(left, right)).astype(np.int32)


@lowers("MatMulInteger")
def _matmul_integer_here(n: Call) -> Value:
    """The product of float64 numbers, which is exact."""
    a, b = n[0], n[1]
    left = _shifted_here(n, a, n.get(2), a.ndim - 2)
    right = _shifted_here(n, b, n.get(3), b.ndim - 1)
    return n.op("cast", matmul(n, left, right), dtype=np.dtype("int32"))


def _shifted_here(n: Call, x: Value, zero: Value | None, axis: int) -> Value:
    if x.array is not None and (zero is None or zero.array is not None):
        return n.const(_shifted(x.array, None if zero is None else zero.array, axis))
    wide = n.op("cast", x, dtype=np.dtype("float64"))
    if zero is None:
        return wide
    shift = n.op("cast", zero, dtype=np.dtype("float64"))
    if zero.ndim == 1 and zero.shape[0] > 1:
        dims = [1] * x.ndim
        dims[axis] = zero.shape[0]
        shift = n.op("reshape", shift, shape=dims)
    elif zero.ndim == 1:
        shift = n.op("reshape", shift, shape=[])
    return n.op("sub", wide, shift)


@evaluates("ConvInteger")
def _conv_integer(
    n: Attributes, x: np.ndarray, w: np.ndarray, x_zero: Any = None, w_zero: Any = None
) -> np.ndarray:
    return convolved(n, _shifted(x, x_zero, 1), _shifted(w, w_zero, 0)).astype(np.int32)


@evaluates("QLinearMatMul")
def _matmul_quantized(
    n: Attributes,
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
) -> np.ndarray:
    made = np.matmul(_shifted(a, a_zero, a.ndim - 2), _shifted(b, b_zero, b.ndim - 1))
    factor = a_scale.astype(np.float64) * b_scale / scale
    return _rounded(made * factor, zero.astype(np.int64), zero.dtype)


@evaluates("QLinearConv")
def _conv_quantized(
    n: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    w: np.ndarray,
    w_scale: np.ndarray,
    w_zero: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    b: Any = None,
) -> np.ndarray:
    made = convolved(n, _shifted(x, x_zero, 1), _shifted(w, w_zero, 0))
    dims = (-1,) + (1,) * (w.ndim - 2)
    if b is not None:
        made = made + b.reshape(dims)
    factor = (x_scale.astype(np.float64) * w_scale / scale).reshape(dims)
    return _rounded(made * factor, zero.astype(np.int64), zero.dtype)
