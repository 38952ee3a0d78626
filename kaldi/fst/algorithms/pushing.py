"""Weights pushed so that the arcs of each state add up to the same sum.

Unlike pushing towards the start, this works for any FST with loops, since it needs no total weight
of all paths, which may be infinite. The sum is the largest eigenvalue of the matrix of transition
probabilities in which ends lead back to the start, and the potentials are its eigenvector.

Source: Kaldi's `fstext/push-special.cc`; Hannemann, Povey and Zweig 2013, "Combining forward and
backward search in decoding".
"""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import ShapeError
from ....framework.base.sequence import bincount
from ..fst import Fst
from .operations import with_weights

_MOST_STEPS = 200
_CHECKED = 5  # the accuracy is looked at every so many steps
_STAY = 0.1  # share of the last vector: all eigenvalues of a mere chain have the same magnitude


def push_special(fst: Fst, delta: float) -> tuple[Fst, bool]:
    """Push weights; each path keeps its weight.

    Args:
        fst: every state must be on a path from the start to an end.
        delta: how far the logarithms of the sums of states may be apart.

    Returns:
        the FST, and whether that accuracy was reached in 200 steps of the power method.

    Raises:
        ShapeError: probabilities are beyond what float64 holds.
    """
    if not fst.states:
        return fst, True
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        value, reached = _eigenvector(fst, delta)
    if not np.isfinite(value).all() or value.min() <= 0:
        raise ShapeError("the weights of an FST are too far apart to be pushed")
    source = fst.source()
    target = fst.nextstate
    potential = -np.log(value)
    weight = fst.weight + (potential[target] - potential[source])
    final = fst.final + (potential[fst.start] - potential)
    return with_weights(fst, weight.astype(np.float32), final.astype(np.float32)), reached


def _eigenvector(fst: Fst, delta: float) -> tuple[np.ndarray, bool]:
    """The power method: float64 [states], and whether it came near enough."""
    source = fst.source()
    target = fst.nextstate
    prob = np.exp(-fst.weight.astype(np.float64))
    end = np.exp(-fst.final.astype(np.float64))
    value = np.full(fst.states, 1 / np.sqrt(fst.states))

    def sums() -> np.ndarray:
        flow = bincount(source, prob * value[target], fst.states)
        return flow + end * value[fst.start]

    for step in range(_MOST_STEPS):
        value = _STAY * value + sums()
        value /= np.sqrt(np.square(value).sum())
        if step and step % _CHECKED == 0:
            share = sums() / value
            if np.log(share.max() / share.min()) <= delta:
                return value, True
    return value, False


def sums_of_states(fst: Fst, *, log: bool = True) -> np.ndarray:
    """The cost of all that each state can do, its arcs and its end: float64, [states].

    Args:
        log: probabilities are added; else the best one counts.
    """
    source = fst.source()
    best = fst.final.astype(np.float64)
    np.minimum.at(best, source, fst.weight)
    if not log:
        return best
    least = np.where(np.isfinite(best), best, 0)
    mass = np.exp(least - fst.final)
    mass += bincount(source, np.exp(least[source] - fst.weight), fst.states)
    with np.errstate(divide="ignore"):
        return least - np.log(mass)
