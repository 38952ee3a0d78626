"""Decoding graphs as arrays that a search reads: static ones, and pairs to be composed lazily."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.python.cached import cached_property
from ...framework.base.sequence import bincount, repeated
from ...kaldi.fst.fst import Fst
from .sums import running_sums


@dataclass(eq=False)
class StaticGraph:
    """A graph whose states are all there, as HCLG.fst is.

    Attributes:
        fst: in the arcs of each state, those with an input label stand before the epsilons.
        emitting: how many of each state's arcs have an input label, int32, [states].
        largest: the largest input label.
    """

    fst: Fst
    emitting: np.ndarray
    largest: int

    @classmethod
    def of(cls, fst: Fst, disambiguation: Collection[int] = ()) -> StaticGraph:
        """The graph of an FST.

        Args:
            disambiguation: input labels that are epsilons to the search.
        """
        fst = without_labels(fst, disambiguation)
        fst = fst.ordered(fst.arcs["ilabel"] == 0)
        emitting = np.zeros(fst.states, np.int32)
        np.add.at(emitting, fst.source()[fst.arcs["ilabel"] != 0], 1)
        return cls(fst, emitting, int(fst.arcs["ilabel"].max(initial=0)))


class NextLabels(NamedTuple):
    """Which labels can come next from the states of an FST, as sets of intervals.

    Attributes:
        sets: the set of each state, int32, [states]. begin: where each set begins, int64,
            [sets + 1]. intervals: first label and the one after the last, int32, [intervals, 2].
    """

    sets: np.ndarray
    begin: np.ndarray
    intervals: np.ndarray


@dataclass(eq=False)
class LookaheadGraph:
    """Two FSTs whose composition a search makes as it goes, looking ahead in the second.

    Attributes:
        first: HCL, its arcs sorted by output label. second: the grammar, sorted by input label.
        interval_set: which set of intervals has the labels that can come next from each state of
            the first, int32, [states].
        interval_begin, intervals: where each set begins, int64, [sets + 1]; first label and the one
            after the last, int32, [intervals, 2].
        final_label: stands for the end of a path in them.
        sums: of the second's probabilities, as `running_sums` gives them.
        epsilons: how many epsilons the second's states begin with, int32, [states].
        labels: the second's input labels, int32, [arcs].
        word_keys, output_keys, set_keys: sorted keys for NumPy's search, int64: state and input
            label of the second's arcs, state and output label of the first's, set and begin of
            intervals. They are parts of the graph, and not made by those who search in it, so
            that they are kept on disk with it.
        silent: how many arcs without a word the first's states begin with, int32, [states].
        largest: the largest input label.
    """

    first: Fst
    second: Fst
    interval_set: np.ndarray
    interval_begin: np.ndarray
    intervals: np.ndarray
    final_label: int
    sums: np.ndarray
    epsilons: np.ndarray
    labels: np.ndarray
    word_keys: np.ndarray
    output_keys: np.ndarray
    set_keys: np.ndarray
    silent: np.ndarray
    largest: int

    @classmethod
    def of(cls, first: Fst, second: Fst, disambiguation: Collection[int] = ()) -> LookaheadGraph:
        """The composition of an `olabel_lookahead` FST with a grammar.

        Args:
            disambiguation: input labels that are epsilons to the search.

        Raises:
            OpscopeError: the first has no reachability data.
        """
        kind, known = first.header.kind, first.header.reachability
        if known is None or known.of_input:
            raise OpscopeError(
                f"a {kind} FST has no reachability data of output labels: an olabel_lookahead FST"
                " is wanted"
            )
        return cls(
            **_of_lexicon(
                without_labels(first, disambiguation),
                distinct_sets(known.begin, known.intervals),
            ),
            final_label=known.final_label,
            **_of_grammar(second),
        )

    @cached_property
    def kept(self) -> dict[type[Any], Any]:
        """What searches of this graph made and share, by its class."""
        return {}

    def with_grammar(self, second: Fst) -> LookaheadGraph:
        """The same first FST, composed with another grammar."""
        return replace(self, **_of_grammar(second))

    @property
    def following(self) -> NextLabels:
        """Which labels can come next from the first FST's states."""
        return NextLabels(self.interval_set, self.interval_begin, self.intervals)

    def with_words(self, first: Fst, following: NextLabels, second: Fst) -> LookaheadGraph:
        """Two other FSTs, in which the labels of words and of the end of paths are the same."""
        return replace(self, **_of_lexicon(first, following), **_of_grammar(second))


Graph = StaticGraph | LookaheadGraph


def joined_key(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """One key of two numbers from 0 to 2^31 - 1, that sorts by the first one: int64."""
    return high.astype(np.int64) << 32 | low.astype(np.int64)


def _of_lexicon(fst: Fst, following: NextLabels) -> dict[str, Any]:
    """The attributes of a `LookaheadGraph` that come from its first FST."""
    sets, begin, intervals = following
    words = np.append(np.int32(0), np.cumsum(fst.olabel != 0, dtype=np.int32))
    return {
        "first": fst,
        "interval_set": sets,
        "interval_begin": begin,
        "intervals": intervals,
        "output_keys": joined_key(fst.source(), fst.olabel),
        "set_keys": joined_key(
            repeated(np.arange(len(begin) - 1), np.diff(begin)), intervals[:, 0]
        ),
        "silent": np.diff(fst.begin).astype(np.int32) - np.diff(words[fst.begin]),
        "largest": int(fst.ilabel.max(initial=0)),
    }


def _of_grammar(fst: Fst) -> dict[str, Any]:
    """The attributes of a `LookaheadGraph` that come from its second FST."""
    fst = without_labels(fst, ()).ordered(fst.arcs["ilabel"])
    labels = np.ascontiguousarray(fst.arcs["ilabel"])
    source = fst.source()
    epsilons = bincount(source[labels == 0], minlength=fst.states).astype(np.int32)
    return {
        "second": fst,
        "sums": running_sums(fst),
        "epsilons": epsilons,
        "labels": labels,
        "word_keys": joined_key(source, labels),
    }


def distinct_sets(begin: np.ndarray, intervals: np.ndarray) -> NextLabels:
    """Each set of intervals once.

    Args:
        begin: where the set of each state begins, [states + 1]. intervals: int32, [intervals, 2].
    """
    counts = np.diff(begin)
    words = np.ascontiguousarray(intervals).view("<u8").reshape(-1)
    place = (np.arange(len(words)) - repeated(begin[:-1], counts)).astype(np.uint64)
    mixed = (words ^ (place * np.uint64(0xBF58476D1CE4E5B9))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    keys = (totals[begin[1:]] - totals[begin[:-1]]) ^ counts.astype(np.uint64)
    _, first, sets = np.unique(keys, return_index=True, return_inverse=True)
    # Sets whose keys are equal by chance are told apart by their intervals.
    leader = first[sets]
    alike = counts == counts[leader]
    shift = repeated(begin[leader] - begin[:-1], np.where(alike, counts, 0))
    mine = np.flatnonzero(repeated(alike, counts))
    differs = words[mine] != words[mine + shift]
    owner = repeated(np.arange(len(counts)), np.where(alike, counts, 0))
    alike[owner[differs]] = False
    alone = np.flatnonzero(~alike)
    sets = sets.copy()
    sets[alone] = len(first) + np.arange(len(alone))
    chosen = np.concatenate([first, alone])
    sizes = counts[chosen]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    inside = np.arange(int(starts[-1])) - repeated(starts[:-1], sizes)
    kept = intervals[repeated(begin[chosen], sizes) + inside]
    return NextLabels(sets.astype(np.int32), starts.astype(np.int64), np.ascontiguousarray(kept))


def without_labels(fst: Fst, labels: Collection[int]) -> Fst:
    """The same FST, some input labels replaced by epsilon; without its header, whose tables of
    symbols would stay in memory as long as the graph."""
    arcs = fst.arcs
    if len(labels):
        arcs = arcs.copy()
        arcs["ilabel"][np.isin(arcs["ilabel"], list(labels))] = 0
    return Fst(fst.start, fst.final, fst.begin, arcs)
