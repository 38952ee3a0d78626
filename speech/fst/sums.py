"""Sums of arc costs in the log semiring, which look-ahead pushes forward, as OpenFst rounds them.

The sum from each state's first arc up to every tenth one is kept for states of twenty arcs or more,
so that the sum of a run of arcs takes few steps. Source: OpenFst's `FastLogAccumulator`.
"""

from __future__ import annotations

import math

import numpy as np

from .arcs import ArcFst

ARC_LIMIT = 20
ARC_PERIOD = 10
_INFINITY = math.inf
_FEW = 2000  # arcs up to which states are summed up side by side


def log_add(first: float, second: float) -> float:
    """-log(exp(-first) + exp(-second)), in double precision."""
    if first == _INFINITY:
        return second
    if second == _INFINITY:
        return first
    low, high = (second, first) if first > second else (first, second)
    return low - math.log(1.0 + math.exp(low - high))


def log_subtract(first: float, second: float) -> float:
    """-log(exp(-first) - exp(-second)), where `first` is the smaller cost."""
    return first if second == _INFINITY else first - math.log(1.0 - math.exp(first - second))


def running_sums(fst: ArcFst) -> tuple[np.ndarray, np.ndarray]:
    """Where each state's sums begin, int64, [states], -1 where it has none; the sums, float64.

    A state's first sum is that of no arcs, infinity.
    """
    counts = np.diff(fst.begin)
    summed = np.flatnonzero(counts >= ARC_LIMIT)
    sizes = counts[summed] // ARC_PERIOD + 1
    place = np.full(fst.states, -1, np.int64)
    place[summed] = np.cumsum(sizes) - sizes
    sums = np.full(int(sizes.sum()), np.inf)
    weight = fst.arcs["weight"]
    few = summed[counts[summed] <= _FEW]
    few = few[np.argsort(-counts[few], kind="stable")]
    total = np.full(len(few), np.inf)
    for step in range(int(counts[few[0]]) if len(few) else 0):
        few = few[: int(np.searchsorted(-counts[few], -step, "left"))]
        total = _log_add(total[: len(few)], weight[fst.begin[few] + step].astype(np.float64))
        if (step + 1) % ARC_PERIOD == 0:
            sums[place[few] + (step + 1) // ARC_PERIOD] = total
    for state in summed[counts[summed] > _FEW].tolist():
        one, at = _INFINITY, int(place[state])
        costs = weight[fst.begin[state] : fst.begin[state + 1]].tolist()
        for number, cost in enumerate(costs, 1):
            one = log_add(one, cost)
            if number % ARC_PERIOD == 0:
                sums[at + number // ARC_PERIOD] = one
    return place, sums


def _log_add(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    low, high = np.minimum(first, second), np.maximum(first, second)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(high), low, low - np.log(1.0 + np.exp(low - high)))
