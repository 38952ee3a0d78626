"""Priors of classes, as what is subtracted from log-probabilities."""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import ShapeError
from ..run.input_arrays import float_array


def log_priors(priors: np.ndarray | None, output_dim: int) -> np.ndarray | None:
    """The logarithms of priors, float32; None where there are none.

    Raises:
        ShapeError: there are not as many as the output has columns, or one is no probability.
    """
    if priors is None:
        return None
    priors = float_array(priors, "priors")
    if priors.shape != (output_dim,):
        raise ShapeError(f"{priors.size} priors for an output of {output_dim} columns")
    if not (priors >= 0).all():
        column = int(np.flatnonzero(~(priors >= 0))[0])
        raise ShapeError(f"the prior of column {column} is {priors[column]:g}, no probability")
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(priors, np.float32))
