"""Elementwise operators of one input: activations.

Each gives its NumPy/CuPy kernel and its scalar expression in C, from which chains are fused.
"""

from __future__ import annotations

from functools import partial
from math import pi, sqrt
from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import Call, in_order
from ..base.erf import erfc_call
from .elementwise_math import gradient, unary

relu = unary("relu", "Rectified linear unit: out = max(x, 0).", "x < 0 ? 0 : x", reads="out")


@relu.kernel
def relu_kernel(k: Any) -> Call:
    return partial(k.xp.maximum, k["x"], k["x"].dtype.type(0), out=k["out"])


@gradient(relu, "out > 0 ? out_grad : 0")
def relu_grad_kernel(k: Any) -> Call:
    xp, out = k.xp, k["out"]
    mask = k.scratch(out.shape, bool)
    return in_order(
        partial(xp.greater, out, out.dtype.type(0), mask),
        partial(xp.multiply, k["out_grad"], mask, k["x_grad"]),
    )


leaky_relu = unary(
    "leaky_relu",
    "Leaky rectifier: out = x where x > 0, else alpha * x.",
    "x > 0 ? x : alpha * x",
    reads="out",
    attrs=[AttrSpec("alpha", "float", "slope below 0", 0.01, minimum=0.0)],
    source="A. L. Maas et al., Rectifier nonlinearities improve neural network acoustic models",
)


@leaky_relu.kernel
def leaky_relu_kernel(k: Any) -> Call:
    xp, x, out, alpha = k.xp, k["x"], k["out"], k.attrs["alpha"]
    real, slope = x.dtype.type, k.scratch(x.shape, x.dtype)
    choice = xp.maximum if alpha <= 1 else xp.minimum
    calls = [partial(xp.multiply, x, real(alpha), slope), partial(choice, x, slope, out=out)]
    if alpha == 0:  # 0 * infinity is no number
        calls[:1] = [
            partial(xp.minimum, x, real(0), out=slope),
            partial(xp.multiply, slope, real(0), slope),
        ]
    return in_order(*calls)


@gradient(leaky_relu, "out > 0 ? out_grad : alpha * out_grad")
def leaky_relu_grad_kernel(k: Any) -> Call:
    xp, out, alpha = k.xp, k["out"], k.attrs["alpha"]
    real = out.dtype.type
    slope, mask = k.scratch(out.shape, out.dtype), k.scratch(out.shape, bool)
    return in_order(
        # Selecting by arithmetic: a masked copy is several times slower.
        partial(xp.greater, out, real(0), mask),
        partial(xp.multiply, mask, real(1 - alpha), slope),
        partial(xp.add, slope, real(alpha), slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


elu = unary(
    "elu",
    "Exponential linear unit: out = x where x > 0, else alpha * (exp(x) - 1).",
    "x > 0 ? x : alpha * expm1(x)",
    reads="out",
    attrs=[AttrSpec("alpha", "float", "minus the limit far below 0", 1.0, minimum=0.0)],
    source="D.-A. Clevert et al., Fast and accurate deep network learning by ELUs",
)


@elu.kernel
def elu_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    real = x.dtype.type
    below = k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.minimum, x, real(0), out=below),
        partial(xp.expm1, below, below),
        partial(xp.multiply, below, real(k.attrs["alpha"]), below),
        partial(xp.maximum, x, real(0), out=k["out"]),
        partial(xp.add, k["out"], below, k["out"]),
    )


@gradient(elu, "out > 0 ? out_grad : out_grad * (out + alpha)")
def elu_grad_kernel(k: Any) -> Call:
    xp, out, alpha = k.xp, k["out"], k.attrs["alpha"]
    real = out.dtype.type
    slope = k.scratch(out.shape, out.dtype)
    calls = [
        partial(xp.minimum, out, real(0), out=slope),
        partial(xp.add, slope, real(alpha), slope),
    ]
    if alpha != 1:  # alpha is what the slope is above 0 so far
        rest, mask = k.scratch(out.shape, out.dtype), k.scratch(out.shape, bool)
        calls += [
            partial(xp.greater, out, real(0), mask),
            partial(xp.multiply, mask, real(1 - alpha), rest),
            partial(xp.add, slope, rest, slope),
        ]
    return in_order(*calls, partial(xp.multiply, k["out_grad"], slope, k["x_grad"]))


def _sigmoid_calls(xp: Any, x: Any, out: Any, beta: float = 1.0) -> list[Call]:
    """Calls for out = 1 / (1 + exp(-beta * x)): right at both ends, as exp overflows to infinity.

    Through tanh it would be as fast, but lose all relative accuracy for negative x.
    """
    real = x.dtype.type
    return [
        partial(xp.negative, x, out) if beta == 1 else partial(xp.multiply, x, real(-beta), out),
        partial(xp.exp, out, out),
        partial(xp.add, out, real(1), out),
        partial(xp.divide, real(1), out, out),
    ]


sigmoid = unary(
    "sigmoid", "Logistic function: out = 1 / (1 + exp(-x)).", "1 / (1 + exp(-x))", reads="out"
)


@sigmoid.kernel
def sigmoid_kernel(k: Any) -> Call:
    return in_order(*_sigmoid_calls(k.xp, k["x"], k["out"]))


@gradient(sigmoid, "out_grad * out * (1 - out)")
def sigmoid_grad_kernel(k: Any) -> Call:
    xp, out = k.xp, k["out"]
    slope = k.scratch(out.shape, out.dtype)
    return in_order(
        partial(xp.subtract, out.dtype.type(1), out, slope),
        partial(xp.multiply, slope, out, slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


tanh = unary("tanh", "Hyperbolic tangent.", "tanh(x)", ufunc="tanh", reads="out")


@gradient(tanh, "out_grad * (1 - out * out)")
def tanh_grad_kernel(k: Any) -> Call:
    xp, out = k.xp, k["out"]
    slope = k.scratch(out.shape, out.dtype)
    return in_order(
        partial(xp.multiply, out, out, slope),
        partial(xp.subtract, out.dtype.type(1), slope, slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


silu = unary(
    "silu",
    "Sigmoid linear unit (swish): out = x / (1 + exp(-x)).",
    "x / (1 + exp(-x))",
    reads="x",
    source="S. Elfwing et al., Sigmoid-weighted linear units",
)


@silu.kernel
def silu_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    weight = k.scratch(x.shape, x.dtype)
    return in_order(*_sigmoid_calls(xp, x, weight), partial(xp.multiply, x, weight, k["out"]))


@gradient(silu, "out_grad / (1 + exp(-x)) * (1 + x / (1 + exp(x)))")
def silu_grad_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    one = x.dtype.type(1)
    weight, slope = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    return in_order(
        *_sigmoid_calls(xp, x, weight),
        partial(xp.subtract, one, weight, slope),
        partial(xp.multiply, slope, x, slope),
        partial(xp.add, slope, one, slope),
        partial(xp.multiply, slope, weight, slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


def _positive_beta(s: ShapeArgs) -> None:
    if not s.attrs["beta"] > 0:
        s.fail(f"beta={s.attrs['beta']} is not above 0")
    s.set("out", (s["x"], s.floats("x")))


softplus = unary(
    "softplus",
    "Smooth rectifier: out = log(1 + exp(beta * x)) / beta.",
    "(fmax(beta * x, 0) + log1p(exp(-fabs(beta * x)))) / beta",
    reads="x",
    attrs=[AttrSpec("beta", "float", "sharpness, above 0", 1.0)],
    shape=_positive_beta,
)


@softplus.kernel
def softplus_kernel(k: Any) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    real, beta = x.dtype.type, k.attrs["beta"]
    rest = k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.absolute, x, rest),
        partial(xp.multiply, rest, real(-beta), rest),
        partial(xp.exp, rest, rest),
        partial(xp.log1p, rest, rest),
        partial(xp.divide, rest, real(beta), rest) if beta != 1 else None,
        partial(xp.maximum, x, real(0), out=out),
        partial(xp.add, out, rest, out),
    )


@gradient(softplus, "out_grad / (1 + exp(-beta * x))")
def softplus_grad_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    slope = k.scratch(x.shape, x.dtype)
    return in_order(
        *_sigmoid_calls(xp, x, slope, k.attrs["beta"]),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )


hard_sigmoid = unary(
    "hard_sigmoid",
    "Sigmoid in three straight pieces: out = min(max(alpha * x + beta, 0), 1).",
    "alpha * x + beta < 0 ? 0 : alpha * x + beta > 1 ? 1 : alpha * x + beta",
    reads="out",
    attrs=[
        AttrSpec("alpha", "float", "slope of the middle piece", 0.2),
        AttrSpec("beta", "float", "value at 0", 0.5),
    ],
)


@hard_sigmoid.kernel
def hard_sigmoid_kernel(k: Any) -> Call:
    xp, x, out = k.xp, k["x"], k["out"]
    real = x.dtype.type
    return in_order(
        partial(xp.multiply, x, real(k.attrs["alpha"]), out),
        partial(xp.add, out, real(k.attrs["beta"]), out),
        partial(xp.maximum, out, real(0), out=out),
        partial(xp.minimum, out, real(1), out=out),
    )


@gradient(hard_sigmoid, "out > 0 && out < 1 ? out_grad * alpha : 0")
def hard_sigmoid_grad_kernel(k: Any) -> Call:
    xp, out, x_grad = k.xp, k["out"], k["x_grad"]
    real = out.dtype.type
    above, below = k.scratch(out.shape, bool), k.scratch(out.shape, bool)
    return in_order(
        partial(xp.greater, out, real(0), above),
        partial(xp.less, out, real(1), below),
        partial(xp.logical_and, above, below, above),
        partial(xp.multiply, k["out_grad"], real(k.attrs["alpha"]), x_grad),
        partial(xp.multiply, x_grad, above, x_grad),
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
    reads="x",
    source=gelu.source,
)


@gelu_erf.kernel
def gelu_erf_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    argument, weight = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.multiply, x, x.dtype.type(-_ROOT_HALF), argument),
        erfc_call(k, argument, weight),
        partial(xp.multiply, weight, x.dtype.type(0.5), weight),
        partial(xp.multiply, x, weight, k["out"]),
    )


@gradient(
    gelu_erf,
    f"out_grad * ({_ERFC} / 2 + x * exp(-x * x / 2) * {_DENSITY})",
)
def gelu_erf_grad_kernel(k: Any) -> Call:
    xp, x, x_grad = k.xp, k["x"], k["x_grad"]
    real = x.dtype.type
    argument, weight = k.scratch(x.shape, x.dtype), k.scratch(x.shape, x.dtype)
    return in_order(
        partial(xp.multiply, x, real(-_ROOT_HALF), argument),
        erfc_call(k, argument, weight),
        partial(xp.multiply, weight, real(0.5), weight),
        partial(xp.multiply, argument, argument, argument),
        partial(xp.negative, argument, argument),
        partial(xp.exp, argument, argument),
        partial(xp.multiply, argument, x, argument),
        partial(xp.multiply, argument, real(_DENSITY), argument),
        partial(xp.add, weight, argument, weight),
        partial(xp.multiply, k["out_grad"], weight, x_grad),
    )


# 1 + tanh(v) = 2 * sigmoid(2 * v), which keeps its accuracy for negative v: the operator is
# x * sigmoid(LINEAR * x + CUBIC * x ** 3).
_LINEAR = 2 * sqrt(2 / pi)
_CUBIC = _LINEAR * 0.044715
_ARGUMENT = f"(x * {_LINEAR} + x * x * x * {_CUBIC})"
_WEIGHT = f"(1 / (1 + exp(-{_ARGUMENT})))"
_ANTI_WEIGHT = f"(1 / (1 + exp({_ARGUMENT})))"
_SLOPE = f"(x * {_LINEAR} + x * x * x * 3 * {_CUBIC})"

gelu_tanh = unary(
    "gelu_tanh",
    "Gaussian error linear unit, approximately:"
    " out = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))).",
    f"x * {_WEIGHT}",
    reads="x",
    source=gelu.source,
)


def _odd_cubic(xp: Any, x: Any, linear: float, cubic: float, out: Any) -> list[Call]:
    """Calls for out = linear * x + cubic * x ** 3."""
    real = x.dtype.type
    return [
        partial(xp.multiply, x, x, out),
        partial(xp.multiply, out, real(cubic), out),
        partial(xp.add, out, real(linear), out),
        partial(xp.multiply, out, x, out),
    ]


@gelu_tanh.kernel
def gelu_tanh_kernel(k: Any) -> Call:
    xp, x = k.xp, k["x"]
    weight = k.scratch(x.shape, x.dtype)
    return in_order(
        *_odd_cubic(xp, x, _LINEAR, _CUBIC, weight),
        *_sigmoid_calls(xp, weight, weight),
        partial(xp.multiply, x, weight, k["out"]),
    )


@gradient(gelu_tanh, f"out_grad * {_WEIGHT} * (1 + {_SLOPE} * {_ANTI_WEIGHT})")
def gelu_tanh_grad_kernel(k: Any) -> Call:
    xp, x, one = k.xp, k["x"], k["x"].dtype.type(1)
    weight, rest, slope = (k.scratch(x.shape, x.dtype) for _ in range(3))
    return in_order(
        *_odd_cubic(xp, x, _LINEAR, _CUBIC, weight),
        *_sigmoid_calls(xp, weight, weight),
        partial(xp.subtract, one, weight, rest),
        *_odd_cubic(xp, x, _LINEAR, 3 * _CUBIC, slope),
        partial(xp.multiply, slope, rest, slope),
        partial(xp.add, slope, one, slope),
        partial(xp.multiply, slope, weight, slope),
        partial(xp.multiply, k["out_grad"], slope, k["x_grad"]),
    )
