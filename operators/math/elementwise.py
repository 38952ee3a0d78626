"""Activations: elementwise operators of one input, each made from scalar expressions."""

from __future__ import annotations

from math import pi, sqrt

from ...framework.base.shape import ShapeArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from .elementwise_math import unary

relu = unary(
    "relu",
    "Rectified linear unit: out = max(x, 0).",
    "x < 0 ? 0 : x",
    gradient="out > 0 ? out_grad : 0",
)

leaky_relu = unary(
    "leaky_relu",
    "Leaky rectifier: out = x where x > 0, else alpha * x.",
    "x > 0 ? x : alpha * x",
    gradient="out > 0 ? out_grad : alpha * out_grad",
    attrs=[AttrSpec("alpha", "float", "slope below 0", 0.01, minimum=0.0)],
    source="A. L. Maas et al., Rectifier nonlinearities improve neural network acoustic models",
)

elu = unary(
    "elu",
    "Exponential linear unit: out = x where x > 0, else alpha * (exp(x) - 1).",
    "x > 0 ? x : alpha * expm1(x)",
    gradient="out > 0 ? out_grad : out_grad * (out + alpha)",
    attrs=[AttrSpec("alpha", "float", "minus the limit far below 0", 1.0, minimum=0.0)],
    source="D.-A. Clevert et al., Fast and accurate deep network learning by ELUs",
)


# Right at both ends, as exp overflows to infinity. Through tanh it would be as fast, but lose all
# relative accuracy for negative x.
sigmoid = unary(
    "sigmoid",
    "Logistic function: out = 1 / (1 + exp(-x)).",
    "1 / (1 + exp(-x))",
    gradient="out_grad * out * (1 - out)",
)

tanh = unary("tanh", "Hyperbolic tangent.", "tanh(x)", gradient="out_grad * (1 - out * out)")

silu = unary(
    "silu",
    "Sigmoid linear unit (swish): out = x / (1 + exp(-x)).",
    "x / (1 + exp(-x))",
    gradient="out_grad / (1 + exp(-x)) * (1 + x / (1 + exp(x)))",
    source="S. Elfwing et al., Sigmoid-weighted linear units",
)


def _positive_beta(s: ShapeArgs) -> None:
    if not s.attrs["beta"] > 0:
        s.fail(f"beta={s.attrs['beta']} is not above 0")
    s.set("out", (s["x"], s.floats("x")))


softplus = unary(
    "softplus",
    "Smooth rectifier: out = log(1 + exp(beta * x)) / beta.",
    "(fmax(beta * x, 0) + log1p(exp(-fabs(beta * x)))) / beta",
    gradient="out_grad / (1 + exp(-beta * x))",
    attrs=[AttrSpec("beta", "float", "sharpness, above 0", 1.0)],
    shape=_positive_beta,
)


hard_sigmoid = unary(
    "hard_sigmoid",
    "Sigmoid in three straight lines: out = min(max(alpha * x + beta, 0), 1).",
    "alpha * x + beta < 0 ? 0 : alpha * x + beta > 1 ? 1 : alpha * x + beta",
    gradient="out > 0 && out < 1 ? out_grad * alpha : 0",
    attrs=[
        AttrSpec("alpha", "float", "slope of the middle line", 0.2),
        AttrSpec("beta", "float", "value at 0", 0.5),
    ],
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
_ERFC = f"erfc(-x * {_ROOT_HALF})"

gelu_erf = unary(
    "gelu_erf",
    "Gaussian error linear unit: out = x / 2 * (1 + erf(x / sqrt(2))).",
    f"x / 2 * {_ERFC}",
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
    gradient=f"out_grad * (({_SLOPE} * (1 - {_WEIGHT}) + 1) * {_WEIGHT})",
    source=gelu.source,
)
