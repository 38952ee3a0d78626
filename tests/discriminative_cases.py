"""Small lattices of transition-ids with reference alignments, for discriminative training."""

from __future__ import annotations

import numpy as np

from kaldi_models import one_state_model
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight, single
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.nnet3.discriminative.supervision import DiscriminativeSupervision

PHONES, PDFS = 4, 3
MODEL = one_state_model(PHONES).replace("4 0 3", "4 0 1")
"""Phones 2 and 4 share pdf 1; phone p has the transition-ids 2p - 1, its loop, and 2p."""


def transition_ids() -> TransitionIds:
    """Of that model."""
    return TransitionIds.of(TransitionModel.read_from(Reader(MODEL.encode(), name="model")))


def random_lattice(rng: np.random.Generator, frames: int, width: int = 3) -> CompactLattice:
    """A plain lattice: up to `width` states at each time, arcs with and without words, some words
    on arcs without a frame."""

    def cost() -> Weight:
        return Weight(single(rng.normal()), single(rng.normal() + 5))

    lattice = CompactLattice(0)
    lattice.add_state()
    layer = [0]
    for time in range(frames):
        following = [
            lattice.add_state()
            for _ in range(1 if rng.random() < 0.3 else rng.integers(1, width + 1))
        ]
        for place, state in enumerate(layer):
            reached = {place % len(following), *rng.integers(len(following), size=2).tolist()}
            for target in [*reached, int(rng.integers(len(following)))]:
                number = int(rng.integers(1, 2 * PHONES + 1))
                word = int(rng.integers(3)) if time % 2 else 0
                weight = cost()._replace(ids=(number,))
                lattice.arcs[state].append(Arc(word, weight, following[target]))
        for target in following[len(layer) :]:
            lattice.arcs[layer[0]].append(Arc(0, cost()._replace(ids=(1,)), target))
        layer = following
        if rng.random() < 0.3:
            silent = lattice.add_state()
            lattice.arcs[layer[0]].append(Arc(7, cost(), silent))
            layer = [*layer, silent]
    for state in layer:
        lattice.final[state] = Weight(single(rng.normal()), 0.0)
    return lattice


def supervision(rng: np.random.Generator, frames: int, width: int = 3) -> DiscriminativeSupervision:
    """A random lattice with a random reference."""
    alignment = rng.integers(1, 2 * PHONES + 1, frames).astype(np.int32)
    return DiscriminativeSupervision.of_utterance(alignment, random_lattice(rng, frames, width))
