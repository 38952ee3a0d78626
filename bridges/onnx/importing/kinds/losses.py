"""Losses of classes, as training graphs hold them; their weights and means equal PyTorch's."""

from __future__ import annotations

from typing import Any

from ..calls import Adds, Call, Value, lowers


def classes_last(n: Adds, x: Value) -> Value:
    """[N, C, ...] as [N, ..., C]."""
    return x if x.ndim < 3 else n.op("transpose", x, perm=[0, *range(2, x.ndim), 1])


def weights_of(n: Adds, label: Value, weight: Value) -> Value:
    """The weights of labels; those that are left out may lie outside of the classes."""
    most = n.const(weight.shape[0] - 1, label.dtype)
    at = n.op("minimum", n.op("maximum", label, n.const(0, label.dtype)), most)
    return n.op("gather", weight, at, axis=0)


def mean_of_classes(
    n: Adds, losses: Value, label: Value, weight: Value | None, ignored: int | None
) -> Value:
    """The mean, which counts samples by their weights, and not those that are left out."""
    axes = list(range(losses.ndim))
    counted: Value | None = None
    if ignored is not None:
        there = n.op("not_equal", label, n.const(ignored, label.dtype))
        counted = n.cast(there, losses.dtype)
    if weight is not None:
        own = weights_of(n, label, weight)
        counted = own if counted is None else n.op("mul", counted, own)
    if counted is None:
        return n.op("reduce_mean", losses, axes=axes)
    total = n.op("reduce_sum", losses, axes=axes)
    return n.op("div", total, n.op("reduce_sum", counted, axes=axes))


def _likelihood(n: Call, logs: Value) -> Value:
    """The negative log-likelihood of [N, C, ...] for labels [N, ...]."""
    label = n[1]
    weight = n.get(2)
    ignored = n.attr("ignore_index")
    more: dict[str, Any] = {} if ignored is None else {"ignore_index": int(ignored)}
    losses = n.op("nll_loss", classes_last(n, logs), label, **more)
    if weight is not None:
        losses = n.op("mul", losses, weights_of(n, label, weight))
    how = n.attr("reduction", "mean")
    if how == "none":
        return losses
    if how == "sum":
        return n.op("reduce_sum", losses, axes=list(range(losses.ndim)))
    return mean_of_classes(n, losses, label, weight, ignored)


@lowers("NegativeLogLikelihoodLoss")
def _log_likelihood(n: Call) -> Value:
    return _likelihood(n, n[0])


@lowers("SoftmaxCrossEntropyLoss")
def _cross_entropy(n: Call) -> list[Value]:
    logs = n.op("log_softmax", n[0], axis=1)
    return [_likelihood(n, logs), logs]
