"""Memory that must be apart: loops of a step write to none of it that they read by another name.

Which array comes first is no matter, and differs from frame to frame: a condition for each pair of
neighbors would hold for few of them, and an update of all parameters has hundreds of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

Groups = Sequence[Sequence[tuple[int, int]]]
"""Begins and ends of arrays; those of one group may overlap, those of different ones may not."""


class Apart:
    """Whether the memory of steps is apart, of many steps at once.

    Args:
        traces: of each the sets of groups that must be apart.
    """

    def __init__(self, traces: Sequence[Sequence[Groups]]) -> None:
        groups = [
            (number, at, len(group))
            for number, sets in enumerate(traces)
            for at, own in enumerate(sets)
            for group in own
        ]
        self._count = len(traces)
        self._of = np.array([number for number, *_ in groups], np.intp)
        sets = np.array([key for *key, _ in groups], np.intp).reshape(-1, 2)
        # Where a set goes on.
        self._same = (sets[1:] == sets[:-1]).all(axis=1)
        self._sets = np.cumsum([0, *~self._same])[: len(groups)]
        self._begins = list(accumulate([count for *_, count in groups], initial=0))[:-1]

    def met(self, spans: np.ndarray) -> np.ndarray:
        """For which traces it is, [cases, traces].

        Args:
            spans [cases, 2 * arrays]: begin and end of each array.
        """
        met = np.ones((len(spans), self._count), bool)
        if not self._begins:
            return met
        begins = np.minimum.reduceat(spans[:, ::2], self._begins, axis=1)
        ends = np.maximum.reduceat(spans[:, 1::2], self._begins, axis=1)
        order = np.lexsort((begins, np.broadcast_to(self._sets, begins.shape)), axis=1)
        begins, ends = (np.take_along_axis(one, order, 1) for one in (begins, ends))
        cases, at = ((begins[:, 1:] < ends[:, :-1]) & self._same).nonzero()
        met[cases, self._of[at + 1]] = False
        return met


def numbers_of(sets: Sequence[Groups]) -> list[int]:
    """What `Apart.met` is given of a trace."""
    return [number for groups in sets for group in groups for span in group for number in span]
