"""Activations with a second operand: gated linear units, and a rectifier that learns its slope."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import beside, rows_of

# -- glu ---------------------------------------------------------------------------------------

glu = operator(
    "glu",
    doc="Gated linear unit: out = a / (1 + exp(-b)), where a and b are the halves of x along an"
    " axis.",
    inputs=[Slot("x", "any shape, even along axis")],
    outputs=[Slot("out", "shape of x, half as long along axis", not_in_gradient=True)],
    attrs=[AttrSpec("axis", "int", "axis to halve", -1)],
    source="Y. N. Dauphin et al., Language modeling with gated convolutional networks",
    rows=beside("axis"),
)


@glu.shape_rule
def glu_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    dtype = s.floats("x")
    axis = s.axis(s.attrs["axis"], len(shape))
    size = shape[axis]
    if size >= 0 and size % 2:
        s.fail(f"axis {axis} of size {size} has no halves")
    s.set("out", ((*shape[:axis], -1 if size < 0 else size // 2, *shape[axis + 1 :]), dtype))


def _halves(k: KernelArgs, whole: Any) -> tuple[Any, Any]:
    axis = k.attrs["axis"] % whole.ndim
    half = whole.shape[axis] // 2
    front = (slice(None),) * axis
    return whole[(*front, slice(half))], whole[(*front, slice(half, None))]


def _sigmoid(xp: Any, x: Any, out: Any) -> list[Call]:
    # Far below 0 exp(-x) overflows to infinity, whose reciprocal is the right 0: no branch by sign.
    one = x.dtype.type(1)
    return [
        partial(xp.negative, x, out),
        partial(xp.exp, out, out),
        partial(xp.add, out, one, out),
        partial(xp.divide, one, out, out),
    ]


@glu.kernel
def glu_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    value, gate = _halves(k, k["x"])
    # `out` never shares memory with x, so it can hold the weights before the product.
    return in_order(*_sigmoid(xp, gate, out), partial(xp.multiply, value, out, out))


@glu.backward("x")
def glu_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out_grad = k["out_grad"]
    value, gate = _halves(k, k["x"])
    value_grad, gate_grad = _halves(k, k["x_grad"])
    weight = k.scratch(gate.shape, gate.dtype)
    return in_order(
        # value_grad keeps out_grad w, so that `weight` is free to become 1 - w.
        *_sigmoid(xp, gate, weight),
        partial(xp.multiply, out_grad, weight, value_grad),
        # The slope of the gate, w (1 - w), times the value.
        partial(xp.subtract, gate.dtype.type(1), weight, weight),
        partial(xp.multiply, weight, value_grad, gate_grad),
        partial(xp.multiply, gate_grad, value, gate_grad),
    )


# -- prelu -------------------------------------------------------------------------------------

prelu = operator(
    "prelu",
    doc="Parametric rectifier: out = x where x > 0, else w * x, with one slope w for each channel,"
    " axis 1 of x [N, C, ...], or one for all.",
    inputs=[Slot("x", "any shape, [N, C, ...] where w is not one number"), Slot("w", "[C] or [1]")],
    outputs=[Slot("out", "shape of x", not_in_gradient=True)],
    source="K. He et al., Delving deep into rectifiers, arXiv:1502.01852",
    rows=rows_of("x", but=("w",)),
)


@prelu.shape_rule
def prelu_shape(s: ShapeArgs) -> None:
    shape = s["x"]
    dtype = s.floats("x", "w")
    (slopes,) = s.rank("w", 1)
    if slopes not in (1, -1):
        if len(shape) < 2:
            s.fail(f"x has no axis of channels for {slopes} slopes in w")
        if shape[1] not in (slopes, -1):
            s.fail(f"x has {shape[1]} channels along axis 1 and w has {slopes} slopes")
    s.set("out", (shape, dtype))


def _by_channel(k: KernelArgs, w: Any) -> Any:
    """The slopes, or their gradient, so that they broadcast with x."""
    rank = len(k.shape("x"))
    return w.reshape((1,) * rank) if w.size == 1 else w.reshape(-1, *(1,) * (rank - 2))


@prelu.kernel
def prelu_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    zero = x.dtype.type(0)
    # Two clamped halves instead of a mask: minimum and maximum both let NaN through.
    low = k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.minimum, x, zero, out=low),
        partial(xp.multiply, low, _by_channel(k, k["w"]), low),
        partial(xp.maximum, x, zero, out=out),
        partial(xp.add, out, low, out),
    )


@prelu.backward("x", "w")
def prelu_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out_grad = k["out_grad"]
    zero = x.dtype.type(0)
    w = k["w"]
    calls = []
    if k.get("w_grad") is not None:
        low = k.scratch(x.shape, x.dtype)
        w_grad = k["w_grad"]
        axes = tuple(a for a in range(x.ndim) if a != 1 or w.size == 1)
        # A sum over all axes has no axis left for the one slope of [1].
        total = w_grad.reshape(()) if w.size == 1 else w_grad
        calls += [
            partial(xp.minimum, x, zero, out=low),
            partial(xp.multiply, low, out_grad, low),
            partial(low.sum, axes, out=total) if x.ndim else partial(xp.copyto, total, low),
        ]
    if k.get("x_grad") is not None:
        x_grad = k["x_grad"]
        above = k.scratch(x.shape, bool)
        calls += [
            # At x = 0 the slope is w, as the operator's text has it: x itself only where x > 0.
            partial(xp.greater, x, zero, above),
            partial(xp.multiply, out_grad, _by_channel(k, w), x_grad),
            partial(xp.copyto, x_grad, out_grad, where=above),
        ]
    return in_order(*calls) if calls else nothing
