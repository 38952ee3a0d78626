"""Elementwise operators that neither a name in ONNX nor an expression is enough for."""

from __future__ import annotations

from typing import Any

from ..emission import Emission, emits
from ..expressions import print_expressions


@emits("dropout", "cntk.with_sequences")
def passed_on(e: Emission) -> None:
    e.set("out", e["x"])


@emits("cast")
def cast(e: Emission) -> None:
    e.set("out", e["x"] if e.dtype("x") == e.attrs["dtype"] else e.cast(e["x"], e.attrs["dtype"]))


@emits("glu")
def glu(e: Emission) -> None:
    axis = e.axis()
    half = e.shape("x")[axis] // 2
    if half < 0:
        e.refuse("the size of the axis that it halves is not known; declare it")
    first, gate = e.split(e["x"], axis, [half, half])
    e.set("out", e.node("Mul", first, e.node("Sigmoid", gate)))


@emits("prelu")
def prelu(e: Emission) -> None:
    slope = e["w"]
    rank = e.rank("x")
    if e.shape("w") != (1,) and rank > 2:
        slope = e.reshape(slope, -1, *(1,) * (rank - 2))
    if rank:
        e.set("out", e.node("PRelu", e["x"], slope))
    else:
        e.set("out", e.squeeze(e.node("PRelu", e.unsqueeze(e["x"], 0), slope), 0))


def _guarded(e: Emission, compute: Any) -> str:
    """Of integers the result is 0 where y is; runtimes stop there."""
    zero, one = e.const(0), e.const(1)
    is_zero = e.node("Equal", e["y"], zero)
    quotient = compute(e["x"], e.node("Where", is_zero, one, e["y"]))
    return e.node("Where", is_zero, zero, quotient)


@emits("fmod", "mod")
def remainder(e: Emission) -> None:
    if e.is_float():
        print_expressions(e)
        return
    truncated = int(e.op.type == "fmod")
    e.set("out", _guarded(e, lambda x, y: e.node("Mod", x, y, fmod=truncated)))


@emits("floor_divide")
def floor_divide(e: Emission) -> None:
    if e.is_float():
        e.set("out", e.node("Floor", e.node("Div", e["x"], e["y"])))
        return

    def quotient(x: str, y: str) -> str:
        return e.node("Div", e.node("Sub", x, e.node("Mod", x, y)), y)

    e.set("out", _guarded(e, quotient))
