"""Arithmetic of two arrays with NumPy's broadcasting, and the sum of many.

Gradients are summed back to the shape of the input they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.scalars.derivative import gradients
from ...framework.fusion.scalars.expression import names, parse
from ...framework.fusion.team import in_order
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import OperatorDef, Slot, operator
from ...framework.ir.rows import rows_of
from ..base.calls import reducing
from ..base.derived import derived_kernel, summed_back_kernel

_X = "any shape that broadcasts with y"
_Y = "any shape that broadcasts with x; dtype of x"
_OUT = Slot("out", "the shape that x and y broadcast to", inplace="x")
_UNREAD_OUT = Slot(_OUT.name, _OUT.doc, inplace="x", not_in_gradient=True)

SHARING = {"x_grad": "out_grad"}
"""The gradient of x may be written over the gradient of out; the gradient of y comes before."""


def binary_rule(s: ShapeArgs) -> None:
    """Shape rule of functions of two arrays of numbers, which broadcast."""
    dtype = s.dtype("x")
    if dtype != s.dtype("y") or dtype.kind == "b":
        s.fail("x and y want one dtype, a number's")
    s.set("out", (s.broadcast(s["x"], s["y"]), dtype))


def binary_floats_rule(s: ShapeArgs) -> None:
    """As `binary_rule`, for floats."""
    s.floats("x", "y")
    binary_rule(s)


def _binary(
    op_type: str,
    doc: str,
    scalar: str,
    reads: str = "",
    shape: Callable[[ShapeArgs], None] = binary_rule,
) -> OperatorDef:
    """Register an operator of x and y, whose gradients are derived from its expression.

    Args:
        reads: the variables that its gradients read, where the caller adds these.
    """
    derived = {} if reads else gradients(scalar, ["x", "y"])
    if derived:
        reads = " ".join(names(parse(" + ".join(derived.values()))))
    entry = operator(
        op_type,
        doc=f"{doc} Shapes broadcast as in NumPy.",
        inputs=[
            Slot("x", _X, not_in_gradient="x" not in reads.split()),
            Slot("y", _Y, not_in_gradient="y" not in reads.split()),
        ],
        outputs=[_OUT if "out" in reads.split() else _UNREAD_OUT],
        shape=shape,
        scalar=scalar,
    )
    entry.kernel(derived_kernel)
    if derived:
        entry.backward("x", "y", scalar=derived, inplace=SHARING)(summed_back_kernel)
    return entry


add = _binary("add", "Sum: out = x + y.", "x + y")
sub = _binary("sub", "Difference: out = x - y.", "x - y")
mul = _binary("mul", "Product of elements: out = x * y.", "x * y")
div = _binary("div", "Quotient: out = x / y.", "x / y", shape=binary_floats_rule)
# `x != x` keeps a NaN of x; a NaN of y makes both comparisons false, which chooses y.
maximum = _binary(
    "maximum",
    "Larger of two: out = max(x, y), NaN where either is. The gradient of a tie belongs to x.",
    "x != x || x > y ? x : y",
    "x y",
)
minimum = _binary(
    "minimum",
    "Smaller of two: out = min(x, y), NaN where either is. The gradient of a tie belongs to x.",
    "x != x || x < y ? x : y",
    "x y",
)
power = _binary(
    "pow",
    "Power: out = x ** y; NaN for negative x unless y is whole. The gradient of y is 0 at x = 0.",
    "pow(x, y)",
    "x y out",
    binary_floats_rule,
)


def _into(k: KernelArgs, slot: str) -> tuple[Any, Call | None]:
    """An array for a gradient of the output's shape, and the call that then sums it back."""
    target = k[slot]
    if target.shape == k["out_grad"].shape:
        return target, None
    whole = k.scratch(k["out_grad"].shape, target.dtype)
    return whole, reducing(k.xp, whole, target)


# The gradients of maximum, minimum and pow are not fused: they are array calls alone. Those derived
# from the expressions give a tie to y, and are not defined at x = 0.


def _choice_gradient(mine: str, others: str) -> Callable[[Any], Call]:
    """Kernel of the gradient of an operator that takes x where the ufunc `mine` holds, else y."""

    def bind(k: KernelArgs) -> Call:
        xp = k.xp
        calls = []
        chosen = k.scratch(k["out_grad"].shape, bool)
        # y first: x_grad may have the memory of out_grad, which the product for y still reads.
        for slot, ufunc in (("y", others), ("x", mine)):
            if k.get(f"{slot}_grad") is not None:
                whole, back = _into(k, f"{slot}_grad")
                calls += [
                    partial(getattr(xp, ufunc), k["x"], k["y"], chosen),
                    partial(xp.multiply, k["out_grad"], chosen, whole),
                    back,
                ]
        return in_order(*calls)

    return bind


maximum.backward("x", "y", inplace=SHARING)(_choice_gradient("greater_equal", "less"))
minimum.backward("x", "y", inplace=SHARING)(_choice_gradient("less_equal", "greater"))


@power.backward("x", "y", inplace=SHARING)
def power_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    y = k["y"]
    calls = []
    one, zero = x.dtype.type(1), x.dtype.type(0)
    shape = k["out_grad"].shape
    if k.get("y_grad") is not None:
        whole, back = _into(k, "y_grad")
        logs = k.scratch(x.shape, x.dtype)
        at_zero = k.scratch(x.shape, bool)
        calls += [
            partial(xp.log, x, logs),
            partial(xp.equal, x, zero, at_zero),
            # log(0) is -inf, and 0 ** y times -inf would be NaN.
            partial(xp.copyto, logs, zero, where=at_zero),
            partial(xp.multiply, k["out"], logs, whole),
            partial(xp.multiply, whole, k["out_grad"], whole),
            back,
        ]
    if k.get("x_grad") is not None:
        whole, back = _into(k, "x_grad")
        less = k.scratch(y.shape, y.dtype)
        slope = k.scratch(shape, x.dtype)
        flat = k.scratch(y.shape, bool)
        calls += [
            partial(xp.subtract, y, one, less),
            # Not out / x, which is 0 / 0 at x = 0.
            partial(xp.power, x, less, slope),
            partial(xp.multiply, slope, y, slope),
            partial(xp.equal, y, zero, flat),  # x ** 0 is flat, also where x ** -1 is infinite
            partial(xp.copyto, slope, zero, where=flat),
            partial(xp.multiply, k["out_grad"], slope, whole),
            back,
        ]
    return in_order(*calls)


sum_many = operator(
    "sum",
    doc="Sum of several arrays of one shape and dtype: out = x[0] + x[1] + ...",
    inputs=[
        Slot("x", "one or more arrays of the same shape", duplicable=True, not_in_gradient=True)
    ],
    outputs=[Slot("out", "shape of each x", inplace="x", not_in_gradient=True)],
    source="Paddle, paddle/operators/sum_op.cc",
    scalar="sum(x)",
    rows=rows_of("x"),
)


@sum_many.shape_rule
def sum_many_shape(s: ShapeArgs) -> None:
    specs = s.specs("x")
    dtypes = {dtype for _, dtype in specs}
    if len(dtypes) != 1 or any(dtype.kind == "b" for dtype in dtypes):
        s.fail("the arrays to sum want one dtype, a number's")
    s.set("out", (s.same_shape("the arrays to sum", *s.shapes("x")), dtypes.pop()))


sum_many.kernel(derived_kernel)


@sum_many.gradient_maker
def sum_many_gradient(g: GradientArgs) -> list[OpNode]:
    arriving = g.output_grads("out")
    return [g.op("assign", {"x": arriving}, {"out": grad}) for grad in g.input_grads("x")]
