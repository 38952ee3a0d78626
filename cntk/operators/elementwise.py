"""Functions of elements that differ from the usual ones at the edges of where they are defined.

Source: CNTK's `Math/TensorOps.h`.
"""

from __future__ import annotations

from functools import partial

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import reducing
from ...operators.base.derived import derived_kernel
from ...operators.math.elementwise_math import unary

SOURCE = "CNTK: Source/Math/TensorOps.h"
SMALLEST = 1e-37  # logarithms of smaller numbers are LOG_OF_SMALLEST
LOG_OF_SMALLEST = -85.1

log = unary(
    "cntk.log",
    "Natural logarithm, -85.1 below 1e-37 (also of negative numbers).",
    f"x < {SMALLEST} ? {LOG_OF_SMALLEST} : log(x)",
    # CNTK: goes on below 1e-37, where the value is flat
    gradient="out_grad * exp(-out)",
    source=SOURCE,
)

sqrt = unary(
    "cntk.sqrt",
    "Square root; 0 of negative numbers.",
    "sqrt(x > 0 ? x : 0)",
    # CNTK: divides by 0 below 0
    gradient="out_grad / (out + out)",
    source=SOURCE,
)

reciprocal = unary(
    "cntk.reciprocal",
    "out = 1 / x; 0 of 0.",
    "x == 0 ? 0 : 1 / x",
    # by out, so that x may be overwritten
    gradient="-out_grad * out * out",
    source=SOURCE,
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
log_plus.kernel(derived_kernel)


@log_plus.backward("x", "y")
def log_plus_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    grad = k["out_grad"]
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
