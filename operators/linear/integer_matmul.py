"""Products of matrices of 8-bit integers that stand for reals: exact, in 32 bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator

BYTES = (np.dtype("uint8"), np.dtype("int8"))

integer_matmul = operator(
    "integer_matmul",
    doc=(
        "Matrix product of 8-bit integers without their zero points: out = (x - x_zero)"
        " (y - y_zero), as int32, modulo 2^32. With `scale`, that times the scale, in its dtype."
        " Stacks broadcast as in NumPy."
    ),
    inputs=[
        Slot("x", "[..., M, K], uint8 or int8"),
        Slot("y", "[..., K, N], uint8 or int8"),
        Slot("x_zero", "[] or [1], dtype of x; none: 0", optional=True),
        Slot("y_zero", "[], [1] or [N], dtype of y; none: 0", optional=True),
        Slot("scale", "[], [1] or [N], floats", optional=True),
    ],
    outputs=[Slot("out", "[..., M, N], int32 or the dtype of scale")],
    no_gradient="its result is a whole number",
    source="ONNX: docs/Operators.md, MatMulInteger",
)


@integer_matmul.shape_rule
def integer_matmul_shape(s: ShapeArgs) -> None:
    x, y = s["x"], s["y"]
    if len(x) < 2 or len(y) < 2:
        s.fail("x and y want at least 2 dimensions")
    for slot in ("x", "y"):
        if s.dtype(slot) not in BYTES:
            s.fail(f"{slot} wants dtype uint8 or int8 and has {s.dtype(slot)}")
    for slot in ("x", "y"):
        zero = f"{slot}_zero"
        if s.has(zero) and s.dtype(zero) != s.dtype(slot):
            s.fail(f"{zero} wants the dtype of {slot}, {s.dtype(slot)}, and has {s.dtype(zero)}")
    for slot, most in (("x_zero", 1), ("y_zero", y[-1]), ("scale", y[-1])):
        if s.has(slot) and not (len(s[slot]) < 2 and {*s[slot]} <= {1, -1, most}):
            s.fail(f"{slot} wants shape [], [1] or [{most}] and has {list(s[slot])}")
    s.same("the inner dimensions (columns of x and rows of y)", x[-1], y[-2])
    dtype = s.floats("scale") if s.has("scale") else np.dtype("int32")
    s.set("out", ((*s.broadcast(x[:-2], y[:-2]), x[-2], y[-1]), dtype))


@integer_matmul.kernel
def integer_matmul_kernel(k: KernelArgs) -> Call:
    given = (k["x"], k.get("x_zero"), k["y"], k.get("y_zero"))
    return partial(_multiply, k.xp, *given, k.get("scale"), k["out"])


def _multiply(xp: Any, x: Any, x_zero: Any, y: Any, y_zero: Any, scale: Any, out: Any) -> None:
    # Sums of float64 are exact below 2^53, and libraries multiply no integers.
    left, right = (
        one.astype(np.float64) if zero is None else one - zero.astype(np.float64)
        for one, zero in ((x, x_zero), (y, y_zero))
    )
    product = xp.matmul(left, right).astype(np.int64).astype(np.int32)
    if scale is None:
        out[...] = product
    else:
        xp.multiply(product.astype(scale.dtype), scale, out=out)
