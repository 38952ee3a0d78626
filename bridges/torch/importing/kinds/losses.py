"""Losses, as PyTorch reduces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....onnx.importing.calls import Value
from ....onnx.importing.kinds.losses import classes_last, mean_of_classes, weights_of
from ..calls import Aten, aten

_NONE, _MEAN, _SUM = range(3)


def _reduced(n: Aten, losses: Value) -> Value:
    """Losses of elements as the attribute `reduction` wants them."""
    how = n.get("reduction", _MEAN)
    if how == _NONE or not losses.ndim:
        return losses
    op = "reduce_mean" if how == _MEAN else "reduce_sum"
    return n.op(op, losses, axes=list(range(losses.ndim)))


def _pair(n: Aten) -> tuple[Value, Value]:
    x, y = n["self"], n["target"]
    shape = list(np.broadcast_shapes(x.shape, y.shape))
    return tuple(  # type: ignore[return-value]
        one if list(one.shape) == shape else n.op("expand", one, shape=shape) for one in (x, y)
    )


@aten("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def _elementwise(n: Aten) -> Value:
    x, y = _pair(n)
    if n.name == "huber_loss":
        return _reduced(n, n.op("huber_loss", x, y, delta=float(n["delta"])))
    if n.name == "smooth_l1_loss" and n["beta"]:
        return _reduced(n, n.op("smooth_l1_loss", x, y, beta=float(n["beta"])))
    op = "squared_error" if n.name == "mse_loss" else "l1_loss"
    return _reduced(n, n.op(op, x, y))


@aten("binary_cross_entropy_with_logits")
def _bce_with_logits(n: Aten) -> Value:
    x, y = _pair(n)
    losses = n.op("sigmoid_cross_entropy", x, y)
    if n.has("pos_weight"):  # what a positive loses beyond one of weight 1
        missed = n.op("mul", y, n.op("softplus", n.op("neg", x)))
        beyond = n.op("scale", n["pos_weight"], bias=-1.0)
        losses = n.op("add", losses, n.op("mul", missed, beyond))
    return _reduced(n, n.op("mul", losses, n["weight"]) if n.has("weight") else losses)


@aten("binary_cross_entropy")
def _bce(n: Aten) -> Value:
    x, y = _pair(n)

    def log(value: Value) -> Value:
        return n.op("clip", n.op("log", value), minimum=-100.0)

    hit = n.op("mul", y, log(x))
    miss = n.op("mul", _one_minus(n, y), log(_one_minus(n, x)))
    losses = n.op("neg", n.op("add", hit, miss))
    return _reduced(n, n.op("mul", losses, n["weight"]) if n.has("weight") else losses)


def _one_minus(n: Aten, x: Value) -> Value:
    return n.op("scale", x, scale=-1.0, bias=1.0)


@aten("kl_div")
def _kl_div(n: Aten) -> Value:
    x, y = n["self"], n["target"]
    if n.get("log_target", False):
        losses = n.op("mul", n.op("exp", y), n.op("sub", y, x))
    else:
        losses = n.op("kl_div", x, y)
    return _reduced(n, losses)


def _of_shares(n: Aten, logits: Value, shares: Value, weight: Value | None) -> Value:
    """Losses whose targets are shares of classes, which have a gradient in PyTorch, too."""
    smooth = float(n.get("label_smoothing", 0.0))
    if smooth:
        more = smooth / logits.shape[-1]
        shares = n.op("scale", shares, scale=1 - smooth, bias=more)
    logs = n.op("log_softmax", logits, axis=-1)
    if weight is not None:
        logs = n.op("mul", logs, weight)
    total = n.op("reduce_sum", n.op("mul", shares, logs), axes=[logits.ndim - 1])
    return n.op("neg", total)


@aten("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward",
      "nll_loss2d_forward")  # fmt: skip
def _classes(n: Aten, x: Value) -> Value | list[Value]:
    label = n["target"]
    weight = n.get("weight")
    ignored = n.get("ignore_index", -100)
    logits = classes_last(n, x)
    soft = label.dtype.kind not in "iu"
    if soft:
        label = classes_last(n, label)
    more: dict[str, Any] = {} if ignored == -100 or soft else {"ignore_index": int(ignored)}
    weigh: Callable[[Value], Value] | None = None
    if n.name == "cross_entropy_loss" and soft:
        losses = _of_shares(n, logits, label, weight)
    elif n.name == "cross_entropy_loss":
        if n.get("label_smoothing"):
            more["label_smoothing"] = float(n["label_smoothing"])
        losses = n.op("softmax_cross_entropy", logits, label, weight, outs=("out",), **more)
    else:
        losses = n.op("nll_loss", logits, label, **more)
        weigh = (lambda one: n.op("mul", one, weights_of(n, label, weight))) if weight else None
    if weigh:
        losses = weigh(losses)
    if n.get("reduction", _MEAN) != _MEAN or soft:
        loss = _reduced(n, losses)
    else:
        loss = mean_of_classes(n, losses, label, weight, ignored)
    return [loss] if n.name.endswith("forward") else loss
