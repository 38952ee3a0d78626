"""Running sums and products along an axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import beside

_INT64 = np.dtype("int64")


def _running_rule(s: ShapeArgs) -> None:
    s.axis(s.attrs["axis"], len(s["x"]))
    dtype = s.dtype("x")
    s.set("out", (s["x"], dtype if is_float(dtype) else _INT64))


def _along_last(k: KernelArgs, *slots: str) -> tuple[Any, ...]:
    """Views of arrays with the axis to run along at the end, and running forwards."""
    views = (k.xp.moveaxis(k[slot], k.attrs["axis"], -1) for slot in slots)
    return tuple(a[..., ::-1] if k.attrs["reverse"] else a for a in views)


def _accumulating(k: KernelArgs, function: str, first: int) -> Call:
    """A call of `cumsum` or `cumprod`, which begins with `first` where x[i] itself is left out."""
    accumulate = getattr(k.xp, function)
    x, out = _along_last(k, "x", "out")
    if not k.attrs["exclusive"]:
        return partial(accumulate, x, -1, out.dtype, out)
    following = partial(accumulate, x[..., :-1], -1, out.dtype, out[..., 1:])
    beginning = out[..., :1]

    def run() -> None:
        beginning.fill(first)
        following()

    return run


cumsum = operator(
    "cumsum",
    doc="Running sum along an axis: out[i] = x[0] + ... + x[i]. Integers are summed as int64.",
    inputs=[Slot("x", "any shape", not_in_gradient=True)],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[
        AttrSpec("axis", "int", "axis to sum along", -1),
        AttrSpec("exclusive", "bool", "leave x[i] itself out of out[i]", False),
        AttrSpec("reverse", "bool", "sum from the end: out[i] = x[i] + ... + x[n-1]", False),
    ],
    shape=_running_rule,
    rows=beside("axis"),
)


@cumsum.kernel
def cumsum_kernel(k: KernelArgs) -> Call:
    return _accumulating(k, "cumsum", 0)


@cumsum.gradient_maker
def cumsum_gradient(g: GradientArgs) -> list[OpNode]:
    # x[i] is a term of every later sum, so its gradient is a running sum from the other end.
    attrs = {**g.attrs, "reverse": not g.attrs.get("reverse", False)}
    return [g.op("cumsum", {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, attrs)]


cumprod = operator(
    "cumprod",
    doc="Running product along an axis: out[i] = x[0] * ... * x[i]. Integers are multiplied as"
    " int64. The gradient is also right for zeros.",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    attrs=[
        AttrSpec("axis", "int", "axis to multiply along", -1),
        AttrSpec("exclusive", "bool", "leave x[i] itself out of out[i]", False),
        AttrSpec("reverse", "bool", "multiply from the end: out[i] = x[i] * ... * x[n-1]", False),
    ],
    shape=_running_rule,
    rows=beside("axis"),
)


@cumprod.kernel
def cumprod_kernel(k: KernelArgs) -> Call:
    return _accumulating(k, "cumprod", 1)


@cumprod.backward("x")
def cumprod_grad_kernel(k: KernelArgs) -> Call:
    """x_grad[i] = (x[0] ... x[i-1]) s[i], where s[i] = out_grad[i] + x[i+1] s[i+1].

    No division by x, so a zero does no harm. Where x[i] is left out of out[i], the sum s[i] begins
    with out_grad[i+1].
    """
    xp = k.xp
    x, out_grad, x_grad = _along_last(k, "x", "out_grad", "x_grad")
    size = x.shape[-1]
    late = int(k.attrs["exclusive"])
    # In contiguous memory, with a row for each place along the axis.
    rows, suffix = (k.scratch((size, *x.shape[:-1]), x.dtype) for _ in range(2))
    before = k.scratch(x.shape, x.dtype)
    product = k.scratch(x.shape[:-1], x.dtype)
    arriving = xp.moveaxis(out_grad, -1, 0)[late:]
    steps: list[Call] = [
        partial(xp.copyto, rows, xp.moveaxis(x, -1, 0)),
        partial(xp.copyto, suffix[: size - late], arriving),
        # With x[i] left out of out[i] the last entry is in no product.
        partial(suffix[size - late :].fill, 0),
    ]
    # Each s[i] needs s[i+1], so the axis is walked one place at a time, with all lines at once.
    for i in reversed(range(size - 1)):
        steps += [
            partial(xp.multiply, rows[i + 1, ...], suffix[i + 1, ...], product),
            partial(xp.add, suffix[i, ...], product, suffix[i, ...]),
        ]
    target = xp.moveaxis(suffix, 0, -1)

    def run() -> None:
        before[..., :1] = 1
        xp.cumprod(x[..., :-1], -1, x.dtype, before[..., 1:])
        for step in steps:
            step()
        xp.multiply(before, target, x_grad)

    return run
