"""The mean of networks of one structure. Source: Kaldi's `nnet3bin/nnet3-average.cc`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...framework.base.errors import AttributeTypeError
from . import adjust
from .nnet import Nnet


def average(nnets: Iterable[Nnet], weights: Sequence[float]) -> Nnet:
    """The weighted mean of parameters and statistics; weights are made to sum to 1.

    Raises:
        AttributeTypeError: not one weight for each network, or they sum to 0.
        ShapeError: the networks' structures differ.
    """
    total = float(sum(weights))
    if not total:
        raise AttributeTypeError("the weights of an average sum to 0")
    mean: Nnet | None = None
    count = 0
    for weight, nnet in zip(weights, nnets, strict=True):
        count += 1
        share = weight / total
        if mean is None:
            mean = nnet.copy()
            adjust.scale(mean, share)
        else:
            adjust.add(mean, nnet, share)
    if mean is None or count != len(weights):
        raise AttributeTypeError(f"{len(weights)} weights for {count} networks")
    return mean
