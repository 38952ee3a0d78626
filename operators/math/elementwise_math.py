"""Elementwise functions of one input.

Each gives its NumPy/CuPy kernel and its scalar expression in C, from which chains are fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import pi
from typing import Any

from ...framework.base.shape import ShapeArgs, same_as
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...framework.ir.rows import rows_of
from ..base.calls import Call, copying, in_order
from ..base.erf import erf_call

_FLAT = "its derivative is zero wherever there is one"


def _floats(s: ShapeArgs) -> None:
    s.set("out", (s["x"], s.floats("x")))


def _numbers(s: ShapeArgs) -> None:
    if s.dtype("x").kind == "b":
        s.fail("x wants a number's dtype and has bool")
    s.set("out", (s["x"], s.dtype("x")))


def unary(
    op_type: str,
    doc: str,
    scalar: str,
    *,
    reads: str = "",
    attrs: Iterable[AttrSpec] = (),
    shape: Callable[[ShapeArgs], None] = _floats,
    ufunc: str = "",
    no_gradient: str = "",
    source: str = "",
) -> OperatorDef:
    """Register an elementwise operator x -> out that may write over x.

    Args:
        reads: which of x and out the gradient reads.
        ufunc: name of the one array function that is its kernel.
    """
    entry = operator(
        op_type,
        doc=doc,
        inputs=[Slot("x", "any shape", not_in_gradient="x" not in reads.split())],
        outputs=[
            Slot("out", "shape of x", inplace="x", not_in_gradient="out" not in reads.split())
        ],
        attrs=attrs,
        source=source,
        shape=shape,
        scalar=scalar,
        no_gradient=no_gradient,
    )
    if ufunc:
        entry.kernel(lambda k: partial(getattr(k.xp, ufunc), k["x"], k["out"]))
    return entry


def gradient(entry: OperatorDef, scalar: str) -> Callable[[Any], Any]:
    """Decorator: kernel of the gradient, which may be written over `out_grad`."""
    return entry.backward("x", scalar={"x_grad": scalar}, inplace={"x_grad": "out_grad"})


neg = unary("neg", "Negation: out = -x.", "-x", ufunc="negative", shape=_numbers)


@neg.gradient_maker
def neg_gradient(g: Any) -> list[Any]:
    return [g.op("neg", {"x": g.output_grads("out")}, {"out": g.input_grads("x")})]


absolute = unary(
    "abs",
    "Absolute value: out = |x|. The gradient at 0 is 0.",
    "fabs(x)",
    ufunc="absolute",
    reads="x",
    shape=_numbers,
)


@gradient(absolute, "x > 0 ? out_grad : x < 0 ? -out_grad : x * out_grad")
def absolute_grad_kernel(k: Any) -> Call:
    xp, sign = k.xp, k.scratch(k["x"].shape, k["x"].dtype)
    return in_order(
        partial(xp.sign, k["x"], sign), partial(xp.multiply, k["out_grad"], sign, k["x_grad"])
    )


# type: what it is, scalar expression, array function.
_STEPS = {
    "sign": ("Sign: out = 1, 0 or -1; NaN of NaN.", "x > 0 ? 1 : x < 0 ? -1 : x", "sign"),
    "floor": ("Largest whole number not above x.", "floor(x)", "floor"),
    "ceil": ("Smallest whole number not below x.", "ceil(x)", "ceil"),
    "round": ("Nearest whole number; the even one of two.", "rint(x)", "rint"),
}
for _type, (_doc, _scalar, _ufunc) in _STEPS.items():
    unary(_type, _doc, _scalar, ufunc=_ufunc, no_gradient=_FLAT)

exp = unary("exp", "Exponential: out = e ** x.", "exp(x)", ufunc="exp", reads="out")


@gradient(exp, "out_grad * out")
def exp_grad_kernel(k: Any) -> Call:
    return partial(k.xp.multiply, k["out_grad"], k["out"], k["x_grad"])


log = unary("log", "Natural logarithm; NaN below 0.", "log(x)", ufunc="log", reads="x")


@gradient(log, "out_grad / x")
def log_grad_kernel(k: Any) -> Call:
    return partial(k.xp.divide, k["out_grad"], k["x"], k["x_grad"])


sqrt = unary("sqrt", "Square root; NaN below 0.", "sqrt(x)", ufunc="sqrt", reads="out")


@gradient(sqrt, "out_grad / (out + out)")
def sqrt_grad_kernel(k: Any) -> Call:
    xp, x_grad = k.xp, k["x_grad"]
    half = x_grad.dtype.type(0.5)
    return in_order(
        partial(xp.divide, k["out_grad"], k["out"], x_grad),
        partial(xp.multiply, x_grad, half, x_grad),
    )


rsqrt = unary("rsqrt", "Reciprocal square root: out = 1 / sqrt(x).", "1 / sqrt(x)", reads="out")


@rsqrt.kernel
def rsqrt_kernel(k: Any) -> Call:
    out = k["out"]
    return in_order(partial(k.xp.sqrt, k["x"], out), partial(k.xp.reciprocal, out, out))


@gradient(rsqrt, "out_grad * out * out * out / -2")
def rsqrt_grad_kernel(k: Any) -> Call:
    multiply, out, x_grad = k.xp.multiply, k["out"], k["x_grad"]
    half = x_grad.dtype.type(-0.5)
    return in_order(
        partial(multiply, k["out_grad"], out, x_grad),
        partial(multiply, x_grad, out, x_grad),
        partial(multiply, x_grad, out, x_grad),
        partial(multiply, x_grad, half, x_grad),
    )


square = unary("square", "Square: out = x * x.", "x * x", ufunc="square", reads="x", shape=_numbers)


@gradient(square, "out_grad * (x + x)")
def square_grad_kernel(k: Any) -> Call:
    multiply, x_grad = k.xp.multiply, k["x_grad"]
    two = x_grad.dtype.type(2)
    return in_order(
        partial(multiply, k["out_grad"], k["x"], x_grad), partial(multiply, x_grad, two, x_grad)
    )


reciprocal = unary("reciprocal", "out = 1 / x.", "1 / x", ufunc="reciprocal", reads="out")


@gradient(reciprocal, "-out_grad * out * out")
def reciprocal_grad_kernel(k: Any) -> Call:
    xp, out, x_grad = k.xp, k["out"], k["x_grad"]
    return in_order(
        partial(xp.multiply, k["out_grad"], out, x_grad),
        partial(xp.multiply, x_grad, out, x_grad),
        partial(xp.negative, x_grad, x_grad),
    )


sin = unary("sin", "Sine of x in radians.", "sin(x)", ufunc="sin", reads="x")


@gradient(sin, "out_grad * cos(x)")
def sin_grad_kernel(k: Any) -> Call:
    xp, slope = k.xp, k.scratch(k["x"].shape, k["x"].dtype)
    return in_order(
        partial(xp.cos, k["x"], slope), partial(xp.multiply, k["out_grad"], slope, k["x_grad"])
    )


cos = unary("cos", "Cosine of x in radians.", "cos(x)", ufunc="cos", reads="x")


@gradient(cos, "-out_grad * sin(x)")
def cos_grad_kernel(k: Any) -> Call:
    xp, x_grad, slope = k.xp, k["x_grad"], k.scratch(k["x"].shape, k["x"].dtype)
    return in_order(
        partial(xp.sin, k["x"], slope),
        partial(xp.multiply, k["out_grad"], slope, x_grad),
        partial(xp.negative, x_grad, x_grad),
    )


erf = unary(
    "erf",
    "Error function: out = 2 / sqrt(pi) * (integral of exp(-t * t) for t from 0 to x).",
    "erf(x)",
    reads="x",
)


@erf.kernel
def erf_kernel(k: Any) -> Call:
    return erf_call(k, k["x"], k["out"])


_ERF_SLOPE = 2 / pi**0.5


@gradient(erf, f"out_grad * exp(-x * x) * {_ERF_SLOPE}")
def erf_grad_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    slope, factor = k.scratch(x.shape, x.dtype), x.dtype.type(_ERF_SLOPE)
    return in_order(
        partial(xp.multiply, x, x, slope),
        partial(xp.negative, slope, slope),
        partial(xp.exp, slope, slope),
        partial(xp.multiply, slope, factor, slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


def _clip_shape(s: ShapeArgs) -> None:
    if not s.attrs["minimum"] <= s.attrs["maximum"]:
        s.fail(f"minimum {s.attrs['minimum']} is not below maximum {s.attrs['maximum']}")
    _floats(s)


clip = unary(
    "clip",
    "Limits: out = min(max(x, minimum), maximum); NaN stays. The gradient is 1 from minimum to"
    " maximum, both included, and 0 outside.",
    "x < minimum ? minimum : x > maximum ? maximum : x",
    reads="x",
    attrs=[
        AttrSpec("minimum", "float", "lower limit", float("-inf")),
        AttrSpec("maximum", "float", "upper limit", float("inf")),
    ],
    shape=_clip_shape,
)


@clip.kernel
def clip_kernel(k: Any) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    low, high = (x.dtype.type(k.attrs[name]) for name in ("minimum", "maximum"))
    return in_order(partial(xp.maximum, x, low, out=out), partial(xp.minimum, out, high, out=out))


@gradient(clip, "x >= minimum && x <= maximum ? out_grad : 0")
def clip_grad_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    low, high = (x.dtype.type(k.attrs[name]) for name in ("minimum", "maximum"))
    above, below = k.scratch(x.shape, bool), k.scratch(x.shape, bool)
    return in_order(
        partial(xp.greater_equal, x, low, above),
        partial(xp.less_equal, x, high, below),
        partial(xp.logical_and, above, below, above),
        partial(xp.multiply, k["out_grad"], above, k["x_grad"]),
    )


assign = unary("assign", "Copy: out = x, of any dtype.", "x", shape=same_as("x"))


@assign.kernel
def assign_kernel(k: Any) -> Call:
    return in_order(copying(k.xp, k["x"], k["out"]))


@assign.gradient_maker
def assign_gradient(g: Any) -> list[Any]:
    return [g.op("assign", {"x": g.output_grads("out")}, {"out": g.input_grads("x")})]


scale = unary(
    "scale",
    "Linear map by constants: out = scale * x + bias.",
    "scale * x + bias",
    attrs=[
        AttrSpec("scale", "float", "factor", 1.0),
        AttrSpec("bias", "float", "added after the factor", 0.0),
    ],
)


@scale.kernel
def scale_kernel(k: Any) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    factor, bias = (x.dtype.type(k.attrs[name]) for name in ("scale", "bias"))
    multiply = partial(xp.multiply, x, factor, out)
    return in_order(multiply, partial(xp.add, out, bias, out) if bias else None)


@scale.gradient_maker
def scale_gradient(g: Any) -> list[Any]:
    factor = {"scale": g.attrs["scale"]} if "scale" in g.attrs else {}
    return [g.op("scale", {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, factor)]


def _increment_shape(s: ShapeArgs) -> None:
    value = s.attrs["value"]
    if s.dtype("x").kind in "iu" and not float(value).is_integer():
        s.fail(f"value={value} is not whole, as it has to be for {s.dtype('x')}")
    _numbers(s)


increment = unary(
    "increment",
    "Counting: out = x + value, for floats and integers; out may be the variable x itself.",
    "x + value",
    attrs=[AttrSpec("value", "float", "what is added; whole where x is an integer", 1.0)],
    shape=_increment_shape,
    source="Paddle, paddle/operators/increment_op.cc",
)


@increment.kernel
def increment_kernel(k: Any) -> Call:
    x = k["x"]
    value = k.attrs["value"] if x.dtype.kind == "f" else int(k.attrs["value"])
    return partial(k.xp.add, x, x.dtype.type(value), k["out"])


@increment.gradient_maker
def increment_gradient(g: Any) -> list[Any]:
    return [g.op("assign", {"x": g.output_grads("out")}, {"out": g.input_grads("x")})]


cast = operator(
    "cast",
    doc="Conversion to another dtype: fractions are cut off towards zero, and any number but 0"
    " becomes True. The gradient is converted back.",
    inputs=[Slot("x", "any shape and dtype", not_in_gradient=True)],
    outputs=[Slot("out", "shape of x, the dtype asked for", not_in_gradient=True)],
    attrs=[AttrSpec("dtype", "dtype", "dtype of out")],
    shape=lambda s: s.set("out", (s["x"], s.attrs["dtype"])),
    rows=rows_of("x"),
)


@cast.kernel
def cast_kernel(k: Any) -> Call:
    return in_order(copying(k.xp, k["x"], k["out"]))


@cast.backward("x")
def cast_grad_kernel(k: Any) -> Call:
    return in_order(copying(k.xp, k["out_grad"], k["x_grad"]))
