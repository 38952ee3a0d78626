"""Softmax over the rows of each sequence."""

from __future__ import annotations

from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from .sequences import gather, levels_of, offsets_in, reduce_groups, sequence_of_row

sequence_softmax = operator(
    "sequence_softmax",
    doc=(
        "Softmax over the rows of each sequence: out[t] = exp(x[t]) / sum of exp(x) over the"
        " sequence of row t, each column for itself. x and out are [N, ...]; the maximum is taken"
        " off first. Of several levels the innermost counts."
    ),
    inputs=[Slot("x", "sequences [N, ...]", not_in_gradient=True)],
    outputs=[Slot("out", "sequences [N, ...]", inplace="x")],
    source="Paddle: paddle/operators/sequence_softmax_op.cc",
)


@sequence_softmax.shape_rule
def sequence_softmax_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    s.set("out", (s["x"], s.floats("x")))
    s.set_offsets("out", levels)


def _parts(k: KernelArgs, x: Any) -> tuple[Any, Any, Any, Any]:
    """Offsets, scratch for a row of each sequence, for their rows, and the call between these."""
    offsets = offsets_in(k, "x")
    # One pair of arrays serves twice: for the maxima, and, when these are taken off, for the sums.
    # An empty sequence has an edge of 0 that no row reads.
    edge = k.scratch((len(offsets) - 1, *x.shape[1:]), x.dtype)
    spread = k.scratch(x.shape, x.dtype)
    return offsets, edge, spread, gather(k, edge, sequence_of_row(offsets), spread)


@sequence_softmax.kernel
def sequence_softmax_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    if not x.size:
        return nothing
    offsets, edge, spread, expand = _parts(k, x)
    maximum = reduce_groups(k, xp.maximum, x, offsets, edge)
    total = reduce_groups(k, xp.add, out, offsets, edge)
    subtract, exp, divide = xp.subtract, xp.exp, xp.divide

    def run() -> None:
        maximum()
        expand()
        # x is not read after this, so out may have its memory. The maximum comes off before exp,
        # which could overflow; it cancels in the quotient.
        subtract(x, spread, out)
        exp(out, out)
        total()
        expand()
        divide(out, spread, out)

    return run


@sequence_softmax.backward("x", inplace={"x_grad": "out_grad"})
def sequence_softmax_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    if not out.size:
        return nothing
    offsets, edge, spread, expand = _parts(k, out)
    # Not in x_grad: that may be the memory of out_grad, which is read once more after the sum.
    weighted = k.scratch(out.shape, out.dtype)
    total = reduce_groups(k, xp.add, weighted, offsets, edge)
    multiply, subtract = xp.multiply, xp.subtract

    def run() -> None:
        multiply(grad, out, weighted)
        total()
        expand()
        subtract(grad, spread, x_grad)
        multiply(x_grad, out, x_grad)

    return run
