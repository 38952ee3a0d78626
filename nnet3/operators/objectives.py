"""Objective functions of output nodes: their value and its derivative by the output."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.sizes.shape import ShapeArgs
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


_XENT = ("xent_output", "xent_deriv", "xent_totals")

SEQUENCE_INPUTS = (
    Slot("deriv_weights", "[N]: factor of each row's derivative", optional=True),
    Slot("xent_output", "[N, D]: log-probabilities", optional=True),
)


def sequence_outputs(totals: int) -> list[Slot]:
    """The outputs of an objective of whole sequences; `totals`: how many numbers it sums."""
    return [
        Slot("deriv", "[N, D]"),
        Slot("totals", f"[{totals}]"),
        Slot("xent_deriv", "[N, D]", optional=True),
        Slot("xent_totals", "[2]", optional=True),
    ]


def set_sequence_outputs(s: ShapeArgs, totals: int) -> None:
    """Check `SEQUENCE_INPUTS`, and set the outputs for an output [N, D] of the network."""
    shape = s.rank("output", 2)
    dtype = s.floats("output")
    if s.has("deriv_weights"):
        s.same_shape("deriv_weights and [N]", s["deriv_weights"], shape[:1])
    s.set("deriv", (shape, dtype))
    s.set("totals", ((totals,), np.dtype(np.float64)))
    present = [slot for slot in _XENT if s.has(slot)]
    if present and len(present) < len(_XENT):
        raise ShapeError(f"want all of {', '.join(_XENT)} or none, not {', '.join(present)} alone")
    if present:
        s.set("xent_deriv", (s.same_shape("outputs", shape, s["xent_output"]), dtype))
        s.set("xent_totals", ((2,), np.dtype(np.float64)))


def store_sequence(
    k: KernelArgs, totals: tuple[float, ...], deriv: Any, xent_deriv: Any | None
) -> None:
    """Write an objective's results; derivatives are multiplied by the weights of their rows.

    Args:
        totals: numbers of the objective, the weight of the frames first.
        xent_deriv: None where the cross-entropy is not wanted.
    """
    for place, value in enumerate(totals):
        k["totals"][place] = value
    xp = k.xp
    row_weights = k.get("deriv_weights")
    k["deriv"][...] = deriv
    if row_weights is not None:
        xp.multiply(k["deriv"], row_weights[:, None], out=k["deriv"])
    if xent_deriv is not None:
        scaled = k["xent_deriv"]
        k["xent_totals"][0] = totals[0]
        k["xent_totals"][1] = xp.vdot(k["xent_output"], xent_deriv)
        xp.multiply(xent_deriv, scaled.dtype.type(k.attrs["xent_regularize"]), scaled)
        if row_weights is not None:
            xp.multiply(scaled, row_weights[:, None], out=scaled)
