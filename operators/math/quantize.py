"""Reals as 8-bit integers and back, and arithmetic on such integers.

An integer q stands for scale * (q - zero), with one scale and one zero point for an array.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import OperatorDef, Slot, operator
from ..base.integers import as_bytes, check_bytes, check_zero, shifted

_APART = ("x",), ("out",)
"""Slots whose images may lie with their channels last, each for itself."""
_NO_GRADIENT = "its result is a whole number"


def _scale(name: str) -> Slot:
    return Slot(f"{name}_scale" if name else "scale", "[] or [1], floats")


def _zero(name: str, dtype: str) -> Slot:
    slot = f"{name}_zero" if name else "zero"
    return Slot(slot, f"[] or [1], {dtype}; none: 0", optional=True)


def _check_one(s: ShapeArgs, *slots: str) -> None:
    for slot in slots:
        if s[slot] not in ((), (1,), (-1,)):
            s.fail(f"{slot} wants shape [] or [1] and has {list(s[slot])}")


# -- from and to reals -----------------------------------------------------------------------------

quantize_linear = operator(
    "quantize_linear",
    doc=(
        "Reals as 8-bit integers: out = round(x / scale) + zero, half to even, saturated; uint8"
        " where no zero point says another dtype."
    ),
    inputs=[Slot("x", "[...], dtype of scale"), _scale(""), _zero("", "uint8 or int8")],
    outputs=[Slot("out", "[...], dtype of zero")],
    no_gradient=_NO_GRADIENT,
    source="ONNX: docs/Operators.md, QuantizeLinear",
)


@quantize_linear.shape_rule
def quantize_shape(s: ShapeArgs) -> None:
    s.floats("x", "scale")
    _check_one(s, "scale")
    check_zero(s, "zero", 1)
    s.set("out", (s["x"], s.dtype("zero") if s.has("zero") else np.dtype("uint8")))


@quantize_linear.kernel(channels_last=_APART)
def quantize_kernel(k: KernelArgs) -> Call:
    return partial(_quantize, k.xp, k["x"], k["scale"], k.get("zero"), k["out"])


def _quantize(xp: Any, x: Any, scale: Any, zero: Any, out: Any) -> None:
    as_bytes(xp, x / scale.reshape(()), zero, out)


dequantize_linear = operator(
    "dequantize_linear",
    doc="The reals that 8-bit integers stand for: out = scale * (x - zero).",
    inputs=[Slot("x", "[...], uint8 or int8"), _scale(""), _zero("", "dtype of x")],
    outputs=[Slot("out", "[...], dtype of scale")],
    no_gradient="its input is a whole number",
    source="ONNX: docs/Operators.md, DequantizeLinear",
)


@dequantize_linear.shape_rule
def dequantize_shape(s: ShapeArgs) -> None:
    check_bytes(s, "x")
    _check_one(s, "scale")
    check_zero(s, "zero", 1, s.dtype("x"))
    s.set("out", (s["x"], s.floats("scale")))


@dequantize_linear.kernel(channels_last=_APART)
def dequantize_kernel(k: KernelArgs) -> Call:
    return partial(_dequantize, k["x"], k["scale"], k.get("zero"), k["out"])


def _dequantize(x: Any, scale: Any, zero: Any, out: Any) -> None:
    whole = x.astype(scale.dtype)
    if zero is not None:
        whole -= zero.astype(scale.dtype).reshape(())
    out[...] = whole * scale.reshape(())


dynamic_quantize_linear = operator(
    "dynamic_quantize_linear",
    doc=(
        "Reals as uint8 in a scale of their own: scale = (max - min) / 255 over all of x and 0, 1"
        " where that is 0; zero = round(-min / scale); out = round(x / scale) + zero, saturated."
    ),
    inputs=[Slot("x", "[...], floats")],
    outputs=[
        Slot("out", "[...], uint8"),
        Slot("scale", "[], dtype of x"),
        Slot("zero", "[], uint8"),
    ],
    no_gradient=_NO_GRADIENT,
    source="ONNX: docs/Operators.md, DynamicQuantizeLinear",
)


@dynamic_quantize_linear.shape_rule
def dynamic_quantize_shape(s: ShapeArgs) -> None:
    s.set("out", (s["x"], np.dtype("uint8")))
    s.set("scale", ((), s.floats("x")))
    s.set("zero", ((), np.dtype("uint8")))


@dynamic_quantize_linear.kernel(channels_last=_APART)
def dynamic_quantize_kernel(k: KernelArgs) -> Call:
    return partial(_dynamic_quantize, k.xp, k["x"], k["scale"], k["zero"], k["out"])


def _dynamic_quantize(xp: Any, x: Any, scale: Any, zero: Any, out: Any) -> None:
    nothing = xp.zeros((), x.dtype)
    low = xp.minimum(x.min() if x.size else nothing, nothing)
    high = xp.maximum(x.max() if x.size else nothing, nothing)
    step = (high - low) / x.dtype.type(255)
    scale[...] = xp.where(step == 0, x.dtype.type(1), step)
    zero[...] = xp.clip(xp.rint(-low / scale), 0, 255).astype(np.uint8)
    as_bytes(xp, x / scale, zero, out)


# -- arithmetic ------------------------------------------------------------------------------------


def _combining(op_type: str, sign: str, formula: str) -> OperatorDef:
    slots = [(_scale(name), _zero(name, "dtype of x")) for name in ("x", "y", "out")]
    entry = operator(
        op_type,
        doc=(
            f"x {sign} y of 8-bit integers that stand for reals, as such integers: {formula},"
            " rounded, half to even, saturated."
        ),
        inputs=[
            Slot("x", "[...], uint8 or int8"),
            Slot("y", "[...], dtype of x, broadcast with it"),
            *(slot for pair in slots for slot in pair),
        ],
        outputs=[Slot("out", "[...], dtype of x")],
        no_gradient=_NO_GRADIENT,
        source="ONNX Runtime: docs/ContribOperators.md, QLinearAdd, QLinearMul",
        shape=_combining_shape,
    )
    entry.kernel(channels_last=(("x", "y", "out"),))(_combining_kernel)
    return entry


def _combining_shape(s: ShapeArgs) -> None:
    check_bytes(s, "x")
    if s.dtype("y") != s.dtype("x"):
        s.fail(f"x and y want one dtype and have {s.dtype('x')} and {s.dtype('y')}")
    s.floats("x_scale", "y_scale", "out_scale")
    for name in ("x", "y", "out"):
        _check_one(s, f"{name}_scale")
        if s.has(f"{name}_zero") and s.dtype(f"{name}_zero") != s.dtype("x"):
            s.fail(f"{name}_zero wants dtype {s.dtype('x')}, not {s.dtype(f'{name}_zero')}")
        check_zero(s, f"{name}_zero", 1)
    s.set("out", (s.broadcast(s["x"], s["y"]), s.dtype("x")))


def _combining_kernel(k: KernelArgs) -> Call:
    scales = [k[f"{name}_scale"] for name in ("x", "y", "out")]
    zeros = [k.get(f"{name}_zero") for name in ("x", "y", "out")]
    adds = k.op.type == quantized_add.type
    combine = _add if adds else _multiply
    return partial(combine, k.xp, k["x"], k["y"], scales, zeros, k["out"])


def _add(xp: Any, x: Any, y: Any, scales: list[Any], zeros: list[Any], out: Any) -> None:
    of_x, of_y, of_out = (scale.reshape(()) for scale in scales)
    # Sums of float64, each rounded to float32, equal the results of fused operations.
    first, second = (shifted(one, None) for one in (x, y))
    a, b = of_x / of_out, of_y / of_out
    zero = [0 if one is None else one.astype(a.dtype).reshape(()) for one in zeros]
    fixed = zero[2] - (a * zero[0] + b * zero[1])
    sums = (first * a + fixed).astype(a.dtype)
    sums = (second * b + sums).astype(a.dtype)
    info = np.iinfo(out.dtype)
    out[...] = xp.rint(xp.clip(sums, info.min, info.max)).astype(out.dtype)


def _multiply(xp: Any, x: Any, y: Any, scales: list[Any], zeros: list[Any], out: Any) -> None:
    of_x, of_y, of_out = (scale.reshape(()) for scale in scales)
    product = (shifted(x, zeros[0]) * shifted(y, zeros[1])).astype(of_x.dtype)
    scaled = product * (of_x * of_y / of_out)
    if zeros[2] is not None:  # before it is rounded, as ONNX Runtime does it
        scaled = scaled + zeros[2].astype(of_x.dtype)
    as_bytes(xp, scaled, None, out)


quantized_add = _combining(
    "quantized_add",
    "+",
    "out = (x_scale (x - x_zero) + y_scale (y - y_zero)) / out_scale + out_zero",
)
quantized_mul = _combining(
    "quantized_mul",
    "*",
    "out = x_scale (x - x_zero) * y_scale (y - y_zero) / out_scale + out_zero",
)

byte_table = operator(
    "byte_table",
    doc=(
        "Any function of 8-bit integers, by its 256 values: out = table[x], where the bits of x"
        " count as an unsigned number's."
    ),
    inputs=[
        Slot("x", "[...], uint8 or int8"),
        Slot("table", "[256], uint8 or int8"),
    ],
    outputs=[Slot("out", "[...], dtype of table")],
    no_gradient=_NO_GRADIENT,
)


@byte_table.shape_rule
def byte_table_shape(s: ShapeArgs) -> None:
    for slot in ("x", "table"):
        check_bytes(s, slot)
    s.same("the size of the table and 256", s.rank("table", 1)[0], 256)
    s.set("out", (s["x"], s.dtype("table")))


@byte_table.kernel(channels_last=(("x", "out"),))
def byte_table_kernel(k: KernelArgs) -> Call:
    return partial(_look_up, k["x"], k["table"], k["out"])


def _look_up(x: Any, table: Any, out: Any) -> None:
    out[...] = table[x.astype(np.uint8)]


# -- means -----------------------------------------------------------------------------------------

quantized_global_avg_pool = operator(
    "quantized_global_avg_pool",
    doc=(
        "Mean over all pixels of images of 8-bit integers that stand for reals, as such integers:"
        " out = x_scale * mean(x - x_zero) / out_scale + out_zero, rounded, half to even,"
        " saturated."
    ),
    inputs=[
        Slot("x", "[N, C, ...], uint8 or int8"),
        _scale("x"),
        _zero("x", "dtype of x"),
        _scale("out"),
        _zero("out", "dtype of x"),
    ],
    outputs=[Slot("out", "[N, C, 1, ...], dtype of x")],
    no_gradient=_NO_GRADIENT,
    source="ONNX Runtime: docs/ContribOperators.md, QLinearGlobalAveragePool",
)


@quantized_global_avg_pool.shape_rule
def global_mean_shape(s: ShapeArgs) -> None:
    x = s["x"]
    check_bytes(s, "x")
    if len(x) < 3:
        s.fail(f"x wants at least 3 dimensions and has {len(x)}")
    s.floats("x_scale", "out_scale")
    _check_one(s, "x_scale", "out_scale")
    for slot in ("x_zero", "out_zero"):
        if s.has(slot) and s.dtype(slot) != s.dtype("x"):
            s.fail(f"{slot} wants dtype {s.dtype('x')}, not {s.dtype(slot)}")
        check_zero(s, slot, 1)
    s.set("out", ((*x[:2], *(1 for _ in x[2:])), s.dtype("x")))


@quantized_global_avg_pool.kernel
def global_mean_kernel(k: KernelArgs) -> Call:
    zeros = k.get("x_zero"), k.get("out_zero")
    return partial(_global_mean, k.xp, k["x"], k["x_scale"], k["out_scale"], *zeros, k["out"])


def _global_mean(
    xp: Any, x: Any, x_scale: Any, out_scale: Any, x_zero: Any, out_zero: Any, out: Any
) -> None:
    axes = tuple(range(2, x.ndim))
    pixels = x_scale.dtype.type(x.size // max(x.shape[0] * x.shape[1], 1))
    sums = shifted(x, x_zero).sum(axes, keepdims=True).astype(x_scale.dtype)
    factor = x_scale.reshape(()) / (out_scale.reshape(()) * pixels)
    as_bytes(xp, sums * factor, out_zero, out)
