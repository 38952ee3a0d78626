"""Frames with their Gaussians, as a `Posterior` has them: which pairs each Gaussian is in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...framework.base.sequence import repeated


def frames_of(starts: np.ndarray) -> np.ndarray:
    """The frame of each pair, from where the pairs of frames begin: int64, [pairs]."""
    return repeated(np.arange(len(starts) - 1), np.diff(starts))


def by_gaussian(ids: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each Gaussian that is in any pair, and its pairs, rising."""
    order = np.argsort(ids, kind="stable")
    first = np.flatnonzero(np.diff(ids[order], prepend=-1))
    if len(ids):
        yield from zip(ids[order][first].tolist(), np.split(order, first[1:]), strict=True)
