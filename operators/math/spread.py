"""Reductions of deviations and of truth values: var, std, any, all."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...framework.ir.rows import beside
from ..base.calls import reducing
from .reduction import REDUCTION_ATTRS, REDUCTION_OUT, kept, reduced_axes, reduction_rule

# -- var, std ----------------------------------------------------------------------------------

_DDOF = AttrSpec(
    "ddof", "int", "taken from the count that divides: 0 as in NumPy, 1 as PyTorch's default", 0
)


def _spread(op_type: str, doc: str) -> OperatorDef:
    return operator(
        op_type,
        doc=f"{doc} over axes. NaN where the count is not above ddof, as for one element and"
        " ddof = 1.",
        inputs=[Slot("x", "any shape")],
        outputs=[Slot("out", REDUCTION_OUT, not_in_gradient=op_type == "reduce_var")],
        attrs=[*REDUCTION_ATTRS, _DDOF],
        shape=reduction_rule(lambda s: s.floats("x")),
        rows=beside("axes"),
    )


reduce_var = _spread("reduce_var", "Variance, sum((x - mean)^2) / (count - ddof),")
reduce_std = _spread(
    "reduce_std",
    "Standard deviation, the root of `reduce_var`, with a gradient of 0 where it is 0,",
)


def _deviations(k: KernelArgs) -> tuple[list[Call], Any, Any]:
    """Calls, x - mean(x), and memory of the shape of the means."""
    xp = k.xp
    x = k["x"]
    axes = reduced_axes(k)
    mean = k.scratch([1 if a in axes else dim for a, dim in enumerate(x.shape)], x.dtype)
    centered = k.scratch(x.shape, x.dtype)
    count = x.size / mean.size if mean.size else 1
    calls = [
        reducing(xp, x, mean),
        partial(xp.multiply, mean, x.dtype.type(1 / count if count else np.nan), mean),
        # In two passes: the mean of squares less the square of the mean cancels for a large mean.
        partial(xp.subtract, x, mean, centered),
    ]
    return [call for call in calls if call is not None], centered, mean


def _weight(k: KernelArgs, results: int, factor: float) -> Any:
    """factor / (count - ddof); NaN where that is not above 0."""
    count = int(np.prod(k.shape("x"))) / results if results else 0
    left = count - k.attrs["ddof"]
    return k["x"].dtype.type(factor / left if left > 0 else np.nan)


@reduce_var.kernel
@reduce_std.kernel
def spread_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = kept(k, k["out"])
    calls, centered, total = _deviations(k)
    calls += [
        partial(xp.multiply, centered, centered, centered),
        reducing(xp, centered, total) or partial(xp.copyto, total, centered),
        partial(xp.multiply, total, _weight(k, total.size, 1), total),
    ]
    if k.op.type == "reduce_std":
        calls.append(partial(xp.sqrt, total, total))
    return in_order(*calls, partial(xp.copyto, out, total))


@reduce_var.backward("x")
def reduce_var_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x_grad = k["x_grad"]
    calls, centered, factor = _deviations(k)
    weight = _weight(k, factor.size, 2)
    return in_order(
        *calls,
        partial(xp.multiply, kept(k, k["out_grad"]), weight, factor),
        partial(xp.multiply, centered, factor, centered),
        partial(xp.copyto, x_grad, centered),
    )


@reduce_std.backward("x")
def reduce_std_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x_grad = k["x_grad"]
    out = kept(k, k["out"])
    calls, centered, factor = _deviations(k)
    # 1 where the variance has 2: the square gives a 2, and the root takes it away.
    weight = _weight(k, factor.size, 1)
    flat = k.scratch(factor.shape, bool)
    return in_order(
        *calls,
        partial(xp.multiply, kept(k, k["out_grad"]), weight, factor),
        partial(xp.divide, factor, out, factor),
        # Of equal elements the deviation is 0 and its slope undefined: 0 instead of NaN.
        partial(xp.equal, out, out.dtype.type(0), flat),
        partial(xp.copyto, factor, out.dtype.type(0), where=flat),
        partial(xp.multiply, centered, factor, centered),
        partial(xp.copyto, x_grad, centered),
    )


# -- any, all ----------------------------------------------------------------------------------


def _bools(s: ShapeArgs) -> np.dtype:
    return np.dtype(bool)


def _quantifier(op_type: str, method: str, doc: str) -> None:
    entry = operator(
        op_type,
        doc=f"{doc}. Numbers other than 0 count as true, also NaN.",
        inputs=[Slot("x", "any shape, truth values or numbers")],
        outputs=[Slot("out", f"bool, {REDUCTION_OUT}")],
        attrs=REDUCTION_ATTRS,
        shape=reduction_rule(_bools),
        no_gradient="its result is a truth value",
        rows=beside("axes"),
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        x = k["x"]
        axes = reduced_axes(k)
        return partial(getattr(x, method), axes, out=k["out"], keepdims=k.attrs["keepdims"])


_quantifier("reduce_any", "any", "Whether any element over axes holds; False for no elements")
_quantifier("reduce_all", "all", "Whether all elements over axes hold; True for no elements")
