"""Complex tensors: pairs of floats along an axis of their own, the last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....onnx.importing.calls import Value
from ..calls import COMPLEX, Aten, Ref, aten

_BY_HALVES = (
    "add", "broadcast_to", "cat", "chunk", "concat", "constant_pad_nd", "copy", "cumsum", "detach",
    "expand", "expand_as", "flip", "full", "full_like", "gather", "hstack", "index", "index_put",
    "index_select", "masked_fill", "mean", "movedim", "mT", "narrow", "neg", "new_full",
    "new_zeros", "numpy_T", "pad", "permute", "repeat", "repeat_interleave", "reshape", "roll",
    "rsub", "select", "select_scatter", "slice", "slice_scatter", "split", "split_with_sizes",
    "squeeze", "stack", "sub", "sum", "swapaxes", "swapdims", "sym_numel", "sym_size", "t", "tile",
    "transpose", "tril", "triu", "unbind", "unsqueeze", "vstack", "view", "where", "zeros",
    "zeros_like",
)  # fmt: skip
"""Operators that do with both parts what they do with real numbers."""
_NUMBERS = ("self", "other", "value", "fill_value")
"""Arguments of these whose numbers have two parts; others, such as sizes, go with both."""
_PLACES = ("condition", "index", "indices", "mask")
"""Arguments of these that say where; other tensors of real numbers have zeros for a second part."""


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


@aten("view_as_real", "view_as_complex", "alias", "clone", "contiguous", "lift_fresh",
      "lift_fresh_copy", "resolve_conj", "resolve_neg", domain=COMPLEX)  # fmt: skip
def _same(n: Aten, x: Value) -> Value:
    return x


@aten("real", "imag", domain=COMPLEX)
def _half(n: Aten, x: Value) -> Value:
    return _halves(n, x)[n.name == "imag"]


@aten("complex", domain=COMPLEX)
def _composed(n: Aten, x: Value, y: Value) -> Value:
    return _pairs(n, x, y)


@aten("polar", domain=COMPLEX)
def _turned(n: Aten, x: Value, y: Value) -> Value:
    return _pairs(n, *(n.op("mul", x, n.op(turn, y)) for turn in ("cos", "sin")))


@aten("_to_copy", "to", "type_as", domain=COMPLEX)
def _to(n: Aten, x: Value) -> Value:
    if n.given["self"].is_pair:
        return n.cast(x if n.pairs[0] else _halves(n, x)[0], n.dtypes[0])
    return _with_zeros(n, n.cast(x, n.dtypes[0]))


@aten("abs", domain=COMPLEX)
def _abs(n: Aten, x: Value) -> Value:
    return n.op("norm", x, axes=[x.ndim - 1])


@aten("angle", domain=COMPLEX)
def _angle(n: Aten, x: Value) -> Value:
    real, imaginary = _halves(n, x)
    return n.op("atan2", imaginary, real)


@aten("exp", domain=COMPLEX)
def _exp(n: Aten, x: Value) -> Value:
    real, imaginary = _halves(n, x)
    return _turned(n, n.op("exp", real), imaginary)


@aten("_conj", "conj", "_conj_physical", "conj_physical", domain=COMPLEX)
def _conj(n: Aten, x: Value) -> Value:
    return n.op("mul", x, n.const([1, -1], x.dtype))


def _with_zeros(n: Aten, x: Value) -> Value:
    """Complex numbers that have no imaginary part."""
    return _pairs(n, x, n.op("fill_like", x, value=0.0))


@aten("ones", "ones_like", "new_ones", domain=COMPLEX)
def _ones(n: Aten) -> Value:
    like = {"self": _parts(n, n.given["self"])[0]} if "self" in n.given else {}
    return _with_zeros(n, n.of_reals(like))


@aten(*_BY_HALVES, domain=COMPLEX)
def _by_halves(n: Aten) -> Any:
    def half(name: str, given: Any, k: int) -> Any:
        if isinstance(given, list):
            return [half(name, one, k) for one in given]
        if isinstance(given, Ref) and given.is_pair:
            return _halves(n, n.resolved(given))[k]
        if not isinstance(given, Ref) or given.is_size:
            number = n.resolved(given)
            if name in _NUMBERS and number is not None:
                return (complex(number).real, complex(number).imag)[k]
            n.refuse_unless(not isinstance(number, complex), f"a complex number as {name}")
            return number
        value = n.resolved(given)
        return value if k == 0 or name in _PLACES else n.op("fill_like", value, value=0.0)

    def made(k: int) -> Any:
        return n.of_reals({name: half(name, given, k) for name, given in n.given.items()})

    real = made(0)
    if not any(n.pairs):  # a size, or what a tensor of real numbers takes over
        return real
    if not isinstance(real, list):
        return _pairs(n, real, made(1))
    return [_pairs(n, *both) for both in zip(real, made(1), strict=True)]


def _parts(n: Aten, given: Any) -> tuple[Any, Any]:
    """Both parts of an argument; the second one of real numbers is None."""
    value = n.resolved(given)
    if isinstance(value, Value):
        real, imaginary = _halves(n, value) if given.is_pair else (value, None)
        return real, imaginary
    return complex(value).real, complex(value).imag or None


@aten("mul", "matmul", "mm", "bmm", "mv", "dot", "outer", "einsum", domain=COMPLEX)
def _product(n: Aten) -> Value:
    names = [name for name in n.given if name != "equation"][:2]
    together = n.name == "einsum"
    factors = n.given["tensors"] if together else [n.given[name] for name in names]
    n.refuse_unless(len(factors) == 2, f"a product of {len(factors)} complex tensors")

    def times(x: Any, y: Any) -> Value | None:
        if x is None or y is None:
            return None
        both = {"tensors": [x, y]} if together else dict(zip(names, (x, y), strict=True))
        return n.of_reals(both)

    (a, b), (c, d) = (_parts(n, one) for one in factors)
    real, less, across, down = times(a, c), times(b, d), times(a, d), times(b, c)
    if less is not None:
        real = n.op("sub", real, less)
    if across is not None and down is not None:
        across = n.op("add", across, down)
    imaginary = down if across is None else across
    assert real is not None
    return _with_zeros(n, real) if imaginary is None else _pairs(n, real, imaginary)


@aten("div", "true_divide", "divide", "reciprocal", domain=COMPLEX)
def _quotient(n: Aten) -> Value:
    """By Smith's algorithm, which squares nothing: |y|^2 leaves float32 long before y does.

    Source: R. L. Smith, "Algorithm 116: Complex division", Communications of the ACM, 1962.
    """
    inverse = n.name == "reciprocal"
    a, b = (1.0, None) if inverse else _parts(n, n.given["self"])
    c, d = _parts(n, n.given["self" if inverse else "other"])
    a, b, c, d = (
        n.const(one, n.dtypes[0]) if isinstance(one, int | float)
        else None if one is None else n.cast(one, n.dtypes[0])
        for one in (a, b, c, d)
    )  # fmt: skip
    if d is None:
        real = n.op("div", a, c)
        return _with_zeros(n, real) if b is None else _pairs(n, real, n.op("div", b, c))
    zero = n.const(0, n.dtypes[0])
    b = zero if b is None else b
    first = n.op("greater_equal", n.op("abs", c), n.op("abs", d))
    larger, smaller = n.op("where", first, c, d), n.op("where", first, d, c)
    # Of y = 0 as well, which makes infinity of all but 0.
    share = n.op("where", n.op("equal", larger, zero), zero, n.op("div", smaller, larger))
    whole = n.op("add", larger, n.op("mul", smaller, share))
    real = n.op("where", first, n.op("add", a, n.op("mul", b, share)),
                n.op("add", n.op("mul", a, share), b))  # fmt: skip
    imaginary = n.op("where", first, n.op("sub", b, n.op("mul", a, share)),
                     n.op("sub", n.op("mul", b, share), a))  # fmt: skip
    return _pairs(n, n.op("div", real, whole), n.op("div", imaginary, whole))
