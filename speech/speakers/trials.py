"""Errors of verification. Source: Kaldi's `ivectorbin/compute-eer.cc`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...framework.base.errors import FormatError


def equal_error_rate(targets: ArrayLike, others: ArrayLike) -> tuple[float, float]:
    """The rate at which as large a part of true speakers is refused as of strangers is taken.

    Args:
        targets: scores of trials with the true speaker. others: of those with another.

    Returns:
        The rate, 0 to 1, and the score that is the threshold.

    Raises:
        FormatError: one of them is empty.
    """
    right, wrong = np.sort(np.asarray(targets, float)), np.sort(np.asarray(others, float))
    if not right.size or not wrong.size:
        raise FormatError("scores of targets and of nontargets are wanted")
    refused = np.arange(len(right))
    taken = len(wrong) - 1 - len(wrong) * refused // len(right)
    met = np.flatnonzero(wrong[np.maximum(taken, 0)] < right)
    place = int(met[0]) if met.size else len(right) - 1
    return place / len(right), float(right[place])
