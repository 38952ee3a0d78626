"""Elementwise functions of one input.

Each is given by one scalar expression for its value, which its gradient is derived from. NumPy, C
and CUDA kernels follow from these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...framework.base.sizes.shape import ShapeArgs, same_as
from ...framework.fusion.scalars.derivative import gradients
from ...framework.fusion.scalars.expression import names, parse
from ...framework.fusion.team import in_order
from ...framework.ir.gradient_args import GradientArgs, GradientMaker
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import EVERYWHERE, AttrSpec, OperatorDef, Slot, operator
from ...framework.ir.rows import rows_of
from ..base.calls import copying
from ..base.derived import derived_kernel

_FLAT = "its derivative is zero wherever there is one"


def _floats(s: ShapeArgs) -> None:
    s.set("out", (s["x"], s.floats("x")))


def numbers_rule(s: ShapeArgs) -> None:
    """Shape rule of floats or whole numbers x -> out."""
    if s.dtype("x").kind == "b":
        s.fail("x wants a number's dtype and has bool")
    s.set("out", (s["x"], s.dtype("x")))


def unary(
    op_type: str,
    doc: str,
    scalar: str,
    *,
    gradient: str | GradientMaker = "",
    attrs: Sequence[AttrSpec] = (),
    shape: Callable[[ShapeArgs], None] = _floats,
    no_gradient: str = "",
    source: str = "",
) -> OperatorDef:
    """Register an elementwise operator x -> out that may write over x.

    Args:
        scalar: expression of out in terms of x and attributes.
        gradient: expression of x_grad in terms of out_grad, x, out and attributes, or a gradient
            maker; "" = derived from `scalar`. One is written where it is better than the derived
            one, with the reason.
    """
    maker = gradient if callable(gradient) else None
    written: dict[str, str] = {}
    if maker is None and not no_gradient:
        written = {"x_grad": str(gradient)} if gradient else gradients(scalar, ["x"])
    # Training keeps what a gradient reads; all else may be overwritten in place or freed.
    reads = names(parse(written["x_grad"])) if written else frozenset[str]()
    entry = operator(
        op_type,
        doc=doc,
        inputs=[Slot("x", "any shape", not_in_gradient="x" not in reads)],
        outputs=[Slot("out", "shape of x", inplace="x", not_in_gradient="out" not in reads)],
        attrs=attrs,
        source=source,
        shape=shape,
        scalar=scalar,
        no_gradient=no_gradient,
    )
    entry.kernel(derived_kernel)
    if written:
        # Each element of x_grad reads its own place alone, so it may lie where out_grad lay.
        entry.backward("x", scalar=written, inplace={"x_grad": "out_grad"})(derived_kernel)
    elif maker is not None:
        entry.gradient_maker(maker)
    return entry


def negated_gradient(g: GradientArgs) -> list[OpNode]:
    """The gradient of x is minus the gradient of out."""
    return [g.op("neg", {"x": g.output_grads("out")}, {"out": g.input_grads("x")})]


neg = unary("neg", "Negation: out = -x.", "-x", gradient=negated_gradient, shape=numbers_rule)

absolute = unary(
    "abs",
    "Absolute value: out = |x|. The gradient at 0 is 0.",
    "fabs(x)",
    shape=numbers_rule,
)


# operator type -> doc, scalar expression
_STEPS = {
    # The last branch is x and not 0, so that NaN stays.
    "sign": ("Sign: out = 1, 0 or -1; NaN of NaN.", "x > 0 ? 1 : x < 0 ? -1 : x"),
    "floor": ("Largest whole number not above x.", "floor(x)"),
    "ceil": ("Smallest whole number not below x.", "ceil(x)"),
    "round": ("Nearest whole number; the even one of two.", "rint(x)"),
    "trunc": ("Whole number next to x towards 0: x without its fraction.", "trunc(x)"),
}
for _type, (_doc, _scalar) in _STEPS.items():
    _rule = numbers_rule if _type == "sign" else _floats
    unary(_type, _doc, _scalar, no_gradient=_FLAT, shape=_rule)

exp = unary("exp", "Exponential: out = e ** x.", "exp(x)")

log = unary("log", "Natural logarithm; NaN below 0.", "log(x)")

# operator type -> doc, scalar expression
_FUNCTIONS = {
    "exp2": ("Power of two: out = 2 ** x.", "exp2(x)"),
    "expm1": ("out = e ** x - 1, also exact for small x.", "expm1(x)"),
    "log2": ("Logarithm to base 2; NaN below 0.", "log2(x)"),
    "log10": ("Logarithm to base 10; NaN below 0.", "log10(x)"),
    "log1p": ("out = log(1 + x), also exact for small x; NaN below -1.", "log1p(x)"),
    "sqrt": ("Square root; NaN below 0.", "sqrt(x)"),
    "rsqrt": ("Reciprocal square root: out = 1 / sqrt(x).", "1 / sqrt(x)"),
    "reciprocal": ("out = 1 / x.", "1 / x"),
    "sin": ("Sine of x in radians.", "sin(x)"),
    "cos": ("Cosine of x in radians.", "cos(x)"),
    "tan": ("Tangent of x in radians.", "tan(x)"),
    "asin": ("Arcsine in radians, from -pi / 2 to pi / 2; NaN outside of [-1, 1].", "asin(x)"),
    "acos": ("Arccosine in radians, from 0 to pi; NaN outside of [-1, 1].", "acos(x)"),
    "atan": ("Arctangent in radians, from -pi / 2 to pi / 2.", "atan(x)"),
    "sinh": ("Hyperbolic sine.", "sinh(x)"),
    "cosh": ("Hyperbolic cosine.", "cosh(x)"),
    "asinh": ("Inverse hyperbolic sine.", "asinh(x)"),
    "acosh": ("Inverse hyperbolic cosine; NaN below 1.", "acosh(x)"),
    "atanh": ("Inverse hyperbolic tangent; NaN outside of [-1, 1].", "atanh(x)"),
    "erf": (
        "Error function: out = 2 / sqrt(pi) * (integral of exp(-t * t) for t from 0 to x).",
        "erf(x)",
    ),
}
for _type, (_doc, _scalar) in _FUNCTIONS.items():
    unary(_type, _doc, _scalar)

square = unary("square", "Square: out = x * x.", "x * x", shape=numbers_rule)


def limits_rule(s: ShapeArgs) -> None:
    """Shape rule of floats x -> out between the attributes `minimum` and `maximum`."""
    if not s.attrs["minimum"] <= s.attrs["maximum"]:
        s.fail(f"minimum {s.attrs['minimum']} is not below maximum {s.attrs['maximum']}")
    _floats(s)


clip = unary(
    "clip",
    "Limits: out = min(max(x, minimum), maximum); NaN stays. The gradient is 1 from minimum to"
    " maximum, both included, and 0 outside.",
    "x < minimum ? minimum : x > maximum ? maximum : x",
    attrs=[
        AttrSpec("minimum", "float", "lower limit", float("-inf")),
        AttrSpec("maximum", "float", "upper limit", float("inf")),
    ],
    shape=limits_rule,
)


def copied_gradient(g: GradientArgs) -> list[OpNode]:
    """The gradient of x is the gradient of out."""
    return [g.op("assign", {"x": g.output_grads("out")}, {"out": g.input_grads("x")})]


assign = unary(
    "assign", "Copy: out = x, of any dtype.", "x", gradient=copied_gradient, shape=same_as("x")
)

stop_gradient = unary(
    "stop_gradient",
    "Copy through which no gradient passes back: out = x, of any dtype. PyTorch's `detach`.",
    "x",
    shape=same_as("x"),
    no_gradient="to stop it is what the operator is for",
    source="TensorFlow's tf.stop_gradient",
)


def scaled_gradient(g: GradientArgs) -> list[OpNode]:
    """The gradient of x is the gradient of out, scaled as x is."""
    factor = {"scale": g.attrs["scale"]} if "scale" in g.attrs else {}
    return [g.op("scale", {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, factor)]


scale = unary(
    "scale",
    "Linear map by constants: out = scale * x + bias.",
    "scale * x + bias",
    gradient=scaled_gradient,
    attrs=[
        AttrSpec("scale", "float", "factor", 1.0),
        AttrSpec("bias", "float", "added after the factor", 0.0),
    ],
)


def _increment_shape(s: ShapeArgs) -> None:
    value = s.attrs["value"]
    if s.dtype("x").kind in "iu" and not float(value).is_integer():
        s.fail(f"value={value} is not whole, as it has to be for {s.dtype('x')}")
    numbers_rule(s)


increment = unary(
    "increment",
    "Counting: out = x + value, for floats and integers; out may be the variable x itself.",
    "x + value",
    gradient=copied_gradient,
    attrs=[AttrSpec("value", "float", "the number added; whole where x is an integer", 1.0)],
    shape=_increment_shape,
    source="Paddle, paddle/operators/increment_op.cc",
)


cast = operator(
    "cast",
    doc="Conversion to another dtype: fractions are cut off towards zero, and any number but 0"
    " becomes True. The gradient is converted back.",
    inputs=[Slot("x", "any shape and dtype", not_in_gradient=True)],
    outputs=[Slot("out", "shape of x, of the dtype `dtype`", not_in_gradient=True)],
    attrs=[AttrSpec("dtype", "dtype", "dtype of out")],
    shape=lambda s: s.set("out", (s["x"], s.attrs["dtype"])),
    rows=rows_of("x"),
    takes_halves=EVERYWHERE,
)


@cast.kernel
def cast_kernel(k: KernelArgs) -> Call:
    return in_order(copying(k.xp, k["x"], k["out"]))


@cast.backward("x")
def cast_grad_kernel(k: KernelArgs) -> Call:
    return in_order(copying(k.xp, k["out_grad"], k["x_grad"]))
