"""Softmax, its logarithm, and hardmax, along any axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import beside

FEW = 32
"""Up to so many columns NumPy reduces a transposed copy faster than the rows themselves."""
_PIECE = 1 << 16
"""Elements of a piece whose rows stay in the cache: 256 KB of float32."""

_AXIS = AttrSpec("axis", "int", "axis along which the elements compete", -1)


def _rule(s: ShapeArgs) -> None:
    shape = s["x"]
    dtype = s.floats("x")
    axis = s.axis(s.attrs["axis"], len(shape))
    if shape[axis] == 0:
        s.fail(f"axis {s.attrs['axis']} of x has no elements")
    s.set("out", (shape, dtype))


def _reduced(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """`shape` with 1 in place of the axis."""
    axis %= len(shape)
    return (*shape[:axis], 1, *shape[axis + 1 :])


def _pieces(k: KernelArgs, *arrays: Any) -> list[tuple[tuple[Any, ...], Any, Any]]:
    """The rows of matrices in pieces that stay in the cache from one function to the next.

    Returns:
        For each piece its part of every array, scratch memory like it, and such memory reduced
        along the axis. One piece where the matrices lie elsewhere, or elements compete along
        another axis.
    """
    first = arrays[0]
    axis = k.attrs["axis"]
    rows = step = first.shape[0] if first.ndim else 0
    if k.xp is np and first.ndim == 2 and axis % 2 == 1:
        step = max(1, min(rows, _PIECE // first.shape[1]))
    shape = (step, *first.shape[1:])
    # All pieces take turns in the same scratch memory, so that it stays in the cache, too.
    like = k.scratch(shape, first.dtype)
    edge = k.scratch(_reduced(shape, axis), first.dtype)
    if step == rows:
        return [(arrays, like, edge)]
    spans = [slice(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
    sizes = [span.stop - span.start for span in spans]
    return [
        (tuple(array[span] for array in arrays), like[:size], edge[:size])
        for span, size in zip(spans, sizes, strict=True)
    ]


softmax = operator(
    "softmax",
    doc="Softmax: out = exp(x) / sum(exp(x)) along `axis`; the maximum is taken off first.",
    inputs=[Slot("x", "any shape", not_in_gradient=True)],
    outputs=[Slot("out", "shape of x", inplace="x")],
    attrs=[_AXIS],
    shape=_rule,
    rows=beside("axis"),
)


@softmax.kernel
def softmax_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    axis = k.attrs["axis"] % k["x"].ndim
    work = out
    target = out
    before = None
    if xp is np and x.ndim == 2 and axis == 1 and x.shape[1] <= FEW:
        work = k.scratch(x.shape[::-1], x.dtype)
        before = partial(xp.copyto, work, x.T)
        x = work
        target = out.T
        axis = 0
    edge = k.scratch(_reduced(x.shape, axis), x.dtype)
    maximum, subtract, exp, total, divide = x.max, xp.subtract, xp.exp, work.sum, xp.divide

    def run() -> None:
        maximum(axis, edge, True)
        subtract(x, edge, work)
        exp(work, work)
        # `edge` has done its work as the maximum and takes the sum, at least 1 for its term exp(0).
        total(axis, None, edge, True)
        divide(work, edge, target)

    return in_order(before, run)


@softmax.backward("x", inplace={"x_grad": "out_grad"})
def softmax_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    axis = k.attrs["axis"]
    weighted = k.scratch(out.shape, out.dtype)
    edge = k.scratch(_reduced(out.shape, axis), out.dtype)
    multiply, subtract, total = xp.multiply, xp.subtract, weighted.sum

    def run() -> None:
        # The sum is complete before x_grad, which may be the memory of grad, is written.
        multiply(grad, out, weighted)
        total(axis, None, edge, True)
        subtract(grad, edge, x_grad)
        multiply(x_grad, out, x_grad)

    return run


log_softmax = operator(
    "log_softmax",
    doc="Logarithm of softmax: out = x - log(sum(exp(x))) along `axis`, in a form that is stable.",
    inputs=[Slot("x", "any shape", not_in_gradient=True)],
    outputs=[Slot("out", "shape of x", inplace="x")],
    attrs=[_AXIS],
    shape=_rule,
    rows=beside("axis"),
)


@log_softmax.kernel
def log_softmax_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    axis = k.attrs["axis"]
    pieces = _pieces(k, k["x"], k["out"])
    subtract, exp, log = xp.subtract, xp.exp, xp.log

    def run() -> None:
        for (x, out), exps, edge in pieces:
            x.max(axis, edge, True)
            subtract(x, edge, out)
            exp(out, exps)
            exps.sum(axis, None, edge, True)
            # The sum is at least 1, as the largest term is exp(0): this is no logarithm of 0.
            log(edge, edge)
            subtract(out, edge, out)

    return run


@log_softmax.backward("x", inplace={"x_grad": "out_grad"})
def log_softmax_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    axis = k.attrs["axis"]
    pieces = _pieces(k, k["out"], k["out_grad"], k["x_grad"])
    multiply, subtract, exp = xp.multiply, xp.subtract, xp.exp

    def run() -> None:
        for (out, grad, x_grad), shares, edge in pieces:
            # exp(out) is the softmax again, so training keeps neither x nor the sums.
            exp(out, shares)
            grad.sum(axis, None, edge, True)
            multiply(shares, edge, shares)
            subtract(grad, shares, x_grad)

    return run


hardmax = operator(
    "hardmax",
    doc="One at the largest element along `axis` (the first of several), zero elsewhere.",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", "shape of x", inplace="x")],
    attrs=[_AXIS],
    source="CNTK: Hardmax in Source/ComputationNetworkLib/NonlinearityNodes.h",
    shape=_rule,
    no_gradient="it is piecewise constant",
    rows=beside("axis"),
)


@hardmax.kernel
def hardmax_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    axis = k.attrs["axis"]
    axis %= x.ndim
    largest = k.scratch(_reduced(x.shape, axis), xp.intp)
    hit = k.scratch(x.shape, bool)
    numbers = xp.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    flat = largest.squeeze(axis)

    def run() -> None:  # a comparison with the maximum would hit all of several equal ones
        # x is read to its end before `out`, which may be the same memory, is written.
        xp.argmax(x, axis, out=flat)
        xp.equal(numbers, largest, out=hit)
        xp.copyto(out, hit)

    return run
