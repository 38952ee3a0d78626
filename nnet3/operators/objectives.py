"""Objective functions of output nodes: their value and its derivative by the output."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import copying

_SOURCE = "Kaldi: nnet3/nnet-training.cc (ComputeObjectiveFunction)"


def _rule(s: ShapeArgs) -> None:
    shape = s.same_shape("output and supervision", s["output"], s["supervision"])
    s.rank("output", 2)
    s.set("deriv", (shape, s.floats("output", "supervision")))
    s.set("totals", ((2,), np.dtype(np.float64)))


def _objective(name: str, doc: str) -> Any:
    return operator(
        f"nnet3.{name}_objective",
        doc=doc + " totals: the weight and the objective, float64.",
        inputs=[Slot("output", "[N, D]"), Slot("supervision", "[N, D]")],
        outputs=[Slot("deriv", "[N, D]"), Slot("totals", "[2]")],
        source=_SOURCE,
        shape=_rule,
        no_gradient="it gives the derivative itself",
    )


linear = _objective(
    "linear",
    "Sum over output * supervision: where the output is a logarithm of probabilities and the"
    " supervision holds posteriors, the cross-entropy. Its weight is the sum of the supervision,"
    " its derivative the supervision.",
)


@linear.kernel
def linear_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    output = k["output"]
    supervision = k["supervision"]
    totals = k["totals"]
    product = k.scratch(output.shape, output.dtype)

    def compute() -> None:
        totals[0] = supervision.sum(dtype=np.float64)
        totals[1] = product.sum(dtype=np.float64)

    return in_order(
        partial(xp.multiply, output, supervision, product),
        compute,
        copying(xp, supervision, k["deriv"]),
    )


quadratic = _objective(
    "quadratic",
    "Sum over -0.5 (output - supervision)^2. Its weight is the number of rows, its derivative"
    " supervision - output.",
)


@quadratic.kernel
def quadratic_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    output = k["output"]
    supervision = k["supervision"]
    totals = k["totals"]
    deriv = k["deriv"]
    square = k.scratch(output.shape, output.dtype)

    def compute() -> None:
        xp.subtract(supervision, output, out=deriv)
        xp.multiply(deriv, deriv, out=square)
        totals[0] = len(output)
        totals[1] = -0.5 * square.sum(dtype=np.float64)

    return compute
