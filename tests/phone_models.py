"""Small models of phones, with trees and alignments."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from opscope.kaldi.files.context_dependency import ContextDependency, Leaf, Table
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.kaldi.lattices.transition_ids import TransitionIds


@dataclass
class Trained:
    """A model of phones of two states; the pdf of a state tells it, and the phone before
    (or after)."""

    phones: int
    contexts: int
    skips: bool = False
    after: bool = False

    def __post_init__(self):
        ways = [[(0, 0.5), (1, 0.5)], [(1, 0.5), (2, 0.5)]]
        if self.skips:
            ways[0] = [(0, 0.5), (1, 0.25), (2, 0.25)]
        states = [*(HmmState(at, at, way) for at, way in enumerate(ways)), HmmState()]
        every = range(1, self.phones + 1)
        rows = [
            (phone, place, self.pdf(phone, place, beside))
            for phone, place, beside in itertools.product(every, range(2), range(self.contexts))
        ]
        probs = np.full(1 + sum(len(ways[row[1]]) for row in rows), np.log(0.5), np.float32)
        self.model = TransitionModel(
            [*every], [-1] + [0] * self.phones, [states], "<Triples>", np.array(rows), probs
        )

        def by_neighbor(phone: int, place: int) -> Table:
            leaves = (Leaf(self.pdf(phone, place, beside)) for beside in range(self.phones + 1))
            return Table(int(self.after), tuple(leaves))

        def classes(phone: int) -> Table:
            return Table(-1, tuple(by_neighbor(phone, place) for place in range(2)))

        central = 1 - self.after
        tree = Table(central, (None, *(classes(phone) for phone in every)))
        self.tree = ContextDependency(2, central, tree)

    def pdf(self, phone, place, beside):
        return (2 * phone - 2 + place) * self.contexts + min(beside, self.contexts - 1)

    def alignment(self, phones, frames, reorder):
        """The transition-ids of phones with so many frames in each state."""
        ids = TransitionIds.of(self.model)
        neighbors = [*phones[1:], 0] if self.after else [0, *phones[:-1]]
        found = []
        for beside, phone, counts in zip(neighbors, phones, frames, strict=True):
            for place, count in enumerate(counts):
                pdf = self.pdf(phone, place, beside)
                mine = [n for n in range(1, ids.count + 1) if ids.pdf[n] == pdf]
                loops = [n for n in mine if ids.is_loop[n]] * (count - 1)
                leaving = [n for n in mine if ids.target[n] == place + 1]
                found += leaving + loops if reorder else loops + leaving
        return np.array(found, np.int32)
