"""Functions of elements that differ from the usual ones at the edges of where they are defined.

Source: CNTK's `Math/TensorOps.h`.
"""

from __future__ import annotations

from functools import partial

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import in_order, reducing
from ...operators.math.elementwise_math import gradient, unary

SOURCE = "CNTK: Source/Math/TensorOps.h"
SMALLEST = 1e-37  # logarithms of what is less are LOG_OF_SMALLEST
LOG_OF_SMALLEST = -85.1

log = unary(
    "cntk.log",
    "Natural logarithm, -85.1 below 1e-37 (also of negative numbers).",
    "x < 1e-37 ? -85.1 : log(x)",
    reads="out",
    source=SOURCE,
)


@log.kernel
def log_kernel(k: KernelArgs) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    real = x.dtype.type
    small = k.scratch(x.shape, bool)

    def run() -> None:
        xp.less(x, real(SMALLEST), small)
        xp.maximum(x, real(SMALLEST), out=out)
        xp.log(out, out)
        xp.copyto(out, real(LOG_OF_SMALLEST), where=small)

    return run


@gradient(log, "out_grad * exp(-out)")
def log_grad_kernel(k: KernelArgs) -> Call:
    xp, out = k.xp, k["out"]
    slope = k.scratch(out.shape, out.dtype)
    return in_order(
        partial(xp.negative, out, slope),
        partial(xp.exp, slope, slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


sqrt = unary(
    "cntk.sqrt",
    "Square root; 0 of negative numbers.",
    "x > 0 ? sqrt(x) : 0",
    reads="out",
    source=SOURCE,
)


@sqrt.kernel
def sqrt_kernel(k: KernelArgs) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    return in_order(partial(xp.maximum, x, x.dtype.type(0), out=out), partial(xp.sqrt, out, out))


@gradient(sqrt, "out_grad / (out + out)")
def sqrt_grad_kernel(k: KernelArgs) -> Call:
    xp, x_grad = k.xp, k["x_grad"]
    return in_order(
        partial(xp.divide, k["out_grad"], k["out"], x_grad),
        partial(xp.multiply, x_grad, x_grad.dtype.type(0.5), x_grad),
    )


reciprocal = unary(
    "cntk.reciprocal",
    "out = 1 / x; 0 of 0.",
    "x == 0 ? 0 : 1 / x",
    reads="out",
    source=SOURCE,
)


@reciprocal.kernel
def reciprocal_kernel(k: KernelArgs) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    zero = k.scratch(x.shape, bool)
    return in_order(
        partial(xp.equal, x, x.dtype.type(0), zero),
        partial(xp.reciprocal, x, out),
        partial(xp.copyto, out, out.dtype.type(0), where=zero),
    )


@gradient(reciprocal, "-out_grad * out * out")
def reciprocal_grad_kernel(k: KernelArgs) -> Call:
    xp, out, x_grad = k.xp, k["out"], k["x_grad"]
    return in_order(
        partial(xp.multiply, k["out_grad"], out, x_grad),
        partial(xp.multiply, x_grad, out, x_grad),
        partial(xp.negative, x_grad, x_grad),
    )


def _binary_rule(s: ShapeArgs) -> None:
    s.set("out", (s.broadcast(s["x"], s["y"]), s.floats("x", "y")))


log_plus = operator(
    "cntk.log_plus",
    doc="Sum of numbers given by their logarithms: out = log(exp(x) + exp(y)). Shapes broadcast.",
    inputs=[Slot("x", "any shape"), Slot("y", "any shape")],
    outputs=[Slot("out", "the shape that x and y broadcast to")],
    source=SOURCE,
    shape=_binary_rule,
    scalar="x == y ? x + 0.6931471805599453 : (x > y ? x : y) + log1p(exp(-fabs(x - y)))",
)


@log_plus.kernel
def log_plus_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.logaddexp, k["x"], k["y"], out=k["out"])


@log_plus.backward("x", "y")
def log_plus_grad_kernel(k: KernelArgs) -> Call:
    xp, out, grad = k.xp, k["out"], k["out_grad"]
    calls: list[Call | None] = []
    for slot in ("x", "y"):
        target = k.get(f"{slot}_grad")
        if target is None:
            continue
        share = k.scratch(out.shape, out.dtype)
        calls += [
            partial(xp.subtract, k[slot], out, share),
            partial(xp.exp, share, share),
            partial(xp.multiply, share, grad, share),
            reducing(xp, share, target),
        ]
    return in_order(*calls)
