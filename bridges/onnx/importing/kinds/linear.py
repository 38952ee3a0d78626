"""Products: matrices, Einstein sums, determinants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .....framework.base.dtypes import SINGLE
from .....operators.backends import integer_gemm
from .....operators.linear.integer_matmul import BYTES
from ..calls import Attributes, Call, Value, evaluates, lowers


@lowers("MatMul")
def _matmul(n: Call) -> Value:
    by_integers = product_of_integers(n, n[0], n[1])
    if by_integers is not None:
        return by_integers
    x, y = (in_floats(n, n[i]) for i in range(2))
    return n.cast(matmul(n, x, y), n[0].dtype)


def product_of_integers(n: Call, x: Value, y: Value) -> Value | None:
    """The product of what DequantizeLinear made of 8-bit integers, from the product of these.

    Returns:
        None for other values, and where the processor multiplies floats as fast.
    """
    first, second = x.dequantized, y.dequantized
    if first is None or second is None or not integer_gemm.is_fast():
        return None
    if x.ndim < 2 or y.ndim != 2 or not x.dtype == y.dtype == SINGLE:
        return None
    if first[0].dtype not in BYTES or second[0].dtype not in BYTES:
        return None
    of_x, of_y = ((one[1], *filter(None, [one.get(2)])) for one in (first, second))
    if any(not _is_one(value) for value in of_x):
        return None
    by_column = not second.attr("block_size", 0) and second.axis(second.attr("axis", 1), 2) == 1
    if any(not _is_one(value) and (value.ndim > 1 or not by_column) for value in of_y):
        return None
    left, right = first[1], second[1]
    if left.array is None or right.array is None or left.is_parameter or right.is_parameter:
        scale = n.op("mul", left, right)
    else:
        scale = n.const(left.array * right.array)
    zeros = first.get(2), second.get(2)
    return matmul(n, first[0], second[0], lambda a, b: n.op("integer_matmul", a, b, *zeros, scale))


def _is_one(value: Value) -> bool:
    return value.shape in ((), (1,))


def in_floats(n: Call, x: Value) -> Value:
    """Whole numbers as float64, in which their products are exact up to 2^53."""
    return x if x.is_float else n.cast(x, np.float64)


def matmul(
    n: Call, x: Value, y: Value, multiply: Callable[[Value, Value], Value] | None = None
) -> Value:
    """The product of two values as numpy.matmul takes them, by `multiply` if that is given."""
    multiply = multiply or partial(n.op, "matmul")
    shape = list(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    shape += x.shape[-2:-1] if x.ndim > 1 else ()
    shape += y.shape[-1:] if y.ndim > 1 else ()
    if x.ndim == 1:
        x = n.reshape(x, [1, *x.shape])
    if y.ndim == 1:
        y = n.reshape(y, [*y.shape, 1])
    if y.ndim == 2 and x.ndim > 2:  # one product of matrices
        rows = n.reshape(x, [int(np.prod(x.shape[:-1])), x.shape[-1]])
        product = multiply(rows, y)
    else:
        product = multiply(x, y)
    return product if list(product.shape) == shape else n.reshape(product, shape)


@lowers("Gemm")
def _gemm(n: Call) -> Value:
    how = {
        "transpose_x": bool(n.attr("transA", 0)),
        "transpose_y": bool(n.attr("transB", 0)),
        "alpha": n.attr("alpha", 1.0),
    }
    plain = how == {"transpose_x": False, "transpose_y": False, "alpha": 1.0}
    product = product_of_integers(n, n[0], n[1]) if plain else None
    if product is None:
        product = n.op("matmul", *(in_floats(n, n[i]) for i in range(2)), **how)
    c = n.get(2)
    if c is None:
        return n.cast(product, n[0].dtype)
    c = in_floats(n, c)
    if n.attr("beta", 1.0) != 1:
        c = n.op("scale", c, scale=n.attr("beta", 1.0))
    return n.cast(n.op("add", product, c), n[0].dtype)


@lowers("Einsum")
def _einsum(n: Call) -> Value:
    values = [in_floats(n, n[i]) for i in range(len(n.inputs))]
    product = n.op("einsum", values, equation=n.attr("equation", "").replace(" ", ""))
    return n.cast(product, n[0].dtype)


@evaluates("Det")
def _det(n: Attributes, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.det(x)).astype(x.dtype)
