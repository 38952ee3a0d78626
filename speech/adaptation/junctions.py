"""Where words begin and end in a graph, and what a new word costs there.

A graph with optional silence has one state between words for each phone to the left, with silence
and words after it; one whose lexicon has probabilities of silence has a state after each word, from
which silence, or a symbol in its place, leads to these.
"""

from __future__ import annotations

import math

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.arcs import spread
from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.hmms import PhoneHmms
from ...kaldi.lattices.transition_ids import TransitionIds
from ..lattice.word_boundary import WordBoundaries
from .contexts import Contexts

_SAMPLE = 10_000  # self-loops that their scale is read from
_COSTS = 1e-2  # by which costs of one step may differ: graphs are rounded when they are made

Exit = tuple[int, int, float]
"""Input label, next state, cost."""


class Junctions:
    """The junctions of a graph.

    Attributes:
        entries: the states that words begin in, rising, int64, [entries]. base: what it costs to
            begin one there, besides its HMM: the least that a word does, and at least what it costs
            to leave the state's self-loop. lefts: the phones before each.
        after_silence: whether a word that begins there costs what it does after silence, bool,
            [entries].
        inside: the cost of each transition-id besides leaving a self-loop, float32.
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
        source, label = contexts.source, contexts.label
        state_of, self.loop = np.array(hmms.state_of), np.array(ids.is_loop)[label]
        loops = np.flatnonzero(self.loop)
        self.scale = loop_scale(fst.weight[loops], hmms.cost[label[loops]])
        leaving = self.scale * hmms.leaving
        self.leave = np.zeros(fst.states)
        self.leave[source[loops]] = leaving[state_of[label[loops]]]
        kinds = np.array(boundaries.kinds)
        starts = np.concatenate(([False], model.tuples[:, 1] == 0))[state_of] & ~np.array(
            ids.is_loop
        )
        phone = np.array(ids.phone)
        begins = starts & np.isin(kinds[phone], ("begin", "singleton"))
        arcs = np.flatnonzero(begins[label])
        is_entry = np.zeros(fst.states, bool)
        is_entry[source[arcs]] = True
        self.entries = np.flatnonzero(is_entry)
        if not len(self.entries):
            raise FormatError("no word begins in this graph")
        place = np.full(fst.states, -1)
        place[self.entries] = np.arange(len(self.entries))
        self.inside = hmms.cost - hmms.leaving[state_of]
        self.inside[0] = 0
        least = np.full(len(self.entries), np.inf)
        np.minimum.at(least, place[source[arcs]], fst.weight[arcs] - self.inside[label[arcs]])
        begun = arcs
        self.base = np.maximum(self.leave[self.entries], least)
        # What is between words has no output label, as the words in brackets have.
        arcs = np.flatnonzero((starts & (kinds[phone] == "nonword"))[label])
        arcs = arcs[(fst.olabel[arcs] == 0) & is_entry[source[arcs]]]
        self._mass = np.exp(self.leave[self.entries] - self.base)
        shares = np.exp(self.leave[source[arcs]] - fst.weight[arcs])
        np.add.at(self._mass, place[source[arcs]], shares)
        self._place, self._label = place, label
        self._silent = (kinds == "nonword")[phone]
        self._silent[0] = False
        self.lefts: list[list[int]] = [[] for _ in self.entries]
        at = place[contexts.state]
        for entry, left in zip(at[at >= 0].tolist(), contexts.left[at >= 0].tolist(), strict=True):
            self.lefts[entry].append(left)
        # A state between words that one phone alone leads to has the self-loop of that phone; it is
        # not the one that arcs of #0 lead to, which no phone does.
        into = np.flatnonzero(is_entry[fst.nextstate])
        last = np.where(np.array(ids.is_last) & ~np.array(ids.is_loop), ids.phone, 0)[label[into]]
        keys = np.unique(last[last > 0] * fst.states + fst.nextstate[into[last > 0]])
        self._direct = [divmod(key, fst.states) for key in keys.tolist()]
        self._exits: dict[int, list[Exit]] = {}
        quiet = into[(last == 0) & ~self.loop[into] & (fst.olabel[into] == 0)]
        quiet = quiet[label[quiet] == 0]
        is_end = np.zeros(fst.states, bool)
        is_end[source[quiet]] = True
        is_end[self.entries] = False
        ends = is_end[contexts.state] & np.isin(kinds, ("end", "singleton"))[contexts.left]
        self._ends, self._last = contexts.state[ends], contexts.left[ends]
        self.after_silence = self._alike(source, begun)

    def exits(self, phone: int, silence: float | None = None) -> list[Exit]:
        """Where paths go on after a word that ends in a phone, with what it costs in the median, or
        by the probability of silence there; their probabilities have the sum 1. Empty: no word ends
        so."""
        if phone not in self._exits:
            self._exits[phone] = self._found_exits(phone)
        if silence is None:
            return self._exits[phone]
        costs = -math.log(1 - silence), -math.log(silence)
        return [
            (ilabel, after, costs[int(self._silent[ilabel])] + float(self.inside[ilabel]))
            for ilabel, after, _ in self._exits[phone]
        ]

    def is_entry(self, state: int) -> bool:
        """Whether words begin in a state."""
        return bool(self._place[state] >= 0)

    def own_silence(self, phone: int) -> bool:
        """Whether each word that ends in a phone may have a probability of silence of its own."""
        silent = [bool(self._silent[ilabel]) for ilabel, *_ in self.exits(phone)]
        return silent.count(False) == 1 and any(silent)

    def silence_after(self, state: int) -> float | None:
        """The probability of silence after the words that end in a state; None: it has none."""
        arcs = np.arange(self._fst.begin[state], self._fst.begin[state + 1])
        arcs = arcs[self._silent[self._label[arcs]] & ~self.loop[arcs]]
        return (
            float(np.exp(self.leave[state] - self._fst.weight[arcs]).sum()) if len(arcs) else None
        )

    def _alike(self, source: np.ndarray, begun: np.ndarray) -> np.ndarray:
        """Which entries silence after a word leads to, or go on by their words' first steps
        (`begun`) to the same states at the same costs.

        The start of a sentence need not be among those that follow silence: what is written of it
        differs between recipes. The costs tell.
        """
        fst, place = self._fst, self._place
        entry = place[source[begun]]
        cost = np.round((fst.weight[begun] - self.leave[source[begun]]) / _COSTS).astype(np.int64)
        keys = np.stack((self._label[begun], fst.nextstate[begun], cost), axis=1)
        steps, which = np.unique(keys, axis=0, return_inverse=True)
        which = which.reshape(-1)
        # A step that all take alike tells nothing.
        labels, counts = np.unique(steps[:, 0], return_counts=True)
        tells = np.isin(keys[:, 0], labels[counts > 1])
        is_end = np.zeros(fst.states, bool)
        is_end[self._ends] = True
        silent = self._silent[self._label]
        arcs = np.flatnonzero((silent | (self._label == 0) & ~is_end[source]) & ~self.loop)
        arcs = arcs[(fst.olabel[arcs] == 0) & (place[source[arcs]] < 0)]
        passed = is_end.copy()
        states = 0
        while states < (states := int(passed.sum())):  # through the states of silence
            passed[fst.nextstate[arcs[passed[source[arcs]]]]] = True
        found = passed[self.entries]
        mine = tells & found[entry]
        same = tells & np.isin(which, which[mine])
        other = tells & ~same & np.isin(keys[:, 0], keys[mine, 0])
        balance = bincount(entry[same], minlength=len(found)) - bincount(
            entry[other], minlength=len(found)
        )
        return found | (balance > 0)

    def _found_exits(self, phone: int) -> list[Exit]:
        fst = self._fst
        state = self._ends[self._last == phone]
        path, arc = spread(fst.begin[state], fst.begin[state + 1] - fst.begin[state])
        kept = ~self.loop[arc] & (fst.olabel[arc] == 0)
        state, arc = state[path[kept]], arc[kept]
        cost = fst.weight[arc] - self.leave[state]
        keys = self._label[arc].astype(np.int64) * fst.states + fst.nextstate[arc]
        kinds, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
        found = [
            (*divmod(key, fst.states), float(np.median(cost[which == number])))
            for number, key in enumerate(kinds.tolist())
            if 2 * counts[number] >= counts.max()
        ]
        if not found:
            found = [(0, after, 0.0) for of, after in self._direct if of == phone]
        total = sum(
            np.exp(-cost) * (1.0 if ilabel else self._mass[self._place[after]])
            for ilabel, after, cost in found
        )
        return [(ilabel, after, cost + float(np.log(total))) for ilabel, after, cost in found]


def loop_scale(weight: np.ndarray, cost: np.ndarray) -> float:
    """The scale of the probabilities of self-loops, by the weights of some and their costs."""
    costly = np.flatnonzero(cost > 0)
    costly = costly[:: max(len(costly) // _SAMPLE, 1)]
    return float(np.median(weight[costly] / cost[costly]))
