"""Arcs as OpenFst lays them out in files and compiled loops read them, and runs of them."""

from __future__ import annotations

import numpy as np

from ...framework.base.sequence import repeated

ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])

Arc = tuple[int, int, float, int]
"""The same as a tuple: input label, output label, weight, next state."""


def spread(begin: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Runs of numbers from each `begin` on: which run each belongs to, and the numbers."""
    return repeated(np.arange(len(counts)), counts), runs(begin, counts)


def runs(begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers of `spread` alone."""
    numbers = repeated(begin - (np.cumsum(counts) - counts), counts)
    numbers += np.arange(len(numbers))
    return numbers
