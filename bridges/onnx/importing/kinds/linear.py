"""Products: matrices, Einstein sums, determinants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..calls import Attributes, Call, Value, evaluates, lowers


@lowers("MatMul")
def _matmul(n: Call) -> Value:
    x, y = (in_floats(n, n[i]) for i in range(2))
    before, is_turned = unturned(y)
    multiply = partial(_times_turned, n, before) if is_turned else None
    return n.cast(matmul(n, x, y, multiply), n[0].dtype)


def unturned(x: Value) -> tuple[Value, bool]:
    """What a matrix was transposed from and True, where it was; else the matrix and False.

    The product reads either; weights of a large vocabulary are not copied in each run so.
    """
    made = x.made_by
    if made is None or made.node.op != "Transpose" or x.ndim < 2 or x.is_known:
        return x, False
    axes = list(range(x.ndim))
    swapped = [*axes[:-2], axes[-1], axes[-2]]
    return (made[0], True) if (made.ints("perm") or axes[::-1]) == swapped else (x, False)


def _times_turned(n: Call, before: Value, rows: Value, _: Value) -> Value:
    return n.op("matmul", rows, before, transpose_y=True)


def in_floats(n: Call, x: Value) -> Value:
    """Whole numbers as float64, in which their products are exact up to 2^53."""
    return x if x.is_float else n.cast(x, np.float64)


def broadcast(n: Call, *shapes: Sequence[int]) -> list[int]:
    """The shape that shapes have together, as numpy.broadcast_shapes gives it."""
    rank = max(map(len, shapes))
    lines = zip(*([1] * (rank - len(shape)) + [*shape] for shape in shapes), strict=True)
    result = []
    for dims in lines:
        others = [dim for dim in dims if dim != 1]
        if any(dim != others[0] for dim in others[1:]):
            n.fail(f"the shapes {', '.join(str(list(shape)) for shape in shapes)} do not fit")
        result.append(others[0] if others else 1)
    return result


def matmul(
    n: Call, x: Value, y: Value, multiply: Callable[[Value, Value], Value] | None = None
) -> Value:
    """The product of two values as numpy.matmul takes them, by `multiply` if that is given."""
    multiply = multiply or partial(n.op, "matmul")
    shape = broadcast(n, x.shape[:-2], y.shape[:-2])
    shape += x.shape[-2:-1] if x.ndim > 1 else ()
    shape += y.shape[-1:] if y.ndim > 1 else ()
    if x.ndim == 1:
        x = n.reshape(x, [1, *x.shape])
    if y.ndim == 1:
        y = n.reshape(y, [*y.shape, 1])
    if y.ndim == 2 and x.ndim > 2:  # one product of matrices
        rows = n.reshape(x, [math.prod(x.shape[:-1]), x.shape[-1]])
        product = multiply(rows, y)
    else:
        product = multiply(x, y)
    return product if list(product.shape) == shape else n.reshape(product, shape)


@lowers("Gemm")
def _gemm(n: Call) -> Value:
    (x, x_turned), (y, y_turned) = (unturned(in_floats(n, n[i])) for i in range(2))
    how = {
        "transpose_x": bool(n.attr("transA", 0)) != x_turned,
        "transpose_y": bool(n.attr("transB", 0)) != y_turned,
        "alpha": n.attr("alpha", 1.0),
    }
    return gemm_of(n, n.op("matmul", x, y, **how))


def gemm_of(n: Call, product: Value) -> Value:
    """The result of a Gemm whose matrices are multiplied."""
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
