"""Division with remainder, and the angle of a point: further functions of two arrays."""

from __future__ import annotations

from functools import partial

from ...framework.fusion.scalars.derivative import gradients
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import OperatorDef, Slot, operator
from ...framework.ir.rows import elementwise
from ..base.derived import derived_kernel, summed_back_kernel
from .arithmetic import SHARING, binary_floats_rule, binary_rule

_SLOTS = (
    Slot("x", "any shape that broadcasts with y"),
    Slot("y", "any shape that broadcasts with x; dtype of x"),
)
_OUT_DOC = "the shape that x and y broadcast to"


# x = y * n + out with a whole n: (x - out) / y, which rounding moves away from a whole number. The
# derived one has the whole number next to x / y, which is another one where rounding reaches it.
_REMAINDER_GRADIENT = {"y_grad": "-out_grad * rint((x - out) / y)", "x_grad": "out_grad"}


def _remainder(op_type: str, doc: str, ufunc: str, scalar: str) -> OperatorDef:
    entry = operator(
        op_type,
        doc=f"{doc} By 0 it is NaN, and 0 for integers. Shapes broadcast as in NumPy.",
        inputs=_SLOTS,
        outputs=[Slot("out", _OUT_DOC, inplace="x")],
        shape=binary_rule,
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
    _entry.backward("x", "y", scalar=_REMAINDER_GRADIENT, inplace=SHARING)(summed_back_kernel)

# Without a scalar expression: 1 // 0.1 is 9, and floor(1 / 0.1) is 10, as the quotient is rounded.
floor_divide = operator(
    "floor_divide",
    doc="Quotient rounded down, as Python's //: out = floor(x / y), and 0 for integers divided by"
    " 0. Shapes broadcast as in NumPy.",
    inputs=_SLOTS,
    outputs=[Slot("out", _OUT_DOC, inplace="x")],
    shape=binary_rule,
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
    shape=binary_floats_rule,
    scalar="atan2(x, y)",
)
atan2.kernel(derived_kernel)
atan2.backward("x", "y", scalar=gradients("atan2(x, y)", ["x", "y"]), inplace=SHARING)(
    summed_back_kernel
)
