"""Decoding graphs as arrays that a search reads: static ones, and pairs that are composed lazily."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import OpscopeError
from .arcs import ArcFst
from .openfst import FstFile
from .sums import running_sums


@dataclass(eq=False)
class StaticGraph:
    """A graph whose states are all there, as HCLG.fst is.

    Attributes:
        fst: in the arcs of each state, those with an input label stand before the epsilons.
        emitting: how many of each state's arcs have an input label, int32, [states].
        largest: the largest input label.
    """

    fst: ArcFst
    emitting: np.ndarray
    largest: int

    @classmethod
    def of(cls, fst: ArcFst, disambiguation: Collection[int] = ()) -> StaticGraph:
        """The graph of an FST.

        Args:
            disambiguation: input labels that are epsilons to the search.
        """
        fst = without_labels(fst, disambiguation)
        fst = fst.ordered(fst.arcs["ilabel"] == 0)
        emitting = np.zeros(fst.states, np.int32)
        np.add.at(emitting, fst.source()[fst.arcs["ilabel"] != 0], 1)
        return cls(fst, emitting, int(fst.arcs["ilabel"].max(initial=0)))


@dataclass(eq=False)
class LookaheadGraph:
    """Two FSTs whose composition a search makes as it goes, looking ahead in the second.

    Attributes:
        first: HCL, its arcs sorted by output label. second: the grammar, sorted by input label.
        interval_begin, intervals: the labels that can come next, as `Reachability` has them.
        final_label: stands for the end of a path in them.
        sum_place, sums: of the second's costs, as `running_sums` gives them.
        epsilons: how many epsilons the second's states begin with, int32, [states].
        largest: the largest input label.
    """

    first: ArcFst
    second: ArcFst
    interval_begin: np.ndarray
    intervals: np.ndarray
    final_label: int
    sum_place: np.ndarray
    sums: np.ndarray
    epsilons: np.ndarray
    largest: int = field(default=0)

    @classmethod
    def of(
        cls, first: FstFile, second: ArcFst, disambiguation: Collection[int] = ()
    ) -> LookaheadGraph:
        """The composition of an `olabel_lookahead` FST with a grammar.

        Args:
            disambiguation: input labels that are epsilons to the search.

        Raises:
            OpscopeError: the first has no reachability data.
        """
        known = first.reachability
        if known is None:
            raise OpscopeError(
                f"a {first.kind} FST has no reachability data: an olabel_lookahead FST is wanted"
            )
        left = without_labels(first.fst, disambiguation)
        return cls.joined(left, known.begin, known.intervals, known.final_label, second)

    @classmethod
    def joined(
        cls,
        left: ArcFst,
        begin: np.ndarray,
        intervals: np.ndarray,
        final_label: int,
        second: ArcFst,
    ) -> LookaheadGraph:
        """The same of the parts of a first FST that are ready: its grammar can be exchanged."""
        second = second.ordered(second.arcs["ilabel"])
        place, sums = running_sums(second)
        epsilons = np.bincount(
            second.source()[second.arcs["ilabel"] == 0], minlength=second.states
        ).astype(np.int32)
        largest = int(left.arcs["ilabel"].max(initial=0))
        return cls(
            left, second, begin, intervals, final_label, place, sums, epsilons, largest
        )

    def with_grammar(self, second: ArcFst) -> LookaheadGraph:
        """The same first FST, composed with another grammar."""
        return LookaheadGraph.joined(
            self.first, self.interval_begin, self.intervals, self.final_label, second
        )


Graph = StaticGraph | LookaheadGraph


def without_labels(fst: ArcFst, labels: Collection[int]) -> ArcFst:
    """The same FST, some input labels replaced by epsilon."""
    if not len(labels):
        return fst
    arcs = fst.arcs.copy()
    arcs["ilabel"][np.isin(arcs["ilabel"], list(labels))] = 0
    return ArcFst(fst.start, fst.final, fst.begin, arcs)
