"""Lattices with damage of all kinds: the package's own errors or a result, nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.lattices.determinize import DeterminiseOptions
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight
from opscope.kaldi.lattices.phone_determinize import determinized
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech.lattice.align_lexicon import AlignLexicon
from opscope.speech.lattice.bayes_risk import minimum_bayes_risk
from opscope.speech.lattice.best_paths import n_best
from opscope.speech.lattice.lexicon_align import lexicon_aligned
from opscope.speech.lattice.times import ctm_lines, timed_words
from opscope.speech.lattice.word_align import word_aligned
from opscope.speech.lattice.word_boundary import WordBoundaries

# A model of phones 1 to 5: 2 * p - 1 leaves phone p, 2 * p is its loop.
IDS = TransitionIds(
    [0, *(number // 2 + 1 for number in range(10))],
    [0, *(number // 2 + 1 for number in range(10))],
    [-1, *range(10)],
    [False, *(number % 2 == 1 for number in range(10))],
    [False, *(number % 2 == 0 for number in range(10))],
    [-1, *(1 - number % 2 for number in range(10))],
)
STARTS = [0, *(number // 2 + 1 if number % 2 else 0 for number in range(1, 11))]
BOUNDARIES = WordBoundaries(("", "nonword", "begin", "end", "internal", "singleton"))
LEXICON = AlignLexicon.of([(0, 0, 1), (1, 1, 5), (2, 2, 2, 3), (3, 3, 2, 4, 3), (3, 3)])
SOUNDS = {0: (1, 2, 2, 2), 1: (9, 10, 10, 10), 2: (3, 4, 5, 6), 3: (3, 7, 8, 5)}
WRONG_COSTS = (math.nan, math.inf, -math.inf, 1e38, -1e38)


def whole_lattice(rng: np.random.Generator) -> CompactLattice:
    """Words one after the other, several in each place."""
    places = int(rng.integers(1, 6))
    made = CompactLattice(0, [[] for _ in range(places + 1)], [None] * places + [ONE])
    for state in range(places):
        for label in rng.permutation(4)[: rng.integers(1, 4)].tolist():
            weight = Weight(float(rng.integers(0, 9)), float(rng.integers(0, 9)), SOUNDS[label])
            made.arcs[state].append(Arc(label, weight, state + 1))
    return made


def damage(lattice: CompactLattice, rng: np.random.Generator) -> None:
    """One change of the many that files may bring."""
    states = [state for state, group in enumerate(lattice.arcs) if group]
    if not states:
        return
    group = lattice.arcs[int(rng.choice(states))]
    place = int(rng.integers(len(group)))
    label, weight, target = group[place]
    kind = int(rng.integers(8))
    ids = list(weight.ids)
    if kind == 0:
        target = int(rng.integers(-1, lattice.states + 1))
    elif kind == 1:
        label = int(rng.choice([-1, 0, 1, 2, 3, 4, 1 << 30]))
    elif kind == 2:
        ids[int(rng.integers(len(ids) + 1)) :] = []
    elif kind == 3:
        ids.insert(0, int(rng.choice([-1, 0, 1, 4, 8, 10, 11, 1 << 30])))
    elif kind == 4:
        weight = weight._replace(acoustic=float(rng.choice(WRONG_COSTS)))
    elif kind == 5:
        weight = weight._replace(graph=float(rng.choice(WRONG_COSTS)))
    elif kind == 6:
        lattice.final[int(rng.integers(lattice.states))] = (
            None if rng.random() < 0.5 else Weight(float(rng.choice(WRONG_COSTS)), 0.0, (2, 9))
        )
    else:
        lattice.start = int(rng.integers(-1, lattice.states + 1))
    group[place] = Arc(label, weight._replace(ids=tuple(ids)), target)


def follow(lattice: CompactLattice) -> None:
    """All that is done with a lattice, in turn."""
    for path in n_best(lattice, 3):
        words, _ = timed_words(path)
        ctm_lines("utterance", words, str, 0.03)
    minimum_bayes_risk(lattice)


@pytest.mark.parametrize("part", ["as it is", "words", "lexicon", "determinized", "limited"])
def test_damaged_lattices(part: str) -> None:
    refused = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        lattice = whole_lattice(rng)
        for _ in range(int(rng.integers(0, 3))):
            damage(lattice, rng)
        told: list[str] = []
        try:
            if part == "words":
                lattice, _ = word_aligned(lattice, IDS, BOUNDARIES, told.append)
            elif part == "lexicon":
                lattice, _ = lexicon_aligned(lattice, IDS, LEXICON, told.append)
            elif part == "determinized":
                options = DeterminiseOptions(minimize=True)
                lattice = determinized(lattice, 9.0, STARTS, options).lattice
            elif part == "limited":
                options = DeterminiseOptions(max_arcs=3, max_mem=500)
                lattice = determinized(lattice, math.inf, STARTS, options, told.append).lattice
            follow(lattice)
        except OpscopeError as error:
            assert str(error)
            refused += 1
    assert 50 < refused < 350
