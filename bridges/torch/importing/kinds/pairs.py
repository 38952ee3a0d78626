"""Complex tensors: pairs of floats along an axis of their own, the last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....onnx.importing.calls import Value
from ..calls import COMPLEX, Aten, aten


def _halves(n: Aten, x: Value) -> list[Value]:
    """Real and imaginary parts of pairs."""
    axis = x.ndim - 1
    return [n.op("squeeze", n.part(x, axis, k, k + 1), axes=[axis]) for k in (0, 1)]


def _pairs(n: Aten, real: Value, imaginary: Value) -> Value:
    return n.op("stack", [real, imaginary], axis=real.ndim)


@aten("_fft_r2c", "_fft_c2c", "_fft_c2r", domain=COMPLEX)
def _fft(
    n: Aten,
    x: Value,
    dim: list[int],
    normalization: int,
    forward: bool | None = None,
    onesided: bool = False,
    last_dim_size: int | None = None,
) -> Value:
    """Axis by axis, each a product with the matrix of its transform; see ONNX's DFT."""
    if n.name == "_fft_r2c":
        x = n.op("unsqueeze", x, axes=[x.ndim])
    rank = x.ndim - 1
    back = n.name == "_fft_c2r" or forward is False
    axes = [axis % rank for axis in dim]
    sizes = [x.shape[axis] for axis in axes]
    if last_dim_size is not None:
        sizes[-1] = last_dim_size
    order = axes if back else axes[::-1]  # half a spectrum is made first and undone last
    for axis in order:
        last = axis == axes[-1]
        half = last and (onesided or last_dim_size is not None)
        length = n.const(sizes[-1], np.int64) if last and last_dim_size is not None else None
        at = n.const(axis, np.int64)
        x = n.onnx("DFT", x, length, at, inverse=int(back), onesided=int(half))
    if n.name == "_fft_c2r":
        x = n.op("squeeze", x, axes=[rank])
    count = math.prod(sizes)
    factor = (1.0, count**-0.5, 1 / count)[normalization] * (count if back else 1)
    return x if factor == 1 else n.op("scale", x, scale=float(factor))


@aten("view_as_real", "view_as_complex", "alias", "clone", domain=COMPLEX)
def _same(n: Aten, x: Value) -> Value:
    return x


@aten("real", "imag", domain=COMPLEX)
def _half(n: Aten, x: Value) -> Value:
    return _halves(n, x)[n.name == "imag"]


@aten("complex", "polar", domain=COMPLEX)
def _composed(n: Aten, x: Value, y: Value) -> Value:
    if n.name == "polar":
        x, y = (n.op("mul", x, n.op(turn, y)) for turn in ("cos", "sin"))
    return _pairs(n, x, y)


@aten("_to_copy", "to", domain=COMPLEX)
def _to(n: Aten, x: Value) -> Value:
    return _pairs(n, x, n.op("fill_like", x))


@aten("abs", domain=COMPLEX)
def _abs(n: Aten, x: Value) -> Value:
    return n.op("norm", x, axes=[x.ndim - 1])


@aten("_conj", "conj", "_conj_physical", domain=COMPLEX)
def _conj(n: Aten, x: Value) -> Value:
    return n.op("mul", x, n.const([1, -1], x.dtype))


@aten("mul", domain=COMPLEX)
def _mul(n: Aten, x: Value, y: Any) -> Value:
    (a, b), (c, d) = _halves(n, x), _halves(n, y)
    real = n.op("sub", n.op("mul", a, c), n.op("mul", b, d))
    return _pairs(n, real, n.op("add", n.op("mul", a, d), n.op("mul", b, c)))
