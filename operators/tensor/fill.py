"""Operators that fill a variable with constants."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import rows_of

_FLOAT32 = np.dtype("float32")
_NO_GRADIENT = "it reads no values"


def check_value(s: ShapeArgs, dtype: np.dtype) -> None:
    """Refuse an attribute `value` that an integer `dtype` cannot hold."""
    value = s.attrs["value"]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        # The range comes first, as int() of NaN or infinity is an error.
        if not (info.min <= value <= info.max and value == int(value)):
            s.fail(f"value {value} is no {dtype}")


fill_constant = operator(
    "fill_constant",
    doc="An array of one value.",
    outputs=[Slot("out", "shape `shape`")],
    attrs=[
        AttrSpec("shape", "ints", "of the result; none = a scalar", (), 0),
        AttrSpec("dtype", "dtype", "of the result", _FLOAT32),
        AttrSpec("value", "float", "of every element", 0.0),
    ],
    no_gradient=_NO_GRADIENT,
)


@fill_constant.shape_rule
def fill_constant_shape(s: ShapeArgs) -> None:
    check_value(s, s.attrs["dtype"])
    s.set("out", (s.attrs["shape"], s.attrs["dtype"]))


fill_like = operator(
    "fill_like",
    doc="An array of one value, with shape and dtype of x.",
    inputs=[Slot("x", "any shape; its values are not read", shape_only=True)],
    outputs=[Slot("out", "shape of x")],
    attrs=[AttrSpec("value", "float", "of every element", 0.0)],
    no_gradient=_NO_GRADIENT,
    rows=rows_of("x"),
)


@fill_like.shape_rule
def fill_like_shape(s: ShapeArgs) -> None:
    check_value(s, s.dtype("x"))
    s.set("out", (s["x"], s.dtype("x")))


@fill_constant.kernel
@fill_like.kernel
def fill_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    return partial(out.fill, out.dtype.type(k.attrs["value"]))


constant = operator(
    "constant",
    doc="A small array, which is an attribute of the operator.",
    outputs=[Slot("out", "shape and dtype of value")],
    attrs=[AttrSpec("value", "tensor", "the array")],
    source="Paddle's assign_value_op",
    no_gradient=_NO_GRADIENT,
)


@constant.shape_rule
def constant_shape(s: ShapeArgs) -> None:
    value = s.attrs["value"]
    s.set("out", (value.shape, value.dtype))


@constant.kernel
def constant_kernel(k: KernelArgs) -> Call:
    # Brought to the device while binding, once for all runs.
    return partial(k.xp.copyto, k["out"], k.xp.asarray(k.attrs["value"]))


arange = operator(
    "arange",
    doc="start, start + step, ... up to but without stop.",
    outputs=[Slot("out", "[ceil((stop - start) / step)]")],
    attrs=[
        AttrSpec("start", "float", "first value", 0.0),
        AttrSpec("stop", "float", "bound of the values, itself left out"),
        AttrSpec("step", "float", "distance between values; not 0", 1.0),
        AttrSpec("dtype", "dtype", "of the result", np.dtype("int64")),
    ],
    no_gradient=_NO_GRADIENT,
)


@arange.shape_rule
def arange_shape(s: ShapeArgs) -> None:
    start, stop, step = s.attrs["start"], s.attrs["stop"], s.attrs["step"]
    if step == 0 or not np.isfinite([start, stop, step]).all():
        s.fail(f"wants finite bounds and a step that is not 0, has {start}, {stop} and {step}")
    # With a step that leads away from stop there are no values, as in NumPy.
    s.set("out", ((max(0, int(np.ceil((stop - start) / step))),), s.attrs["dtype"]))


@arange.kernel
def arange_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    # By products, in float64: adding the step again and again would drift.
    values = k.attrs["start"] + k.attrs["step"] * k.xp.arange(out.size)
    return partial(k.xp.copyto, out, values.astype(out.dtype))


linspace = operator(
    "linspace",
    doc="`num` values at equal distances from start to stop, both included.",
    outputs=[Slot("out", "[num]")],
    attrs=[
        AttrSpec("start", "float", "first value"),
        AttrSpec("stop", "float", "last value"),
        AttrSpec("num", "int", "how many", 50, minimum=0),
        AttrSpec("dtype", "dtype", "of the result; fractions are cut off for integers", _FLOAT32),
    ],
    source="numpy.linspace",
    no_gradient=_NO_GRADIENT,
)


@linspace.shape_rule
def linspace_shape(s: ShapeArgs) -> None:
    start, stop = s.attrs["start"], s.attrs["stop"]
    if not np.isfinite([start, stop]).all():
        s.fail(f"wants finite bounds, has {start} and {stop}")
    s.set("out", ((s.attrs["num"],), s.attrs["dtype"]))


@linspace.kernel
def linspace_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    # NumPy's own function ends at stop itself, and not where the rounded steps lead.
    values = np.linspace(k.attrs["start"], k.attrs["stop"], out.size).astype(out.dtype)
    return partial(k.xp.copyto, out, k.xp.asarray(values))
