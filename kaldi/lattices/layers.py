"""The arcs of an acyclic graph in steps that go one after another, each step as arrays."""

from __future__ import annotations

import numpy as np


def layers(
    step: np.ndarray, source: np.ndarray, target: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """For each step: arcs sorted by target, their sources, where each target begins, targets."""
    order = np.lexsort((target, step))
    cuts = np.flatnonzero(np.diff(step[order], prepend=-1))
    steps = []
    for arcs in np.split(order, cuts[1:]):
        towards = target[arcs]
        starts = np.flatnonzero(np.diff(towards, prepend=-1))
        steps.append((arcs, source[arcs], starts, towards[starts]))
    return steps
