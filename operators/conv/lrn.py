"""Local response normalization across channels."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .windows import Axis

lrn = operator(
    "lrn",
    doc="Local response normalization of [N, C, ...]: out = x / base**beta, where base = k +"
    " alpha / size * (sum of x**2 over `size` neighboring channels; size // 2 of them before).",
    inputs=[Slot("x", "[N, C, ...]")],
    outputs=[Slot("out", "shape of x"), Slot("base", "shape of x", intermediate=True)],
    attrs=[
        AttrSpec("size", "int", "number of neighboring channels", 5, 1),
        AttrSpec("alpha", "float", "weight of the sum of squares", 1e-4),
        AttrSpec("beta", "float", "exponent", 0.75),
        AttrSpec("k", "float", "term added to the sum", 1.0),
    ],
    source="Krizhevsky, Sutskever and Hinton 2012; defaults as in PyTorch",
)


@lrn.shape_rule
def lrn_shape(s: ShapeArgs) -> None:
    x = s["x"]
    dtype = s.floats("x")
    if len(x) < 2:
        s.fail("x wants at least 2 dimensions")
    s.set("out", (x, dtype))
    s.set("base", (x, dtype))


def _window_sum(k: KernelArgs, source: Any, target: Any, *, transposed: bool = False) -> Call:
    """target = sums of neighboring channels; `transposed`: back to where each came from."""
    size = k.attrs["size"]
    channels = source.shape[1]
    before = size // 2
    after = (size - 1) // 2
    # For an even size the window is lopsided, and its transpose leans the other way.
    axis = Axis(size, before=after if transposed else before, after=before if transposed else after)
    calls: list[Call] = [partial(target.fill, 0)]
    for tap in range(size):
        here, there = axis.span(tap, channels, channels)
        part = target[:, here]
        if part.size:
            calls.append(partial(k.xp.add, part, source[:, there], out=part))
    return in_order(*calls)


@lrn.kernel
def lrn_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    base = k.get("base")
    number = x.dtype.type
    if base is None:
        base = k.scratch(x.shape, x.dtype)
    return in_order(
        # Squares lie in `out`, which is free until the power is taken.
        partial(xp.multiply, x, x, out=out),
        _window_sum(k, out, base),
        partial(xp.multiply, base, number(k.attrs["alpha"] / k.attrs["size"]), out=base),
        partial(xp.add, base, number(k.attrs["k"]), out=base),
        # One power and a product: a power and a division cost more.
        partial(xp.power, base, number(-k.attrs["beta"]), out=out),
        partial(xp.multiply, out, x, out=out),
    )


@lrn.backward("x")
def lrn_grad_kernel(k: KernelArgs) -> Call:
    """x_grad = out_grad / base**beta - factor * x * sum over windows of out_grad * out / base."""
    xp, x, out, base, grad, x_grad = (
        k.xp,
        *(k[slot] for slot in ("x", "out", "base", "out_grad", "x_grad")),
    )
    number = x.dtype.type
    share, total = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    factor = 2 * k.attrs["alpha"] * k.attrs["beta"] / k.attrs["size"]
    return in_order(
        partial(xp.multiply, grad, out, out=share),
        partial(xp.divide, share, base, out=share),
        _window_sum(k, share, total, transposed=True),
        partial(xp.multiply, total, x, out=total),
        partial(xp.multiply, total, number(factor), out=total),
        # Not out / x, which is 0 / 0 where x is 0.
        partial(xp.power, base, number(-k.attrs["beta"]), out=share),
        partial(xp.multiply, share, grad, out=x_grad),
        partial(xp.subtract, x_grad, total, out=x_grad),
    )
