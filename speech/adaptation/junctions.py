"""Where words begin and end in a graph, and what a new word costs there.

A graph with optional silence has one state between words for each phone to the left, with silence
and words after it; one whose lexicon has probabilities of silence has a state after each word, from
which silence, or a symbol in its place, leads to these.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.arcs import spread
from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.hmms import PhoneHmms
from ...kaldi.lattices.transition_ids import TransitionIds
from ..lattice.word_boundary import WordBoundaries
from .contexts import Contexts

Exit = tuple[int, int, float]
"""Input label, next state, cost."""


class Junctions:
    """The junctions of a graph.

    Attributes:
        entries: the states that words begin in, rising, int64, [entries]. base: what it costs to
            begin one there, besides its HMM: the least that a word does, and at least what it costs
            to leave the state's self-loop. lefts: the phones before each.
        loop: whether each arc is a self-loop of the model, bool, [arcs].
        leave: what each state's arcs and its end cost for leaving such a loop, float64, [states].
        scale: of the probabilities of staying in a state or leaving it.

    Raises:
        FormatError: no word begins anywhere.
    """

    def __init__(
        self,
        fst: Fst,
        ids: TransitionIds,
        model: TransitionModel,
        hmms: PhoneHmms,
        boundaries: WordBoundaries,
        contexts: Contexts,
    ) -> None:
        self._fst = fst
        source = fst.source()
        label = np.where(fst.ilabel > ids.count, 0, fst.ilabel)
        state_of, self.loop = np.array(hmms.state_of), np.array(ids.is_loop)[label]
        self.scale = self._scale(hmms, label)
        leaving = self.scale * hmms.leaving
        self.leave = np.zeros(fst.states)
        self.leave[source[self.loop]] = leaving[state_of[label[self.loop]]]
        kinds = np.array(boundaries.kinds)
        starts = np.concatenate(([False], model.tuples[:, 1] == 0))[state_of] & ~np.array(
            ids.is_loop
        )
        phone = np.array(ids.phone)
        begins = starts & np.isin(kinds[phone], ("begin", "singleton"))
        arcs = np.flatnonzero(begins[label])
        self.entries = np.unique(source[arcs])
        if not len(self.entries):
            raise FormatError("no word begins in this graph")
        place = np.full(fst.states, -1)
        place[self.entries] = np.arange(len(self.entries))
        inside = (hmms.cost - hmms.leaving[state_of])[label[arcs]]
        least = np.full(len(self.entries), np.inf)
        np.minimum.at(least, place[source[arcs]], fst.weight[arcs] - inside)
        self.base = np.maximum(self.leave[self.entries], least)
        # What is between words has no output label, as the words in brackets have.
        between = (starts & (kinds[phone] == "nonword"))[label] & (fst.olabel == 0)
        arcs = np.flatnonzero(between & (place[source] >= 0))
        self._mass = np.exp(self.leave[self.entries] - self.base)
        shares = np.exp(self.leave[source[arcs]] - fst.weight[arcs])
        np.add.at(self._mass, place[source[arcs]], shares)
        self._place, self._label = place, label
        self.lefts: list[list[int]] = [[] for _ in self.entries]
        at = place[contexts.state]
        for entry, left in zip(at[at >= 0].tolist(), contexts.left[at >= 0].tolist(), strict=True):
            self.lefts[entry].append(left)
        # A state between words that one phone alone leads to has the self-loop of that phone; it is
        # not the one that arcs of #0 lead to, which no phone does.
        arcs = np.flatnonzero(
            np.array(ids.is_last)[label] & ~self.loop & (place[fst.nextstate] >= 0)
        )
        self._direct = {
            *zip(phone[label[arcs]].tolist(), fst.nextstate[arcs].tolist(), strict=True)
        }
        self._exits: dict[int, list[Exit]] = {}
        self._ends = self._after_words(source, np.isin(kinds, ("end", "singleton")), contexts)

    def _scale(self, hmms: PhoneHmms, label: np.ndarray) -> float:
        cost = hmms.cost[label[self.loop]]
        costly = cost > 0
        return float(np.median(self._fst.weight[self.loop][costly] / cost[costly]))

    def _after_words(
        self, source: np.ndarray, ends: np.ndarray, contexts: Contexts
    ) -> tuple[np.ndarray, ...]:
        """Arcs from the states after words: the last phone, input label, next state, cost."""
        fst = self._fst
        quiet = (self._label == 0) & (fst.olabel == 0)
        quiet &= (self._place[fst.nextstate] >= 0) & (self._place[source] < 0)
        is_end = np.zeros(fst.states, bool)
        is_end[source[quiet]] = True
        chosen = is_end[contexts.state] & ends[contexts.left]
        state, phone = contexts.state[chosen], contexts.left[chosen]
        path, arc = spread(fst.begin[state], np.diff(fst.begin)[state])
        kept = ~self.loop[arc] & (fst.olabel[arc] == 0)
        path, arc = path[kept], arc[kept]
        cost = fst.weight[arc] - self.leave[state[path]]
        return phone[path], self._label[arc], fst.nextstate[arc], cost

    def exits(self, phone: int) -> list[Exit]:
        """Where paths go on after a word that ends in a phone, with what it costs in the median;
        their probabilities have the sum 1. Empty: no word ends so."""
        if phone not in self._exits:
            self._exits[phone] = self._found_exits(phone)
        return self._exits[phone]

    def _found_exits(self, phone: int) -> list[Exit]:
        mine = np.flatnonzero(self._ends[0] == phone)
        label, target, cost = (column[mine] for column in self._ends[1:])
        rows = np.stack((label, target), axis=1)
        kinds, which, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        which = which.ravel()
        found = [
            (ilabel, after, float(np.median(cost[which == number])))
            for number, (ilabel, after) in enumerate(kinds.tolist())
            if 2 * counts[number] >= counts.max()
        ]
        if not found:
            found = [(0, after, 0.0) for of, after in self._direct if of == phone]
        total = sum(
            np.exp(-cost) * (1.0 if ilabel else self._mass[self._place[after]])
            for ilabel, after, cost in found
        )
        return [(ilabel, after, cost + float(np.log(total))) for ilabel, after, cost in found]
