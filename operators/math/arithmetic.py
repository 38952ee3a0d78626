"""Arithmetic of two arrays with NumPy's broadcasting, and the sum of many.

Gradients are summed back to the shape of the input they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.desc import OpDesc
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import OperatorDef, Slot, operator
from ...framework.ir.rows import rows_of
from ...framework.passes.backward import GradientArgs
from ..base.calls import copying, in_order, reducing

_X = "any shape that broadcasts with y"
_Y = "any shape that broadcasts with x; dtype of x"
_OUT = Slot("out", "the shape that x and y broadcast to", inplace="x")
_UNREAD_OUT = Slot(_OUT.name, _OUT.doc, inplace="x", not_in_gradient=True)


def _broadcast(s: ShapeArgs) -> None:
    dtype = s.dtype("x")
    if dtype != s.dtype("y") or dtype.kind == "b":
        s.fail("x and y want one dtype, a number's")
    s.set("out", (s.broadcast(s["x"], s["y"]), dtype))


def _broadcast_floats(s: ShapeArgs) -> None:
    s.floats("x", "y")
    _broadcast(s)


def _binary(
    op_type: str,
    doc: str,
    ufunc: str,
    scalar: str,
    reads: str = "",
    shape: Callable[[ShapeArgs], None] = _broadcast,
) -> OperatorDef:
    """Register an operator whose kernel is one ufunc; `reads`: what its gradient reads."""
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

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        return partial(getattr(k.xp, ufunc), k["x"], k["y"], out=k["out"])

    return entry


add = _binary("add", "Sum: out = x + y.", "add", "x + y")
sub = _binary("sub", "Difference: out = x - y.", "subtract", "x - y")
mul = _binary("mul", "Product of elements: out = x * y.", "multiply", "x * y", "x y")
div = _binary("div", "Quotient: out = x / y.", "divide", "x / y", "y out", _broadcast_floats)
maximum = _binary(
    "maximum",
    "Larger of two: out = max(x, y), NaN where either is. The gradient of a tie belongs to x.",
    "maximum",
    "x != x || x > y ? x : y",
    "x y",
)
minimum = _binary(
    "minimum",
    "Smaller of two: out = min(x, y), NaN where either is. The gradient of a tie belongs to x.",
    "minimum",
    "x != x || x < y ? x : y",
    "x y",
)
power = _binary(
    "pow",
    "Power: out = x ** y; NaN for negative x unless y is whole. The gradient of y is 0 at x = 0.",
    "power",
    "pow(x, y)",
    "x y out",
    _broadcast_floats,
)


def _into(k: KernelArgs, slot: str) -> tuple[Any, Call | None]:
    """Where to put a gradient of the output's shape, and the call that then sums it back."""
    target = k[slot]
    if target.shape == k["out_grad"].shape:
        return target, None
    whole = k.scratch(k["out_grad"].shape, target.dtype)
    return whole, reducing(k.xp, whole, target)


# In all gradients that of y comes first: that of x may be written over out_grad. The expressions
# serve operands of one shape; fusion leaves a gradient that is summed back to its kernel.


@add.backward(
    "x", "y", scalar={"y_grad": "out_grad", "x_grad": "out_grad"}, inplace={"x_grad": "out_grad"}
)
def add_grad_kernel(k: KernelArgs) -> Call:
    grads = [k.get("y_grad"), k.get("x_grad")]
    return in_order(*(reducing(k.xp, k["out_grad"], grad) for grad in grads if grad is not None))


@sub.backward(
    "x", "y", scalar={"y_grad": "-out_grad", "x_grad": "out_grad"}, inplace={"x_grad": "out_grad"}
)
def sub_grad_kernel(k: KernelArgs) -> Call:
    xp, calls = k.xp, []
    x_grad, y_grad = k.get("x_grad"), k.get("y_grad")
    if y_grad is not None and y_grad.shape == k["out_grad"].shape:
        calls += [partial(xp.negative, k["out_grad"], y_grad)]
    elif y_grad is not None:
        calls += [reducing(xp, k["out_grad"], y_grad), partial(xp.negative, y_grad, y_grad)]
    if x_grad is not None:
        calls += [reducing(xp, k["out_grad"], x_grad)]
    return in_order(*calls)


@mul.backward(
    "x",
    "y",
    scalar={"y_grad": "out_grad * x", "x_grad": "out_grad * y"},
    inplace={"x_grad": "out_grad"},
)
def mul_grad_kernel(k: KernelArgs) -> Call:
    calls = []
    for slot, other in (("y", "x"), ("x", "y")):
        if k.get(f"{slot}_grad") is not None:
            whole, back = _into(k, f"{slot}_grad")
            calls += [partial(k.xp.multiply, k["out_grad"], k[other], whole), back]
    return in_order(*calls)


@div.backward("x", "y", inplace={"x_grad": "out_grad"})
def div_grad_kernel(k: KernelArgs) -> Call:
    xp, calls = k.xp, []
    if k.get("y_grad") is not None:
        whole, back = _into(k, "y_grad")
        calls += [
            partial(xp.multiply, k["out_grad"], k["out"], whole),
            partial(xp.divide, whole, k["y"], whole),
            partial(xp.negative, whole, whole),
            back,
        ]
    if k.get("x_grad") is not None:
        whole, back = _into(k, "x_grad")
        calls += [partial(xp.divide, k["out_grad"], k["y"], whole), back]
    return in_order(*calls)


def _choice_gradient(mine: str, others: str) -> Callable[[Any], Call]:
    """Gradient of an operator that takes x where the ufunc `mine` holds, else y."""

    def bind(k: KernelArgs) -> Call:
        xp, calls = k.xp, []
        chosen = k.scratch(k["out_grad"].shape, bool)
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


maximum.backward("x", "y", inplace={"x_grad": "out_grad"})(
    _choice_gradient("greater_equal", "less"),
)
minimum.backward("x", "y", inplace={"x_grad": "out_grad"})(
    _choice_gradient("less_equal", "greater"),
)


@power.backward("x", "y", inplace={"x_grad": "out_grad"})
def power_grad_kernel(k: KernelArgs) -> Call:
    xp, x, y, calls = k.xp, k["x"], k["y"], []
    one, zero = x.dtype.type(1), x.dtype.type(0)
    shape = k["out_grad"].shape
    if k.get("y_grad") is not None:
        whole, back = _into(k, "y_grad")
        logs, at_zero = k.scratch(x.shape, x.dtype), k.scratch(x.shape, bool)
        calls += [
            partial(xp.log, x, logs),
            partial(xp.equal, x, zero, at_zero),
            partial(xp.copyto, logs, zero, where=at_zero),
            partial(xp.multiply, k["out"], logs, whole),
            partial(xp.multiply, whole, k["out_grad"], whole),
            back,
        ]
    if k.get("x_grad") is not None:
        whole, back = _into(k, "x_grad")
        less, slope = k.scratch(y.shape, y.dtype), k.scratch(shape, x.dtype)
        flat = k.scratch(y.shape, bool)
        calls += [
            partial(xp.subtract, y, one, less),
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
    metas = s.metas("x")
    dtypes = {dtype for _, dtype in metas}
    if len(dtypes) != 1 or bool in dtypes:
        s.fail("the arrays to sum want one dtype, a number's")
    s.set("out", (s.same_shape("the arrays to sum", *s.shapes("x")), dtypes.pop()))


@sum_many.kernel
def sum_many_kernel(k: KernelArgs) -> Call:
    first, *rest = k.list("x")
    out = k["out"]
    if not rest:
        return in_order(copying(k.xp, first, out))
    calls = [partial(k.xp.add, first, rest[0], out)]
    calls += [partial(k.xp.add, out, more, out) for more in rest[1:]]
    return in_order(*calls)


@sum_many.gradient_maker
def sum_many_gradient(g: GradientArgs) -> list[OpDesc]:
    arriving = g.output_grads("out")
    return [g.op("assign", {"x": arriving}, {"out": grad}) for grad in g.input_grads("x")]
