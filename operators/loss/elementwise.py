"""Losses that compare two arrays element by element; reduce them with `mean` or `sum`.

Each is one entry of a table, with its value as an expression; where its derivative is also written,
a comment says what is wrong with the derived one. NumPy, C and CUDA kernels follow from these.
Losses of float16 and bfloat16 are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.dtypes import wide
from ...framework.base.sizes.shape import ShapeArgs, ShapeRule
from ...framework.fusion.scalars.derivative import gradients
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.derived import derived_kernel


@dataclass(frozen=True)
class _Loss:
    """A loss of x and a second array of the same shape, in the slot `other`.

    Attributes:
        value: expression of out. slope: of its derivative with respect to x, which is minus that
            with respect to y; "" = derived from the value.
        both: the other array has a gradient, too.
    """

    type: str
    doc: str
    value: str
    slope: str = ""
    other: str = "y"
    both: bool = True
    attrs: tuple[AttrSpec, ...] = ()
    source: str = ""


def _positive(name: str, default: float, doc: str) -> AttrSpec:
    return AttrSpec(name, "float", doc, default, minimum=1e-12)


# Of the focal loss: the probability of the wrong side, the cross entropy, the weight of the class.
# Each side from its own exponential: 1 less the other would lose its digits where that is near 1.
_MISSED = "(label / (1 + exp(x)) + (1 - label) / (1 + exp(-x)))"
# The exponential is of -|x|, so it cannot overflow.
_CROSS = "(fmax(x, 0) + log1p(exp(-fabs(x))) - x * label)"
_SHARE = "(alpha < 0 ? 1 : alpha * label + (1 - alpha) * (1 - label))"
_SIDES = "(1 / (1 + exp(-x))) * (1 / (1 + exp(x)))"  # the derivative of the sigmoid

_LOSSES = (
    _Loss(
        "squared_error",
        "Squared error: out = (x - y)^2; `mean` of it is the mean squared error.",
        value="(x - y) * (x - y)",
    ),
    _Loss(
        "l1_loss",
        "Absolute error: out = |x - y|; the derivative where x = y is 0.",
        value="fabs(x - y)",
        # the derived one subtracts before it compares
        # The last case is 0, or NaN where x or y is: a plain 0 would hide it.
        slope="(x > y ? 1 : x < y ? -1 : x - y)",
    ),
    _Loss(
        "huber_loss",
        "Huber loss of d = x - y: out = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).",
        value="(fabs(x - y) < delta ? fabs(x - y) : delta)"
        " * (fabs(x - y) - (fabs(x - y) < delta ? fabs(x - y) : delta) / 2)",
        # the derived one computes all sides of |x - y|
        slope="(x - y > delta ? delta : x - y < -delta ? -delta : x - y)",
        attrs=(_positive("delta", 1.0, "where the square ends"),),
        source="Huber 1964; PyTorch: torch.nn.functional.huber_loss",
    ),
    _Loss(
        "smooth_l1_loss",
        "Smooth L1 loss of d = x - y: out = d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.",
        value="(fabs(x - y) < beta ? fabs(x - y) : beta)"
        " * (fabs(x - y) - (fabs(x - y) < beta ? fabs(x - y) : beta) / 2) / beta",
        # the derived one computes all sides of |x - y|
        slope="((x - y > beta ? beta : x - y < -beta ? -beta : x - y) / beta)",
        attrs=(_positive("beta", 1.0, "where the square ends"),),
        source="Girshick 2015; PyTorch: torch.nn.functional.smooth_l1_loss",
    ),
    _Loss(
        "hinge_loss",
        "Hinge loss of a score x for a label of 0 or 1: out = max(0, 1 - (2 label - 1) x).",
        value="(1 - 2 * label) * x + 1 < 0 ? 0 : (1 - 2 * label) * x + 1",
        # the derived one is not 0 at the kink
        slope="((1 - 2 * label) * x + 1 > 0 ? 1 : 0) * (1 - 2 * label)",
        other="label",
        both=False,
        source="Paddle: paddle/operators/hinge_loss_op.cc",
    ),
    _Loss(
        "sigmoid_cross_entropy",
        "Cross entropy of independent classes, from logits x and labels (or probabilities) in"
        " [0, 1]: out = max(x, 0) - x label + log(1 + exp(-|x|)).",
        value="fmax(x, 0) + log1p(exp(-fabs(x))) - x * label",
        # the derived one computes both sides of |x|
        slope="(1 / (1 + exp(-x)) - label)",
        other="label",
        source="Paddle: paddle/operators/sigmoid_cross_entropy_with_logits_op.cc",
    ),
    _Loss(
        "sigmoid_focal_loss",
        "Focal loss of independent classes, from logits x and labels in [0, 1]: with p = sigmoid(x)"
        " and q = p (1 - label) + (1 - p) label, the probability of the wrong side, out = a q^gamma"
        " times the cross entropy, a = alpha label + (1 - alpha) (1 - label). Easy samples hardly"
        " count. alpha < 0: a = 1.",
        value=f"{_SHARE} * pow({_MISSED}, gamma) * {_CROSS}",
        # the derived one is infinite at 0 for a gamma below 1
        slope=f"({_SHARE} * (pow({_MISSED}, gamma) * (1 / (1 + exp(-x)) - label)"
        f" + gamma * pow(fmax({_MISSED}, 1e-7), gamma - 1) * {_CROSS} * (1 - 2 * label)"
        f" * {_SIDES}))",
        other="label",
        both=False,
        attrs=(
            AttrSpec("alpha", "float", "weight of label 1; below 0: none", 0.25, maximum=1.0),
            AttrSpec("gamma", "float", "how fast easy samples lose weight", 2.0, minimum=0.0),
        ),
        source="Lin et al. 2017, Focal loss for dense object detection; torchvision.ops",
    ),
)


def _inputs(other: str) -> list[Slot]:
    return [Slot("x", "any shape"), Slot(other, "shape of x")]


_OUT = Slot("out", "shape of x", not_in_gradient=True)


def _same_shapes(other: str) -> ShapeRule:
    def rule(s: ShapeArgs) -> None:
        dtype = s.floats("x", other)
        s.set("out", (s.same_shape(f"x and {other}", s["x"], s[other]), wide(dtype)))

    return rule


def _register(loss: _Loss) -> None:
    other = loss.other
    entry = operator(
        loss.type,
        doc=f"{loss.doc} x, {other} and out have one shape.",
        inputs=_inputs(other),
        outputs=[_OUT],
        attrs=loss.attrs,
        source=loss.source,
        shape=_same_shapes(other),
        scalar=loss.value,
        judges="x",
    )
    entry.kernel(derived_kernel)
    wrt = ("x", other) if loss.both else ("x",)
    scalar = {}  # x_grad comes last: it may have the memory of out_grad
    if loss.slope:
        signs = {"y": "-", "x": ""} if other == "y" else {"x": ""}
        scalar = {f"{name}_grad": f"{s}{loss.slope} * out_grad" for name, s in signs.items()}
    derived = gradients(loss.value, [name for name in wrt if f"{name}_grad" not in scalar])
    scalar = {**derived, **scalar}
    entry.backward(*wrt, scalar=scalar, inplace={"x_grad": "out_grad"})(derived_kernel)


for _loss in _LOSSES:
    _register(_loss)

# Not by an expression: the least number of a dtype is none of its terms.
kl_div = operator(
    "kl_div",
    doc="Pointwise Kullback-Leibler divergence of the distribution `label` from log-probabilities"
    " x: out = label (log(label) - x); sum it over the classes. x, label and out have one shape.",
    inputs=_inputs("label"),
    outputs=[_OUT],
    source="PyTorch: torch.nn.functional.kl_div",
    shape=_same_shapes("label"),
    judges="x",
)


def _log_ratio(k: KernelArgs, out: Any) -> list[Call]:
    """Calls for out = log(label) - x, finite where a label is 0."""
    xp = k.xp
    # A floor, as the product with a label of 0 must be 0 and not 0 times infinity.
    tiny = out.dtype.type(np.finfo(out.dtype).tiny)
    return [
        partial(xp.maximum, k["label"], tiny, out=out),
        partial(xp.log, out, out),
        partial(xp.subtract, out, k["x"], out),
    ]


@kl_div.kernel
def kl_div_kernel(k: KernelArgs) -> Call:
    ratio = k.scratch(k["x"].shape, k["x"].dtype)
    return in_order(*_log_ratio(k, ratio), partial(k.xp.multiply, ratio, k["label"], k["out"]))


@kl_div.backward("x", "label", inplace={"x_grad": "out_grad"})
def kl_div_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    grad = k["out_grad"]
    x_grad, label_grad = k.get("x_grad"), k.get("label_grad")
    slope = k.scratch(label.shape, label.dtype)
    calls: list[Call] = []
    if label_grad is not None:
        calls += [
            *_log_ratio(k, slope),
            # The label is a factor and in the logarithm: the latter adds 1.
            partial(xp.add, slope, slope.dtype.type(1), slope),
            partial(xp.multiply, slope, grad, label_grad),
        ]
    if x_grad is not None:  # last: it may have the memory of out_grad
        calls += [partial(xp.negative, label, slope), partial(xp.multiply, slope, grad, x_grad)]
    return in_order(*calls)
