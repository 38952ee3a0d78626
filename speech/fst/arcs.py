"""An FST as two arrays, arcs as OpenFst lays them out in files and compiled loops read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...nnet3.fst.fst import Fst

ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])


@dataclass(eq=False)
class ArcFst:
    """An FST: states from 0 on, the arcs of each one after the other.

    Attributes:
        start: the start state.
        final: cost of ending in each state, float32, [states]; infinity: it is not final.
        begin: where the arcs of each state begin, int64, [states + 1].
        arcs: ilabel, olabel, weight, nextstate: `ARC`, [arcs]; label 0 is epsilon.
    """

    start: int
    final: np.ndarray
    begin: np.ndarray
    arcs: np.ndarray

    @property
    def states(self) -> int:
        """How many states it has."""
        return len(self.final)

    @classmethod
    def of(cls, fst: Fst) -> ArcFst:
        """The same FST of nnet3's `Fst`."""
        arcs = np.empty(fst.arcs, ARC)
        for name in ("ilabel", "olabel", "weight", "nextstate"):
            arcs[name] = getattr(fst, name)
        return cls(fst.start, fst.final, np.asarray(fst.begin, np.int64), arcs)

    def source(self) -> np.ndarray:
        """The state that each arc leaves, int64, [arcs]."""
        return np.repeat(np.arange(self.states), np.diff(self.begin))

    def ordered(self, key: np.ndarray) -> ArcFst:
        """The same FST, the arcs of each state sorted by `key`; equal ones keep their order."""
        source = self.source()
        if not ((source[1:] == source[:-1]) & (key[1:] < key[:-1])).any():
            return self
        order = np.lexsort((key, source))
        return ArcFst(self.start, self.final, self.begin, self.arcs[order])


def spread(begin: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Runs of numbers from each `begin` on: which run each belongs to, and the numbers."""
    return np.repeat(np.arange(len(counts)), counts), runs(begin, counts)


def runs(begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers of `spread` alone."""
    numbers = np.repeat(begin - (np.cumsum(counts) - counts), counts)
    numbers += np.arange(len(numbers))
    return numbers
