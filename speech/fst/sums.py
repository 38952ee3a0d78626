"""Sums of the probabilities of a state's arcs, so that the sum of a run of arcs is one subtraction.

Look-ahead counts the cost of all words that can come. OpenFst adds them in float32, one after the
other (`FastLogAccumulator`); sums in float64 differ from these by some 1e-6.
"""

from __future__ import annotations

import numpy as np

from ...kaldi.fst.fst import Fst

_FEW = 64  # arcs up to which states are summed up side by side


def running_sums(fst: Fst) -> np.ndarray:
    """The sum of exp(-cost) of each state's arcs, up to each one: float64, [arcs]."""
    with np.errstate(over="ignore"):
        sums = np.exp(-fst.arcs["weight"].astype(np.float64))
        begin = fst.begin[:-1]
        counts = np.diff(fst.begin)
        few = begin[(counts > 1) & (counts <= _FEW)]
        sizes = counts[(counts > 1) & (counts <= _FEW)]
        for step in range(1, _FEW):
            few, sizes = few[sizes > step], sizes[sizes > step]
            sums[few + step] += sums[few + step - 1]
        for state in np.flatnonzero(counts > _FEW).tolist():
            part = sums[begin[state] : begin[state] + counts[state]]
            np.cumsum(part, out=part)
    return sums
