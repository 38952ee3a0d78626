"""Products of matrices of 8-bit integers that stand for reals: exact, in 32 bits."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ..base.integers import EndOfSums, end_dtype, end_slots, shifted

integer_matmul = operator(
    "integer_matmul",
    doc=(
        "Matrix product of 8-bit integers without their zero points: out = (x - x_zero)"
        " (y - y_zero) + bias, as int32, modulo 2^32. With `scale`, that times the scale, in its"
        " dtype; with `out_zero` that rounded, half to even, plus the zero point, as 8-bit"
        " integers, saturated. Stacks broadcast as in NumPy."
    ),
    inputs=[
        Slot("x", "[..., M, K], uint8 or int8"),
        Slot("y", "[..., K, N], uint8 or int8"),
        Slot("x_zero", "[] or [1], dtype of x; none: 0", optional=True),
        Slot("y_zero", "[], [1] or [N], dtype of y; none: 0", optional=True),
        *end_slots("N"),
    ],
    outputs=[Slot("out", "[..., M, N], int32 or the dtype of scale or of out_zero")],
    no_gradient="its result is a whole number",
    source="ONNX: docs/Operators.md, MatMulInteger, QLinearMatMul",
)


@integer_matmul.shape_rule
def integer_matmul_shape(s: ShapeArgs) -> None:
    x, y = s["x"], s["y"]
    if len(x) < 2 or len(y) < 2:
        s.fail("x and y want at least 2 dimensions")
    dtype = end_dtype(s, "x", "y", y[-1])
    s.same("the inner dimensions (columns of x and rows of y)", x[-1], y[-2])
    s.set("out", ((*s.broadcast(x[:-2], y[:-2]), x[-2], y[-1]), dtype))


@integer_matmul.kernel
def integer_matmul_kernel(k: KernelArgs) -> Call:
    given = (k["x"], k.get("x_zero"), k["y"], k.get("y_zero"))
    return partial(_multiply, k.xp, *given, EndOfSums(k, ()), k["out"])


def _multiply(xp: Any, x: Any, x_zero: Any, y: Any, y_zero: Any, end: EndOfSums, out: Any) -> None:
    # Sums of float64 are exact below 2^53, and libraries multiply no integers.
    product = xp.matmul(shifted(x, x_zero), shifted(y, y_zero))
    end(product, out)
