"""Losses, as training graphs hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls import Attributes, evaluates


def _loss(
    n: Attributes, logs: np.ndarray, labels: np.ndarray, weight: Any
) -> np.ndarray:
    """The negative log-likelihood of [N, C, ...] for labels [N, ...]."""
    ignored = n.attr("ignore_index")
    skip = np.zeros(labels.shape, bool) if ignored is None else labels == ignored
    ids = np.where(skip, 0, labels)
    picked = -np.take_along_axis(logs, np.expand_dims(ids, 1), 1)[:, 0]
    weights = np.ones(labels.shape, logs.dtype) if weight is None else weight[ids]
    weights = np.where(skip, 0, weights).astype(logs.dtype)
    losses = picked * weights
    how = n.attr("reduction", "mean")
    if how == "none":
        return losses
    if how == "sum":
        return np.asarray(losses.sum(dtype=logs.dtype))
    if weight is None and ignored is None:
        return np.asarray(losses.mean(dtype=logs.dtype))
    return np.asarray(losses.sum() / weights.sum()).astype(logs.dtype)


@evaluates("NegativeLogLikelihoodLoss")
def _likelihood(
    n: Attributes, x: np.ndarray, labels: np.ndarray, weight: Any = None
) -> np.ndarray:
    return _loss(n, x, labels, weight)


@evaluates("SoftmaxCrossEntropyLoss")
def _cross_entropy(
    n: Attributes, x: np.ndarray, labels: np.ndarray, weight: Any = None
) -> tuple[np.ndarray, ...]:
    top = x - x.max(axis=1, keepdims=True)
    logs = (top - np.log(np.exp(top).sum(axis=1, keepdims=True))).astype(x.dtype)
    return _loss(n, logs, labels, weight), logs


