"""Integers that stand for reals: quantizing, and products of such integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....framework.base.dtypes import DOUBLE, DTYPES, SINGLE
from ...files.tensors import dtype_of
from ..calls import Call, NotHere, Value, lowers
from .linear import matmul
from .windows import convolved


def _spread(n: Call, values: Value, shape: tuple[int, ...]) -> Value:
    """Scales or zero points as they meet the elements: one, one along an axis, or one a block."""
    if values.shape in ((), (1,)):
        return n.reshape(values, [1] * len(shape))
    axis = n.axis(n.attr("axis", 1), len(shape))
    block = n.attr("block_size", 0)
    if block or values.ndim > 1:
        block = block or -(-shape[axis] // values.shape[axis])
        whole = n.op("repeat_interleave", values, repeats=block, axis=axis)
        return n.op("slice", whole, axes=[axis], starts=[0], ends=[shape[axis]])
    return n.reshape(values, [-1, *(1,) * (len(shape) - 1 - axis)])


@lowers("QuantizeLinear")
def _quantize(n: Call) -> Value:
    x = n[0]
    scale = n[1]
    zero = n.get(2)
    dtype = dtype_of(n.attr("output_dtype", 0) or 2, n.node.title())
    if zero is not None:
        dtype = np.dtype("uint16") if zero.dtype == np.int64 else zero.dtype  # see `foreign`
    elif dtype not in DTYPES:
        raise NotHere
    scaled = n.op("div", n.cast(x, SINGLE), n.cast(_spread(n, scale, x.shape), SINGLE))
    scaled = n.op("round", scaled)
    if zero is not None:
        scaled = n.op("add", scaled, n.cast(_spread(n, zero, x.shape), SINGLE))
    return _limited(n, scaled, dtype, dtype if zero is None else zero.dtype)


def _limited(n: Call, x: Value, dtype: np.dtype, held: np.dtype | None = None) -> Value:
    """Whole numbers cut to what a type has, in that type or another one."""
    if dtype.kind not in "iu":
        raise NotHere
    info = np.iinfo(dtype)
    limited = n.op("clip", x, minimum=float(info.min), maximum=float(info.max))
    return n.cast(limited, held or dtype)


@lowers("DequantizeLinear")
def _dequantize(n: Call) -> Value:
    x = n[0]
    scale = n[1]
    zero = n.get(2)
    wide = DOUBLE if x.dtype.itemsize > 2 or scale.dtype == DOUBLE else SINGLE
    values = n.cast(x, wide)
    if zero is not None:
        values = n.op("sub", values, n.cast(_spread(n, zero, x.shape), wide))
    return n.cast(n.op("mul", values, n.cast(_spread(n, scale, x.shape), wide)), scale.dtype)


@lowers("DynamicQuantizeLinear")
def _dynamic(n: Call) -> list[Value]:
    x = n[0]
    zero = n.const(0, n[0].dtype)
    flat = n.reshape(x, [-1]) if 0 not in x.shape else n.reshape(zero, [1])
    low, high = (
        n.op(outer, n.op(f"reduce_{inner}", flat, axes=[0]), zero)
        for inner, outer in (("min", "minimum"), ("max", "maximum"))
    )
    scale = n.op("div", n.op("sub", high, low), n.const(255, x.dtype))
    empty = n.op("equal", scale, n.const(0, x.dtype))
    scale = n.op("where", empty, n.const(1, x.dtype), scale)
    shift = n.op("round", n.op("div", n.op("neg", low), scale))
    shift = n.op("clip", shift, minimum=0.0, maximum=255.0)
    rounded = n.op("add", n.op("round", n.op("div", x, scale)), shift)
    dtype = np.dtype("uint8")
    return [_limited(n, rounded, dtype), scale, n.cast(shift, dtype)]


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


@lowers("MatMulInteger")
def _matmul_integer_here(n: Call) -> Value:
    return _integer_product(n, n[0], n.get(2), n[1], n.get(3))


def _integer_product(
    n: Call, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None
) -> Value:
    """The product of integers without their zero points, as int32."""
    one_for_all = a_zero is None or a_zero.shape in ((), (1,))
    if one_for_all and (b_zero is None or b_zero.ndim < 2):
        return matmul(n, a, b, lambda x, y: n.op("integer_matmul", x, y, a_zero, b_zero))
    # Zero points of rows: numbers of float64, whose product is exact.
    left = _shifted_here(n, a, a_zero, a.ndim - 2)
    right = _shifted_here(n, b, b_zero, b.ndim - 1)
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
        shift = n.reshape(shift, dims)
    elif zero.ndim == 1:
        shift = n.reshape(shift, [])
    return n.op("sub", wide, shift)


@lowers("ConvInteger")
def _conv_integer(n: Call) -> Value:
    x, w = _shifted_here(n, n[0], n.get(2), 1), _shifted_here(n, n[1], n.get(3), 0)
    return n.cast(convolved(n, x, w), np.int32)


@lowers("QLinearMatMul")
def _matmul_quantized(n: Call) -> Value:
    product = n.cast(_integer_product(n, n[0], n[2], n[3], n[5]), DOUBLE)
    return _quantized(n, product, n[1], n[4], [])


@lowers("QLinearConv")
def _conv_quantized(n: Call) -> Value:
    x = _shifted_here(n, n[0], n[2], 1)
    w = _shifted_here(n, n[3], n[5], 0)
    b = n.get(8)
    product = convolved(n, x, w, None if b is None else n.cast(b, DOUBLE))
    return _quantized(n, product, n[1], n[4], [1] * (w.ndim - 2))


def _quantized(n: Call, total: Value, first: Value, second: Value, ones: list[int]) -> Value:
    """A product in the scale and the zero point that inputs 6 and 7 of the node tell."""
    scales = [n.cast(scale, DOUBLE) for scale in (first, second, n[6])]
    factor = n.op("div", n.op("mul", *scales[:2]), scales[2])
    if ones and factor.ndim:
        factor = n.reshape(factor, [-1, *ones])
    total = n.op("round", n.op("mul", total, factor))
    return _limited(n, n.op("add", total, n.cast(n[7], DOUBLE)), n[7].dtype)
