"""Losses that compare two arrays element by element; reduce them with `mean` or `sum`.

Each is one entry of a table: value and derivative as the expressions that fused chains are compiled
from, and the same as NumPy/CuPy calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator


@dataclass(frozen=True)
class _Loss:
    """A loss of x and a second array of the same shape, in the slot `other`.

    Attributes:
        value: expression of out; "" = not fused. slope: of its derivative with respect to x.
        other_slope: of that with respect to the other array; "-" = the negative one, "" = none.
        forward: (xp, x, y, out, t, a): writes out; t is scratch memory of the shape, a the value of
            `attr` in the element type.
        derive, derive_other: (xp, x, y, t, a): write the derivative to t.
    """

    type: str
    doc: str
    value: str
    slope: str
    forward: Callable[..., Any]
    derive: Callable[..., Any]
    other: str = "y"
    other_slope: str = "-"
    derive_other: Callable[..., Any] | None = None
    attr: AttrSpec | None = None
    source: str = ""


def _squared_error(xp: Any, x: Any, y: Any, out: Any, t: Any, a: Any) -> None:
    xp.subtract(x, y, out)
    xp.multiply(out, out, out)


def _squared_error_slope(xp: Any, x: Any, y: Any, t: Any, a: Any) -> None:
    xp.subtract(x, y, t)
    xp.add(t, t, t)


def _l1(xp: Any, x: Any, y: Any, out: Any, t: Any, a: Any) -> None:
    xp.subtract(x, y, out)
    xp.absolute(out, out)


def _l1_slope(xp: Any, x: Any, y: Any, t: Any, a: Any) -> None:
    xp.subtract(x, y, t)
    xp.sign(t, t)


def _huber(xp: Any, x: Any, y: Any, out: Any, t: Any, delta: Any) -> None:
    """c (|d| - c / 2) with c = min(|d|, delta) is both branches at once."""
    xp.subtract(x, y, out)
    xp.absolute(out, out)
    xp.minimum(out, delta, out=t)
    half = delta.dtype.type(0.5)
    xp.multiply(t, -half, t)
    xp.add(out, t, out)
    xp.multiply(out, t, out)
    xp.multiply(out, delta.dtype.type(-2), out)


def _huber_slope(xp: Any, x: Any, y: Any, t: Any, delta: Any) -> None:
    xp.subtract(x, y, t)
    xp.minimum(t, delta, out=t)
    xp.maximum(t, -delta, out=t)


def _smooth_l1(xp: Any, x: Any, y: Any, out: Any, t: Any, beta: Any) -> None:
    _huber(xp, x, y, out, t, beta)
    xp.divide(out, beta, out)


def _smooth_l1_slope(xp: Any, x: Any, y: Any, t: Any, beta: Any) -> None:
    _huber_slope(xp, x, y, t, beta)
    xp.divide(t, beta, t)


def _hinge_margin(xp: Any, x: Any, label: Any, t: Any) -> None:
    """t = 1 - (2 label - 1) x"""
    xp.multiply(label, -2, t)
    xp.add(t, 1, t)
    xp.multiply(t, x, t)
    xp.add(t, 1, t)


def _hinge(xp: Any, x: Any, label: Any, out: Any, t: Any, a: Any) -> None:
    _hinge_margin(xp, x, label, t)
    xp.maximum(t, 0, out=out)


def _hinge_slope(xp: Any, x: Any, label: Any, t: Any, a: Any) -> None:
    _hinge_margin(xp, x, label, t)
    xp.sign(t, t)
    xp.fmax(t, 0, out=t)  # 1 inside the margin, else 0, also where x is NaN
    xp.multiply(t, 1 - 2 * label, t)


def _sigmoid_cross_entropy(xp: Any, x: Any, label: Any, out: Any, t: Any, a: Any) -> None:
    xp.absolute(x, t)
    xp.negative(t, t)
    xp.exp(t, t)
    xp.log1p(t, t)
    xp.maximum(x, 0, out=out)
    xp.add(out, t, out)
    xp.multiply(x, label, t)
    xp.subtract(out, t, out)


def _sigmoid_cross_entropy_slope(xp: Any, x: Any, label: Any, t: Any, a: Any) -> None:
    xp.negative(x, t)
    xp.exp(t, t)
    xp.add(t, 1, t)
    xp.divide(1, t, t)
    xp.subtract(t, label, t)


def _negative_x(xp: Any, x: Any, label: Any, t: Any, a: Any) -> None:
    xp.negative(x, t)


def _log_ratio(xp: Any, x: Any, label: Any, t: Any) -> None:
    """t = log(label) - x, finite where a label is 0"""
    xp.maximum(label, t.dtype.type(np.finfo(t.dtype).tiny), out=t)
    xp.log(t, t)
    xp.subtract(t, x, t)


def _kl_div(xp: Any, x: Any, label: Any, out: Any, t: Any, a: Any) -> None:
    _log_ratio(xp, x, label, t)
    xp.multiply(t, label, out)


def _kl_div_slope(xp: Any, x: Any, label: Any, t: Any, a: Any) -> None:
    xp.negative(label, t)


def _kl_div_label_slope(xp: Any, x: Any, label: Any, t: Any, a: Any) -> None:
    _log_ratio(xp, x, label, t)
    xp.add(t, 1, t)


def _positive(name: str, default: float, doc: str) -> AttrSpec:
    return AttrSpec(name, "float", doc, default, minimum=1e-12)


_LOSSES = (
    _Loss(
        "squared_error",
        "Squared error: out = (x - y)^2; `mean` of it is the mean squared error.",
        value="(x - y) * (x - y)",
        slope="(2 * (x - y))",
        forward=_squared_error,
        derive=_squared_error_slope,
    ),
    _Loss(
        "l1_loss",
        "Absolute error: out = |x - y|; the derivative where x = y is 0.",
        value="fabs(x - y)",
        slope="(x > y ? 1 : x < y ? -1 : x - y)",
        forward=_l1,
        derive=_l1_slope,
    ),
    _Loss(
        "huber_loss",
        "Huber loss of d = x - y: out = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).",
        value="(fabs(x - y) < delta ? fabs(x - y) : delta)"
        " * (fabs(x - y) - (fabs(x - y) < delta ? fabs(x - y) : delta) / 2)",
        slope="(x - y > delta ? delta : x - y < -delta ? -delta : x - y)",
        forward=_huber,
        derive=_huber_slope,
        attr=_positive("delta", 1.0, "where the square ends"),
        source="Huber 1964; PyTorch: torch.nn.functional.huber_loss",
    ),
    _Loss(
        "smooth_l1_loss",
        "Smooth L1 loss of d = x - y: out = d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.",
        value="(fabs(x - y) < beta ? fabs(x - y) : beta)"
        " * (fabs(x - y) - (fabs(x - y) < beta ? fabs(x - y) : beta) / 2) / beta",
        slope="((x - y > beta ? beta : x - y < -beta ? -beta : x - y) / beta)",
        forward=_smooth_l1,
        derive=_smooth_l1_slope,
        attr=_positive("beta", 1.0, "where the square ends"),
        source="Girshick 2015; PyTorch: torch.nn.functional.smooth_l1_loss",
    ),
    _Loss(
        "hinge_loss",
        "Hinge loss of a score x for a label of 0 or 1: out = max(0, 1 - (2 label - 1) x).",
        value="(1 - 2 * label) * x + 1 < 0 ? 0 : (1 - 2 * label) * x + 1",
        slope="((1 - 2 * label) * x + 1 > 0 ? 1 : 0) * (1 - 2 * label)",
        forward=_hinge,
        derive=_hinge_slope,
        other="label",
        other_slope="",
        source="Paddle: paddle/operators/hinge_loss_op.cc",
    ),
    _Loss(
        "sigmoid_cross_entropy",
        "Cross entropy of independent classes, from logits x and labels (or probabilities) in"
        " [0, 1]: out = max(x, 0) - x label + log(1 + exp(-|x|)).",
        value="fmax(x, 0) + log1p(exp(-fabs(x))) - x * label",
        slope="(1 / (1 + exp(-x)) - label)",
        forward=_sigmoid_cross_entropy,
        derive=_sigmoid_cross_entropy_slope,
        other="label",
        other_slope="-x",
        derive_other=_negative_x,
        source="Paddle: paddle/operators/sigmoid_cross_entropy_with_logits_op.cc",
    ),
    _Loss(
        "kl_div",
        "Pointwise Kullback-Leibler divergence of the distribution `label` from log-probabilities"
        " x: out = label (log(label) - x); sum it over the classes.",
        value="",
        slope="",
        forward=_kl_div,
        derive=_kl_div_slope,
        other="label",
        derive_other=_kl_div_label_slope,
        source="PyTorch: torch.nn.functional.kl_div",
    ),
)


def _register(loss: _Loss) -> OperatorDef:
    other = loss.other

    def shape(s: ShapeArgs) -> None:
        dtype = s.floats("x", other)
        s.set("out", (s.same_shape(f"x and {other}", s["x"], s[other]), dtype))

    entry = operator(
        loss.type,
        doc=f"{loss.doc} x, {other} and out have one shape.",
        inputs=[Slot("x", "any shape"), Slot(other, "shape of x")],
        outputs=[Slot("out", "shape of x", not_in_gradient=True)],
        attrs=[loss.attr] if loss.attr else [],
        source=loss.source,
        shape=shape,
        scalar=loss.value or None,
    )

    def parameter(k: KernelArgs) -> Any:
        return np.asarray(k.attrs[loss.attr.name], k["x"].dtype)[()] if loss.attr else None

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        xp, forward, a = k.xp, loss.forward, parameter(k)
        x, y, out = k["x"], k[other], k["out"]
        t = k.scratch(x.shape, x.dtype)
        return lambda: forward(xp, x, y, out, t, a)

    wrt = ("x", f"{other}") if loss.other_slope else ("x",)
    scalar = {"x_grad": f"{loss.slope} * out_grad"}
    if loss.other_slope:
        factor = loss.slope if loss.other_slope == "-" else "x"
        scalar[f"{other}_grad"] = f"-{factor} * out_grad"

    @entry.backward(*wrt, scalar=scalar if loss.slope else None, inplace={"x_grad": "out_grad"})
    def grad_kernel(k: KernelArgs) -> Call:
        xp, multiply, negative, a = k.xp, k.xp.multiply, k.xp.negative, parameter(k)
        x, y, grad = k["x"], k[other], k["out_grad"]
        x_grad, y_grad = k.get("x_grad"), k.get(f"{other}_grad") if loss.other_slope else None
        t = k.scratch(x.shape, x.dtype)

        def run() -> None:  # x_grad comes last: it may have the memory of out_grad
            if y_grad is not None and loss.derive_other is not None:
                loss.derive_other(xp, x, y, t, a)
                multiply(t, grad, y_grad)
            loss.derive(xp, x, y, t, a)
            if y_grad is not None and loss.derive_other is None:
                multiply(t, grad, y_grad)
                negative(y_grad, y_grad)
            if x_grad is not None:
                multiply(t, grad, x_grad)

        return run

    return entry


for _loss in _LOSSES:
    _register(_loss)
