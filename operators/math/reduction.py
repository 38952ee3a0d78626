"""Reductions over any axes, and the mean of everything.

`axes` names the axes to reduce (counted from the end where negative); none means all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.base.sizes.shape import ShapeArgs, ShapeRule
from ...framework.fusion.compiled.arguments import made_array
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...framework.ir.rows import beside
from ..base.calls import reducing, row_sums

REDUCTION_ATTRS = (
    AttrSpec("axes", "ints", "axes to reduce; none = all", ()),
    AttrSpec("keepdims", "bool", "keep the reduced axes with size 1", False),
)
REDUCTION_OUT = "shape of x without the reduced axes, or with size 1 there"
_SMALL = 1024  # elements up to which a dot product is the faster mean, and as exact


def reduction_rule(result: Callable[[ShapeArgs], Any], *, empty: bool = True) -> ShapeRule:
    """Shape rule of a reduction; `empty`: whether it has a value for no elements."""

    def rule(s: ShapeArgs) -> None:
        shape = s["x"]
        axes = [s.axis(axis, len(shape), "axes:") for axis in s.attrs["axes"]]
        if len(set(axes)) < len(axes):
            s.fail(f"axes {list(s.attrs['axes'])} name an axis twice")
        axes = axes or range(len(shape))
        for axis in axes:
            if shape[axis] == 0 and not empty:
                s.fail(f"there is no element along axis {axis}, and so no result")
        if s.attrs["keepdims"]:
            out = [1 if axis in axes else dim for axis, dim in enumerate(shape)]
        else:
            out = [dim for axis, dim in enumerate(shape) if axis not in axes]
        s.set("out", (out, result(s)))

    return rule


def _floats(s: ShapeArgs) -> np.dtype:
    return s.floats("x")


def _same(s: ShapeArgs) -> np.dtype:
    return s.dtype("x")


def _total(s: ShapeArgs) -> np.dtype:
    """Of a sum or product: int64 for integers and booleans, as in NumPy."""
    dtype = s.dtype("x")
    return dtype if is_float(dtype) else np.dtype("int64")


def reduced_axes(k: KernelArgs) -> tuple[int, ...]:
    """The axes of x that the operator reduces, counted from the front."""
    rank = len(k.shape("x"))
    return tuple(sorted(axis % rank for axis in k.attrs["axes"])) or tuple(range(rank))


def kept(k: KernelArgs, array: Any) -> Any:
    """`array`, which has the shape of out, with every reduced axis at size 1."""
    axes = reduced_axes(k)
    return array.reshape([1 if a in axes else dim for a, dim in enumerate(k.shape("x"))])


def _reduction(
    op_type: str, doc: str, result: Any, *, empty: bool = True, keeps: bool = False
) -> OperatorDef:
    """Register a reduction; `keeps`: its gradient reads x and out."""
    return operator(
        op_type,
        doc=doc,
        inputs=[Slot("x", "any shape", not_in_gradient=not keeps)],
        outputs=[Slot("out", REDUCTION_OUT, not_in_gradient=not keeps)],
        attrs=REDUCTION_ATTRS,
        shape=reduction_rule(result, empty=empty),
        rows=beside("axes"),
    )


reduce_sum = _reduction(
    "reduce_sum", "Sum over axes. Integers and booleans are summed as int64.", _total
)
reduce_mean = _reduction("reduce_mean", "Arithmetic mean over axes.", _floats)
reduce_prod = _reduction(
    "reduce_prod",
    "Product over axes. Integers and booleans are multiplied as int64. The gradient is also right"
    " for zeros.",
    _total,
    keeps=True,
)
reduce_max = _reduction(
    "reduce_max",
    "Maximum over axes. Equal maxima share the gradient equally.",
    _same,
    empty=False,
    keeps=True,
)
reduce_min = _reduction(
    "reduce_min",
    "Minimum over axes. Equal minima share the gradient equally.",
    _same,
    empty=False,
    keeps=True,
)
logsumexp = _reduction(
    "logsumexp",
    "out = log(sum(exp(x))) over axes, shifted by the maximum so that nothing overflows.",
    _floats,
    empty=False,
    keeps=True,
)


@reduce_sum.kernel
def reduce_sum_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    # `reducing` gives sums over leading axes to BLAS, which has no integers.
    if is_float(x.dtype):
        return reducing(k.xp, x, kept(k, out)) or nothing
    return partial(x.sum, reduced_axes(k), out.dtype, out, k.attrs["keepdims"])


@reduce_sum.backward("x")
def reduce_sum_grad_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.copyto, k["x_grad"], kept(k, k["out_grad"]))


@reduce_mean.kernel(channels_last=(("x",),))
def reduce_mean_kernel(k: KernelArgs) -> Call:
    return _mean(k, kept(k, k["out"]))


def _mean(k: KernelArgs, out: Any) -> Any:
    """The mean of x over the axes along which `out`, of the same rank or a scalar, has size 1."""
    x = k["x"]
    share = _share(k, x.size, out.size, out.dtype)
    return in_order(reducing(k.xp, x, out) or nothing, partial(k.xp.multiply, out, share, out=out))


def _share(k: KernelArgs, elements: int, results: int, dtype: np.dtype) -> Any:
    """1 / count, the weight of one element in a mean; NaN for no elements."""
    if k.xp is not np:
        return _shares(dtype, elements, results)[0]
    return made_array(partial(_shares, dtype), dtype, 1, elements, results).reshape(())


def _shares(dtype: np.dtype, elements: int, results: int) -> np.ndarray:
    return np.array([1 / (elements // results) if elements else np.nan], dtype)


@reduce_mean.backward("x")(channels_last=(("x_grad",),))
def reduce_mean_grad_kernel(k: KernelArgs) -> Call:
    grad, out_grad = k["x_grad"], k["out_grad"]
    share = _share(k, grad.size, out_grad.size, grad.dtype)
    return partial(k.xp.multiply, kept(k, out_grad), share, out=grad)


@reduce_prod.kernel
def reduce_prod_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    return partial(k["x"].prod, reduced_axes(k), out.dtype, out, k.attrs["keepdims"])


@reduce_prod.backward("x")
def reduce_prod_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    axes = reduced_axes(k)
    order = [a for a in range(x.ndim) if a not in axes] + list(axes)
    moved = x.transpose(order)
    grad = k["x_grad"].transpose(order)
    out_grad = kept(k, k["out_grad"]).transpose(order)
    rest = moved.shape[: x.ndim - len(axes)]
    rows = int(np.prod(rest))
    size = x.size // rows if rows else 0
    before = k.scratch((rows, size), x.dtype)
    after = k.scratch((rows, size), x.dtype)

    def run() -> None:
        # Not out / x, which is 0 / 0 where x is 0.
        # The product of all other elements: of those before, times those after.
        # Inside the call: reshaping a transposed view may copy, and then of this run's values.
        flat = moved.reshape(rows, size)
        before[:, :1] = 1
        after[:, -1:] = 1
        before[:, 1:] = xp.cumprod(flat[:, :-1], axis=1)
        after[:, :-1] = xp.cumprod(flat[:, :0:-1], axis=1)[:, ::-1]
        xp.multiply(before, after, out=before)
        xp.multiply(before.reshape(moved.shape), out_grad, out=grad)

    return run


@reduce_max.kernel
def reduce_max_kernel(k: KernelArgs) -> Call:
    return partial(k["x"].max, reduced_axes(k), k["out"], k.attrs["keepdims"])


@reduce_min.kernel
def reduce_min_kernel(k: KernelArgs) -> Call:
    return partial(k["x"].min, reduced_axes(k), k["out"], k.attrs["keepdims"])


@reduce_max.backward("x")
@reduce_min.backward("x")
def reduce_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    x_grad = k["x_grad"]
    axes = reduced_axes(k)
    out, out_grad = kept(k, k["out"]), kept(k, k["out_grad"])
    chosen = k.scratch(x.shape, bool)
    share = k.scratch(out.shape, x.dtype)

    def run() -> None:
        xp.equal(x, out, out=chosen)
        # The count of equal extremes, which share the gradient; it is a float, to be divided by.
        chosen.sum(axes, share.dtype, share, True)
        xp.divide(out_grad, share, out=share)
        xp.multiply(chosen, share, out=x_grad)

    return run


@logsumexp.kernel
def logsumexp_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    axes = reduced_axes(k)
    out = kept(k, k["out"])
    peak, shifted = k.scratch(out.shape, x.dtype), k.scratch(x.shape, x.dtype)
    least, most = _finite(x.dtype)

    def run() -> None:
        x.max(axes, peak, True)
        xp.clip(peak, least, most, out=peak)  # inf - inf would be NaN
        xp.subtract(x, peak, out=shifted)
        xp.exp(shifted, out=shifted)
        shifted.sum(axes, out.dtype, out, True)
        xp.log(out, out=out)
        xp.add(out, peak, out=out)

    return run


def _finite(dtype: np.dtype) -> tuple[Any, Any]:
    info = np.finfo(dtype)
    return info.min, info.max


@logsumexp.backward("x")
def logsumexp_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    x_grad = k["x_grad"]
    out, out_grad = kept(k, k["out"]), kept(k, k["out_grad"])
    shift = k.scratch(out.shape, x.dtype)
    least = _finite(x.dtype)[0]

    def run() -> None:
        xp.maximum(out, least, out=shift)  # a row of -inf alone: no gradient, not NaN
        xp.subtract(x, shift, out=x_grad)
        xp.exp(x_grad, out=x_grad)
        xp.multiply(x_grad, out_grad, out=x_grad)

    return run


mean = operator(
    "mean",
    doc="Arithmetic mean of all elements of x, a scalar: the usual last operator of a cost.",
    inputs=[Slot("x", "any shape", not_in_gradient=True)],
    outputs=[Slot("out", "a scalar: shape []", not_in_gradient=True)],
    source="Paddle's mean_op (2017)",
)


@mean.shape_rule
def mean_shape(s: ShapeArgs) -> None:
    s.set("out", ((), s.floats("x")))


@mean.kernel
def mean_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    if 0 < x.size <= _SMALL and x.flags.c_contiguous:
        shares = k.xp.full(x.size, _shares(x.dtype, x.size, 1)[0], x.dtype)
        if k.xp is np:
            return partial(np.dot, x.reshape(-1), shares, out)
        return row_sums(k.xp, x.reshape(-1, 1), out.reshape(1), shares)
    return _mean(k, out)


@mean.backward("x")
def mean_grad_kernel(k: KernelArgs) -> Call:
    grad = k["x_grad"]
    return partial(k.xp.multiply, k["out_grad"], _share(k, grad.size, 1, grad.dtype), out=grad)
