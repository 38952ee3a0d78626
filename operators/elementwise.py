"""Elementwise operators of one input: activations and functions.

Each gives its NumPy/CuPy kernel and its scalar expression in C, from which chains are fused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..framework.registry import AttrSpec, Slot, operator
from ..framework.shape import same_as

_IN = Slot("x", "any shape", not_in_gradient=True)
_OUT = Slot("out", "shape of x", inplace="x")

relu = operator(
    "relu",
    doc="Rectified linear unit: out = max(x, 0).",
    inputs=[_IN],
    outputs=[_OUT],
    shape=same_as("x"),
    scalar="x > 0 ? x : 0",
)


@relu.kernel
def _(k: Any) -> Any:
    return partial(k.xp.maximum, k["x"], k["x"].dtype.type(0), out=k["out"])


@relu.backward(
    "x",
    scalar={"x_grad": "out > 0 ? out_grad : 0"},
    inplace={"x_grad": "out_grad"},
)
def _(k: Any) -> Any:
    xp, out, out_grad, x_grad = k.xp, k["out"], k["out_grad"], k["x_grad"]
    mask = k.scratch(out.shape, bool)

    def run() -> None:
        xp.greater(out, 0, out=mask)
        xp.multiply(out_grad, mask, out=x_grad)

    return run
