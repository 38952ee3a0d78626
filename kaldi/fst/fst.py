"""Weighted finite-state acceptors and transducers over the tropical semiring, as arrays.

Weights are negated natural logarithms of probabilities; infinity means that there is no such path.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...framework.base.sequence import bincount, repeated
from .arcs import ARC, Arc

# Properties that are true of every expanded FST of its kind; the rest is what its maker knew.
EXPANDED = 0x1
MUTABLE = 0x2
_ACCEPTOR = 0x10000
_NOT_ACCEPTOR = 0x20000

DELTA = 1 / 1024
"""OpenFst's tolerance of weights: those that differ by less are equal."""


@dataclass
class SymbolTable:
    """The texts of labels, as a file of an FST has them.

    Attributes:
        name: of the table. available: the next label that it would give. texts: by label.
    """

    name: str
    available: int
    texts: dict[int, str]


@dataclass
class Reachability:
    """Which labels can come next from each state of an FST, as intervals of labels.

    Attributes:
        begin: where the intervals of each state begin, int64, [states + 1].
        intervals: first label and the one after the last, int32, [intervals, 2], sorted.
        final_label: the label that stands for the end of a path.
        relabeled: old and new label, int32, [labels, 2]; empty where the file has none.
        of_input: whether these are input labels; else output labels.
    """

    begin: np.ndarray
    intervals: np.ndarray
    final_label: int
    relabeled: np.ndarray
    of_input: bool = False


@dataclass
class Header:
    """The header of an OpenFst file, with which the FST is written as it was read.

    Attributes:
        kind, arc: the types of the FST and of its arcs. version, flags, properties: as OpenFst
            has them. arcs: how many the file says there are.
        input_symbols, output_symbols: the tables of its labels.
        reachability: of a look-ahead FST.
    """

    kind: str = "vector"
    arc: str = "standard"
    version: int = 2
    flags: int = 0
    properties: int = EXPANDED | MUTABLE
    arcs: int = 0
    input_symbols: SymbolTable | None = None
    output_symbols: SymbolTable | None = None
    reachability: Reachability | None = None


@dataclass(eq=False)
class Fst:
    """An FST: states from 0 on, the arcs of each one after the other.

    Attributes:
        start: the start state, -1 where there is none.
        final: the weight of ending in each state, float32, [states]; infinity: it is not final.
        begin: where the arcs of each state begin, int64, [states + 1].
        arcs: ilabel, olabel, weight, nextstate: `ARC`, [arcs]; label 0 is epsilon. Those of a file
            may be a view of it that cannot be written to.
        header: of the file it came from.
    """

    start: int
    final: np.ndarray
    begin: np.ndarray
    arcs: np.ndarray
    header: Header = field(default_factory=Header)

    @property
    def states(self) -> int:
        """How many states it has."""
        return len(self.final)

    @property
    def ilabel(self) -> np.ndarray:
        """The input labels, int32, [arcs]: a view of `arcs`, as the other columns are."""
        return self.arcs["ilabel"]

    @property
    def olabel(self) -> np.ndarray:
        """The output labels, int32, [arcs]."""
        return self.arcs["olabel"]

    @property
    def weight(self) -> np.ndarray:
        """The weights of arcs, float32, [arcs]."""
        return self.arcs["weight"]

    @property
    def nextstate(self) -> np.ndarray:
        """The states that arcs lead to, int32, [arcs]."""
        return self.arcs["nextstate"]

    def source(self) -> np.ndarray:
        """The state that each arc leaves, int64, [arcs]."""
        return repeated(np.arange(self.states), np.diff(self.begin))

    def with_columns(self, **columns: np.ndarray) -> Fst:
        """The same FST, some columns of its arcs replaced."""
        arcs = self.arcs.copy()
        for name, values in columns.items():
            arcs[name] = values
        return replace(self, arcs=arcs)

    def ordered(self, key: np.ndarray) -> Fst:
        """The same FST, the arcs of each state sorted by `key`; equal ones keep their order."""
        source = self.source()
        if not ((source[1:] == source[:-1]) & (key[1:] < key[:-1])).any():
            return self
        order = np.lexsort((key, source))
        return Fst(self.start, self.final, self.begin, self.arcs[order])

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
        counts = bincount(source, minlength=len(final))
        begin = np.concatenate([[0], np.cumsum(counts)])
        arcs = np.empty(len(order), ARC)
        arcs["ilabel"] = np.asarray(ilabel)[order]
        arcs["olabel"] = arcs["ilabel"] if olabel is None else np.asarray(olabel)[order]
        arcs["weight"] = np.asarray(weight)[order]
        arcs["nextstate"] = np.asarray(nextstate)[order]
        return cls.of_states(np.asarray(final, np.float32), begin, arcs, start)

    @classmethod
    def of_lists(cls, arcs: list[list[Arc]], final: list[float], start: int = 0) -> Fst:
        """An FST of the arcs of each state."""
        begin = np.cumsum([0, *map(len, arcs)])
        columns = np.array([arc for group in arcs for arc in group], ARC)
        return cls.of_states(np.array(final, np.float32), begin, columns, start)

    @classmethod
    def of_states(
        cls, final: np.ndarray, begin: np.ndarray, arcs: np.ndarray, start: int = 0
    ) -> Fst:
        """An FST of its arrays, with a header that says what kind it is."""
        labels = _ACCEPTOR if np.array_equal(arcs["ilabel"], arcs["olabel"]) else _NOT_ACCEPTOR
        return cls(start, final, begin, arcs, Header(properties=EXPANDED | MUTABLE | labels))
