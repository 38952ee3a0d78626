"""Products: matrices, Einstein sums, determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers


@evaluates("MatMul")
def _matmul_on_host(n: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.matmul(x, y)


@lowers("MatMul")
def _matmul(n: Call) -> Value:
    return matmul(n, n[0], n[1])


def matmul(n: Call, x: Value, y: Value) -> Value:
    """The product of two values as numpy.matmul takes them."""
    if not x.is_float:
        raise NotHere
    shape = list(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    shape += x.shape[-2:-1] if x.ndim > 1 else ()
    shape += y.shape[-1:] if y.ndim > 1 else ()
    if x.ndim == 1:
        x = n.op("reshape", x, shape=[1, *x.shape])
    if y.ndim == 1:
        y = n.op("reshape", y, shape=[*y.shape, 1])
    if y.ndim == 2 and x.ndim > 2:  # one product of matrices
        rows = n.op("reshape", x, shape=[int(np.prod(x.shape[:-1])), x.shape[-1]])
        made = n.op("matmul", rows, y)
    else:
        made = n.op("matmul", x, y)
    return made if list(made.shape) == shape else n.op("reshape", made, shape=shape)


@evaluates("Gemm")
def _gemm_on_host(n: Attributes, a: np.ndarray, b: np.ndarray, c: Any = None) -> np.ndarray:
    a = a.T if n.attr("transA", 0) else a
    b = b.T if n.attr("transB", 0) else b
    made = (n.attr("alpha", 1.0) * (a @ b)).astype(a.dtype)
    return made if c is None else (made + n.attr("beta", 1.0) * c).astype(a.dtype)


@lowers("Gemm")
def _gemm(n: Call) -> Value:
    a, b, c = n[0], n[1], n.get(2)
    if not a.is_float:
        raise NotHere
    made = n.op(
        "matmul",
        a,
        b,
        transpose_x=bool(n.attr("transA", 0)),
        transpose_y=bool(n.attr("transB", 0)),
        alpha=n.attr("alpha", 1.0),
    )
    if c is None:
        return made
    if n.attr("beta", 1.0) != 1:
        c = n.op("scale", c, scale=n.attr("beta", 1.0))
    return n.op("add", made, c)


@evaluates("Einsum")
def _einsum_on_host(n: Attributes, *args: np.ndarray) -> np.ndarray:
    dtype = args[0].dtype
    wide = [x.astype(np.float32) if dtype.itemsize == 2 and dtype.kind == "V" else x for x in args]
    return np.asarray(np.einsum(n.attr("equation", "").replace(" ", ""), *wide)).astype(dtype)


@lowers("Einsum")
def _einsum(n: Call) -> Value:
    values = [n[i] for i in range(len(n.inputs))]
    if not all(value.is_float for value in values):
        raise NotHere
    return n.op("einsum", values, equation=n.attr("equation", "").replace(" ", ""))


@evaluates("Det")
def _det(n: Attributes, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.det(x)).astype(x.dtype)
