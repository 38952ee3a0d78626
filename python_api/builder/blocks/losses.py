"""Losses over classes that come as one number: class weights, smoothing, samples left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....framework.base.dtypes import is_float
from ....framework.base.errors import AttributeTypeError
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var, as_var

REDUCTIONS = ("mean", "sum", "none")
_SMALLEST = 1e-30  # of a sum of weights: without samples the mean is 0


@builder_method
def cross_entropy_loss(
    builder: NetBuilder,
    scores: Var | str,
    label: Var | str,
    *,
    weight: Any = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str = "",
) -> Var:
    """Cross entropy of scores (logits), as torch.nn.functional.cross_entropy: ready to minimize.

        loss_n = -sum_c weight_c target_nc log(softmax(scores_n)_c)
        target_nc = (1 - label_smoothing) (label_n == c) + label_smoothing / C

    The mean is weighted: sum(loss_n) / sum(weight[label_n]) over the samples that are not ignored;
    where all are, it is 0 (PyTorch gives NaN). A `mean` of `softmax_cross_entropy` divides by the
    number of all samples instead.

    Args:
        scores: [..., C], the classes last.
        label: class numbers [...] or [..., 1], integers; or a distribution for each sample,
            floats [..., C], whose mean is over the samples.
        weight: of each class, [C]: a variable, or numbers.
        label_smoothing: share of the target that all classes get alike.
        ignore_index: label of samples that are left out.
        reduction: "mean", "sum", or "none" for the loss of each sample.

    Returns:
        [], or [...] with reduction="none".
    """
    name = builder.layer_name(name, "cross_entropy_loss")
    soft = is_float(as_var(builder, label).dtype or builder.dtype)
    weight = _weights(builder, scores, weight, name)
    losses = builder.softmax_cross_entropy(
        scores,
        label,
        weight,
        label_smoothing=float(label_smoothing),
        ignore_index=ignore_index,
        soft_label=soft,
        name=name if reduction == "none" else f"{name}.each",
    )
    counted = None if soft else (scores, label, weight, ignore_index)
    return _reduced(builder, losses, counted, reduction, name)


@builder_method
def softmax_focal_loss(
    builder: NetBuilder,
    scores: Var | str,
    label: Var | str,
    *,
    gamma: float = 2.0,
    alpha: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str = "",
) -> Var:
    """Focal loss over classes that exclude each other: easy samples hardly count.

        loss_n = -alpha[label_n] (1 - p_n)^gamma log(p_n),    p = softmax(scores)[label]

    Args:
        scores: [..., C]. label: class numbers [...] or [..., 1], integers.
        gamma: how fast easy samples lose weight; 0 gives the cross entropy.
        alpha: of each class, [C]: a variable, or numbers; by default 1.
        ignore_index: label of samples that are left out.
        reduction: "mean" over the samples that are not left out, "sum", or "none".

    Returns:
        [], or [...] with reduction="none". For classes that do not exclude each other take
        `mean` of the operator `sigmoid_focal_loss`.

    Source: Lin et al. 2017, Focal loss for dense object detection.
    """
    name = builder.layer_name(name, "softmax_focal_loss")
    alpha = _weights(builder, scores, alpha, name)
    each = builder.softmax_cross_entropy(scores, label, ignore_index=ignore_index)
    last = name if reduction == "none" else f"{name}.each"
    losses = builder.focal_modulation(each, gamma=float(gamma), name=last if alpha is None else "")
    if alpha is not None:
        share = builder.label_weight(scores, label, alpha, ignore_index=ignore_index)
        losses = builder.mul(losses, share, name=last)
    return _reduced(builder, losses, (scores, label, None, ignore_index), reduction, name)


def _weights(builder: NetBuilder, scores: Any, weight: Any, name: str) -> Var | None:
    """Weights of classes as a variable; numbers become a constant `name.weight`."""
    if weight is None or isinstance(weight, (Var, str)):
        return weight if weight is None else as_var(builder, weight)
    dtype = as_var(builder, scores).dtype or builder.dtype
    return builder.constant(value=np.asarray(weight, dtype), name=f"{name}.weight")


def _reduced(
    builder: NetBuilder,
    losses: Var,
    counted: tuple[Any, Any, Any, int] | None,
    reduction: str,
    name: str,
) -> Var:
    """The losses, their sum, or their mean: over the weights of labels, or over all samples.

    Args:
        counted: scores, label, weight and ignore_index, where samples count by their label.
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return builder.reduce_sum(losses, name=name)
    if reduction != "mean":
        raise AttributeTypeError(
            f"layer {name!r}: reduction is one of {', '.join(REDUCTIONS)}, not {reduction!r}"
        )
    if counted is None:
        return builder.mean(losses, name=name)
    scores, label, weight, ignored = counted
    share = builder.label_weight(scores, label, weight, ignore_index=ignored)
    total = builder.clip(builder.reduce_sum(share), minimum=_SMALLEST)
    return builder.div(builder.reduce_sum(losses), total, name=name)
