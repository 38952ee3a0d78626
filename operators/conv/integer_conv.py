"""Convolutions of images of 8-bit integers that stand for reals: exact, in 32 bits."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ..base.calls import stacked
from ..base.integers import EndOfSums, end_dtype, end_slots, shifted
from .conv import GROUPS, conv_shape
from .im2col import Correlation
from .windows import DILATION, PADDING, PADDING_ALGORITHM, SPATIAL, STRIDE, make_axes

integer_conv = operator(
    "integer_conv",
    doc=(
        "Convolution of 8-bit integers without their zero points over one to three spatial axes:"
        " out = conv(x - x_zero, w - w_zero) + bias, as int32, modulo 2^32; what lies outside"
        " x counts as x_zero. With `scale`, that times the scale, in its dtype; with `out_zero`"
        " that rounded, half to even, plus the zero point, as 8-bit integers, saturated."
    ),
    inputs=[
        Slot("x", "[N, C, ...], uint8 or int8"),
        Slot("w", "[O, C/groups, ...], uint8 or int8: filters"),
        Slot("x_zero", "[] or [1], dtype of x; none: 0", optional=True),
        Slot("w_zero", "[], [1] or [O], dtype of w; none: 0", optional=True),
        *end_slots("O"),
    ],
    outputs=[Slot("out", "[N, O, ...], int32 or the dtype of scale or of out_zero")],
    attrs=[STRIDE, PADDING, PADDING_ALGORITHM, DILATION, GROUPS],
    no_gradient="its result is a whole number",
    source="ONNX: docs/Operators.md, ConvInteger, QLinearConv",
)


@integer_conv.shape_rule
def integer_conv_shape(s: ShapeArgs) -> None:
    rank = len(s["w"]) - 2
    if rank not in SPATIAL:
        s.fail(f"w wants 3 to 5 dimensions and has {len(s['w'])}")
    dtype = end_dtype(s, "x", "w", s["w"][0])
    s.set("out", (conv_shape(s, rank), dtype))


@integer_conv.kernel
def integer_conv_kernel(k: KernelArgs) -> Call:
    x, w, out = k["x"], k["w"], k["out"]
    axes = make_axes(k.attrs, w.shape[2:], x.shape[2:])
    wide = np.dtype("float64")  # sums are exact below 2^53
    plan = Correlation(k, axes, x.shape, out.shape, k.attrs["groups"], wide, stacked)
    large, filters, small = (k.scratch(one.shape, wide) for one in (x, w, out))
    x_zero, w_zero = k.get("x_zero"), k.get("w_zero")
    ones = (1,) * len(axes)

    def widen() -> None:
        large[...] = shifted(x, x_zero)
        filters[...] = shifted(w, w_zero, (-1, 1, *ones))

    convolve = plan.make_small(filters, None, small)
    end = partial(EndOfSums(k, ones), small, out)
    return in_order(widen, plan.gather(large), convolve, end)
