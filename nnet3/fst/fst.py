"""Weighted finite-state acceptors and transducers over the tropical semiring, as arrays.

Weights are negated natural logarithms of probabilities; infinity means that there is no such path.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Properties that are true of every expanded FST of its kind; the rest is what its maker knew.
EXPANDED = 0x1
MUTABLE = 0x2
_ACCEPTOR = 0x10000
_NOT_ACCEPTOR = 0x20000


@dataclass
class Header:
    """The header of an OpenFst file, with which the FST is written as it was read."""

    kind: str = "vector"
    arc: str = "standard"
    version: int = 2
    flags: int = 0
    properties: int = EXPANDED | MUTABLE
    arcs: int = 0


@dataclass(eq=False)
class Fst:
    """An FST: states from 0 on, the arcs of each one after the other.

    Attributes:
        start: the start state, -1 where there is none.
        final: the weight of ending in each state, float32, [states]; infinity: it is not final.
        begin: where the arcs of each state begin, int64, [states + 1].
        ilabel, olabel, nextstate: int32, [arcs]; label 0 is epsilon.
        weight: float32, [arcs].
        header: of the file it came from.
    """

    start: int
    final: np.ndarray
    begin: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    weight: np.ndarray
    nextstate: np.ndarray
    header: Header = field(default_factory=Header)

    @property
    def states(self) -> int:
        """How many states it has."""
        return len(self.final)

    @property
    def arcs(self) -> int:
        """How many arcs it has."""
        return len(self.ilabel)

    def source(self) -> np.ndarray:
        """The state that each arc leaves, int64, [arcs]."""
        return np.repeat(np.arange(self.states), np.diff(self.begin))

    @classmethod
    def of_arcs(
        cls,
        source: np.ndarray,
        ilabel: np.ndarray,
        weight: np.ndarray,
        nextstate: np.ndarray,
        final: np.ndarray,
        olabel: np.ndarray | None = None,
        start: int = 0,
    ) -> Fst:
        """An FST of arcs in any order, an acceptor by default; arcs of a state keep their order."""
        order = np.argsort(source, kind="stable")
        counts = np.bincount(source, minlength=len(final))
        begin = np.concatenate([[0], np.cumsum(counts)])
        ilabel = np.asarray(ilabel, np.int32)[order]
        olabel = ilabel if olabel is None else np.asarray(olabel, np.int32)[order]
        return cls(
            start,
            np.asarray(final, np.float32),
            begin,
            ilabel,
            olabel,
            np.asarray(weight, np.float32)[order],
            np.asarray(nextstate, np.int32)[order],
            Header(properties=EXPANDED | MUTABLE | _kind_of_labels(ilabel, olabel)),
        )


def _kind_of_labels(ilabel: np.ndarray, olabel: np.ndarray) -> int:
    return _ACCEPTOR if np.array_equal(ilabel, olabel) else _NOT_ACCEPTOR
