"""Division with remainder, and the angle of a point: further functions of two arrays."""

from __future__ import annotations

from functools import partial

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import OperatorDef, Slot, operator
from ...framework.ir.rows import elementwise
from ..base.derived import derived_kernel, summed_back_kernel

_SLOTS = (
    Slot("x", "any shape that broadcasts with y"),
    Slot("y", "any shape that broadcasts with x; dtype of x"),
)
_OUT_DOC = "the shape that x and y broadcast to"


def _numbers(s: ShapeArgs) -> None:
    dtype = s.dtype("x")
    if dtype != s.dtype("y") or dtype.kind == "b":
        s.fail("x and y want one dtype, a number's")
    s.set("out", (s.broadcast(s["x"], s["y"]), dtype))


def _floats(s: ShapeArgs) -> None:
    s.floats("x", "y")
    _numbers(s)


# x = y * n + out with a whole n: (x - out) / y, which rounding moves away from a whole number.
_REMAINDER_GRADIENT = {"y_grad": "-out_grad * rint((x - out) / y)", "x_grad": "out_grad"}


def _remainder(op_type: str, doc: str, ufunc: str, scalar: str) -> OperatorDef:
    entry = operator(
        op_type,
        doc=f"{doc} By 0 it is NaN, and 0 for integers. Shapes broadcast as in NumPy.",
        inputs=_SLOTS,
        outputs=[Slot("out", _OUT_DOC, inplace="x")],
        shape=_numbers,
        scalar=scalar,
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        return partial(getattr(k.xp, ufunc), k["x"], k["y"], k["out"])

    return entry


mod = _remainder(
    "mod",
    "Remainder with the sign of y, as Python's and NumPy's %: out = x - floor(x / y) * y.",
    "remainder",
    "fmod(x, y) != 0 && (fmod(x, y) < 0) != (y < 0) ? fmod(x, y) + y : fmod(x, y)",
)
fmod = _remainder(
    "fmod",
    "Remainder with the sign of x, as C's fmod: out = x - trunc(x / y) * y.",
    "fmod",
    "fmod(x, y)",
)
for _entry in (mod, fmod):
    _entry.backward("x", "y", scalar=_REMAINDER_GRADIENT, inplace={"x_grad": "out_grad"})(
        summed_back_kernel
    )

floor_divide = operator(
    "floor_divide",
    doc="Quotient rounded down, as Python's //: out = floor(x / y), and 0 for integers divided by"
    " 0. Shapes broadcast as in NumPy.",
    inputs=_SLOTS,
    outputs=[Slot("out", _OUT_DOC, inplace="x")],
    shape=_numbers,
    no_gradient="its derivative is zero wherever there is one",
    rows=elementwise,
)


@floor_divide.kernel
def floor_divide_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.floor_divide, k["x"], k["y"], k["out"])


atan2 = operator(
    "atan2",
    doc="Angle in radians, from -pi to pi, of the point with ordinate x and abscissa y: the"
    " arctangent of x / y in the right quadrant. Shapes broadcast as in NumPy.",
    inputs=_SLOTS,
    outputs=[Slot("out", _OUT_DOC, inplace="x", not_in_gradient=True)],
    source="torch.atan2",
    shape=_floats,
    scalar="atan2(x, y)",
)
atan2.kernel(derived_kernel)
atan2.backward(
    "x",
    "y",
    scalar={
        "y_grad": "-out_grad * x / (x * x + y * y)",
        "x_grad": "out_grad * y / (x * x + y * y)",
    },
    inplace={"x_grad": "out_grad"},
)(summed_back_kernel)
