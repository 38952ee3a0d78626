"""Activations: elementwise operators of one input, each made from a scalar expression.

Where a gradient is written beside it, a comment says what is wrong with the one derived from it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from .elementwise_math import limits_rule, numbers_rule, unary

relu = unary(
    "relu",
    "Rectified linear unit: out = max(x, 0).",
    # Not x > 0 ? x : 0, which makes 0 of NaN.
    "x < 0 ? 0 : x",
    # by out, so that x may be overwritten
    gradient="out > 0 ? out_grad : 0",
    shape=numbers_rule,
)

leaky_relu = unary(
    "leaky_relu",
    "Leaky rectifier: out = x where x > 0, else alpha * x.",
    "x > 0 ? x : alpha * x",
    # By out, which has the sign of x, as alpha is not negative: x may be overwritten.
    gradient="out > 0 ? out_grad : alpha * out_grad",
    attrs=[AttrSpec("alpha", "float", "slope below 0", 0.01, minimum=0.0)],
    source="A. L. Maas et al., Rectifier nonlinearities improve neural network acoustic models",
)

elu = unary(
    "elu",
    "Exponential linear unit: out = x where x > 0, else alpha * (exp(x) - 1).",
    "x > 0 ? x : alpha * expm1(x)",
    # By out, so that x may be overwritten: alpha exp(x) is out + alpha, and needs no exponential.
    gradient="out > 0 ? out_grad : out_grad * (out + alpha)",
    attrs=[AttrSpec("alpha", "float", "minus the limit far below 0", 1.0, minimum=0.0)],
    source="D.-A. Clevert et al., Fast and accurate deep network learning by ELUs",
)


# The constants make mean 0 and variance 1 a fixed point of a layer.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

selu = unary(
    "selu",
    "Scaled exponential linear unit: out = 1.0507 * (x where x > 0, else 1.6733 * (exp(x) - 1)).",
    f"x > 0 ? {_SELU_SCALE} * x : {_SELU_SCALE * _SELU_ALPHA} * expm1(x)",
    # by out, so that x may be overwritten
    gradient=f"out > 0 ? {_SELU_SCALE} * out_grad : out_grad * (out + {_SELU_SCALE * _SELU_ALPHA})",
    source="G. Klambauer et al., Self-normalizing neural networks, arXiv:1706.02515",
)


def _above_zero(attr: str) -> Callable[[ShapeArgs], None]:
    """Shape rule that wants a number above 0."""

    def rule(s: ShapeArgs) -> None:
        if not s.attrs[attr] > 0:
            s.fail(f"{attr}={s.attrs[attr]} is not above 0")
        s.set("out", (s["x"], s.floats("x")))

    return rule


celu = unary(
    "celu",
    "Continuously differentiable exponential linear unit: out = x where x > 0, else"
    " alpha * (exp(x / alpha) - 1).",
    "x > 0 ? x : alpha * expm1(x / alpha)",
    # by out, so that x may be overwritten
    gradient="out > 0 ? out_grad : out_grad * (out / alpha + 1)",
    attrs=[AttrSpec("alpha", "float", "minus the limit far below 0; above 0", 1.0)],
    shape=_above_zero("alpha"),
    source="J. T. Barron, Continuously differentiable exponential linear units, arXiv:1704.07483",
)


# Right at both ends, as exp overflows to infinity. Through tanh it would be as fast, but lose all
# relative accuracy for negative x.
sigmoid = unary(
    "sigmoid",
    "Logistic function: out = 1 / (1 + exp(-x)).",
    "1 / (1 + exp(-x))",
)

tanh = unary("tanh", "Hyperbolic tangent.", "tanh(x)")

silu = unary(
    "silu",
    "Sigmoid linear unit (swish): out = x / (1 + exp(-x)).",
    "x / (1 + exp(-x))",
    # in the derived one, 1 - out / x cancels far above 0
    gradient="out_grad / (1 + exp(-x)) * (1 + x / (1 + exp(x)))",
    source="S. Elfwing et al., Sigmoid-weighted linear units",
)


softplus = unary(
    "softplus",
    "Smooth rectifier: out = log(1 + exp(beta * x)) / beta.",
    # The exponent is never above 0: log(1 + exp(x)) overflows where the result is still near x.
    "((beta * x > 0 ? beta * x : 0) + log1p(exp(-fabs(beta * x)))) / beta",
    # the derived one computes both sides of |beta * x|
    gradient="out_grad / (1 + exp(-beta * x))",
    attrs=[AttrSpec("beta", "float", "sharpness, above 0", 1.0)],
    shape=_above_zero("beta"),
)


hard_sigmoid = unary(
    "hard_sigmoid",
    "Sigmoid in three straight lines: out = min(max(alpha * x + beta, 0), 1).",
    "alpha * x + beta < 0 ? 0 : alpha * x + beta > 1 ? 1 : alpha * x + beta",
    # by out, so that x may be overwritten
    gradient="out > 0 && out < 1 ? out_grad * alpha : 0",
    attrs=[
        AttrSpec("alpha", "float", "slope of the middle line", 0.2),
        AttrSpec("beta", "float", "value at 0", 0.5),
    ],
)

relu6 = unary(
    "relu6",
    "Rectified linear unit with a ceiling: out = min(max(x, 0), 6).",
    "x < 0 ? 0 : x > 6 ? 6 : x",
    # by out, so that x may be overwritten
    gradient="out > 0 && out < 6 ? out_grad : 0",
    source="A. G. Howard et al., MobileNets, arXiv:1704.04861",
)

hard_tanh = unary(
    "hard_tanh",
    "Hyperbolic tangent in three straight lines: out = min(max(x, minimum), maximum). The"
    " gradient is 0 at both limits, unlike the gradient of `clip`.",
    "x < minimum ? minimum : x > maximum ? maximum : x",
    # the derived one is the gradient of `clip`
    gradient="x > minimum && x < maximum ? out_grad : 0",
    attrs=[
        AttrSpec("minimum", "float", "lower limit", -1.0),
        AttrSpec("maximum", "float", "upper limit", 1.0),
    ],
    shape=limits_rule,
    source="R. Collobert, Large scale machine learning (2004)",
)

hard_swish = unary(
    "hard_swish",
    "Swish in straight lines: out = x * min(max(x + 3, 0), 6) / 6.",
    "x * (x + 3 < 0 ? 0 : x + 3 > 6 ? 6 : x + 3) * 0.16666666666666666",
    # the derived one has a step more at either kink
    gradient="x > -3 ? (x < 3 ? out_grad * (x / 3 + 0.5) : out_grad) : 0",
    source="A. Howard et al., Searching for MobileNetV3, arXiv:1905.02244",
)

log_sigmoid = unary(
    "log_sigmoid",
    "Logarithm of the logistic function: out = -log(1 + exp(-x)), without overflow.",
    "(x < 0 ? x : 0) - log1p(exp(-fabs(x)))",
    # the derived one computes both sides of |x|
    gradient="out_grad / (1 + exp(x))",
)

softsign = unary(
    "softsign",
    "Sign with a smooth step: out = x / (1 + |x|).",
    "x / (1 + fabs(x))",
    # the derived one computes both sides of |x|
    gradient="out_grad / ((1 + fabs(x)) * (1 + fabs(x)))",
    source="J. Bergstra et al., Quadratic polynomials learn better image features (2009)",
)

# tanh(log(1 + exp(x))) = n / (n + 2) with n = exp(x) * (exp(x) + 2); for x > 0 both are divided by
# exp(2 * x), so that nothing overflows.
_E = "exp(-fabs(x))"
_MISH = (
    f"(x > 0 ? (1 + 2 * {_E}) / (1 + 2 * {_E} * (1 + {_E}))"
    f" : {_E} * ({_E} + 2) / ({_E} * ({_E} + 2) + 2))"
)

mish = unary(
    "mish",
    "Mish: out = x * tanh(log(1 + exp(x))), without overflow.",
    f"x * {_MISH}",
    # by the tangent, which the derived one takes apart
    gradient=f"out_grad * ({_MISH} + x * (1 - {_MISH} * {_MISH}) / (1 + exp(-x)))",
    source="D. Misra, Mish: a self regularized non-monotonic activation, arXiv:1908.08681",
)


gelu = operator(
    "gelu",
    doc="Gaussian error linear unit: out = x * P(a standard normal number is below x). Stands for"
    " `gelu_erf` (exact) or `gelu_tanh` (an approximation within 5e-4).",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("out", "shape of x")],
    attrs=[
        AttrSpec("approximate", "string", "exact or through tanh", "none", choices=("none", "tanh"))
    ],
    source="D. Hendrycks, K. Gimpel, Gaussian error linear units, arXiv:1606.08415",
)


@gelu.expansion
def gelu_expansion(op: OpNode) -> list[OpNode]:
    held = op.attrs.get("approximate", "none")
    return [op.changed(type="gelu_tanh" if held == "tanh" else "gelu_erf", attrs={})]


_ROOT_HALF = sqrt(0.5)
_DENSITY = 1 / sqrt(2 * pi)
# 1 + erf(v) = erfc(-v), which keeps its accuracy for negative x, where the sum cancels.
_ERFC = f"erfc(-x * {_ROOT_HALF})"

gelu_erf = unary(
    "gelu_erf",
    "Gaussian error linear unit: out = x / 2 * (1 + erf(x / sqrt(2))).",
    f"x / 2 * {_ERFC}",
    # the derived one multiplies by the root of a half twice
    gradient=f"out_grad * ({_ERFC} / 2 + x * exp(-x * x / 2) * {_DENSITY})",
    source=gelu.source,
)


# 1 + tanh(v) = 2 * sigmoid(2 * v), which keeps its accuracy for negative v: the operator is
# x * sigmoid(LINEAR * x + CUBIC * x ** 3).
_LINEAR = 2 * sqrt(2 / pi)
_CUBIC = _LINEAR * 0.044715
_WEIGHT = f"(1 / (1 + exp(-((x * x * {_CUBIC} + {_LINEAR}) * x))))"
_SLOPE = f"((x * x * {3 * _CUBIC} + {_LINEAR}) * x)"

gelu_tanh = unary(
    "gelu_tanh",
    "Gaussian error linear unit, approximately:"
    " out = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))).",
    f"x * {_WEIGHT}",
    # one product less than the derived one
    gradient=f"out_grad * (({_SLOPE} * (1 - {_WEIGHT}) + 1) * {_WEIGHT})",
    source=gelu.source,
)
