"""Operations on acceptors against their paths, enumerated; chunks of supervisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chain_graphs import language, random_hmm, random_lattice, same
from opscope.framework.base.errors import ShapeError
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.kaldi.fst.algorithms.acceptors import (
    compose,
    connect,
    determinize,
    minimize,
)
from opscope.kaldi.fst.algorithms.epsilons import remove_epsilons
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.fst.fst_properties import acceptor_properties
from opscope.nnet3.chain.supervisions.chunks import SupervisionSplitter, normalized, scaled
from opscope.nnet3.chain.supervisions.supervision import Supervision, check_labels, state_times
from opscope.nnet3.chain.supervisions.unconstrained import unconstrained
from opscope.nnet3.egs.chain_end_to_end import (
    allowed_length,
    graph_supervision,
    least_supervision,
)
from opscope.nnet3.egs.splitting import ExampleGenerationOptions

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_smallest_deterministic_form(seed):
    fst = random_lattice(np.random.default_rng(seed), frames=5, width=3)
    found = minimize(determinize(fst))
    # left-over weights are rounded to 1/1024 at each frame
    same(language(found), language(fst), 5 / 1024)
    assert found.states <= determinize(fst).states
    pairs = np.stack([found.source(), found.ilabel])
    assert len(np.unique(pairs, axis=1).T) == len(found.arcs)
    again = minimize(found)
    assert (again.states, len(again.arcs)) == (found.states, len(found.arcs))
    assert determinize(fst, most_states=2) is None


@pytest.mark.parametrize("seed", range(1, 7))
def test_composition_adds_weights(seed):
    rng = np.random.default_rng(seed)
    fst, graph = random_lattice(rng, frames=4, pdfs=2), random_hmm(rng, pdfs=2)
    left, right = language(fst), language(graph, 4)
    both = {labels: w + right[labels] for labels, w in left.items() if labels in right}
    same(language(compose(fst, graph)), both)


def test_composition_without_a_common_path():
    one, two = (Fst.of_arcs([0], [label], [0.5], [1], [np.inf, 0]) for label in (1, 2))
    assert compose(one, two).states == 0
    assert normalized(Supervision(1.0, 1, 1, 2, one), two) is None


def test_arcs_without_label_are_removed():
    source, label, target = [0, 0, 1, 1, 2, 3], [0, 1, 0, 2, 1, 0], [1, 2, 2, 3, 3, 4]
    fst = Fst.of_arcs(source, label, [0.5, 2, 0.25, 1, 1, 0.125], target, [np.inf] * 4 + [3])
    found = remove_epsilons(fst)
    assert found.ilabel.min() > 0
    same(language(found), language(fst))
    loop = Fst.of_arcs([0, 1, 1], [0, 0, 3], [0.5, 1, 2], [1, 0, 1], [np.inf, 0])
    assert language(remove_epsilons(loop)) == {(3,) * n: 0.5 + 2 * n for n in range(9)}
    with pytest.raises(ShapeError, match="without labels form a loop"):
        remove_epsilons(Fst.of_arcs([0, 1], [0, 0], [0, -0.5], [1, 0], [0, 0]))
    with pytest.raises(ShapeError, match="nnet3-chain-normalize-egs"):
        check_labels(fst)


def test_states_on_no_path_go():
    fst = Fst.of_arcs([0, 0, 2], [1, 2, 1], [0, 0, 0], [1, 3, 1], [np.inf, 1, np.inf, np.inf])
    found = connect(fst)
    assert found.states == 2 and language(found) == {(1,): 1.0}
    assert connect(replace(fst, final=np.full(4, np.inf, np.float32))).states == 0


def test_loops():
    loop = Fst.of_arcs([0, 0, 0, 1, 2], [1, 2, 3, 1, 1], [0] * 5, [1, 2, 1, 1, 2], [np.inf, 0, 0])
    found = minimize(determinize(loop))
    assert found.states == 2  # states 1 and 2 are the same
    same(language(found, 5), language(loop, 5))
    with pytest.raises(ShapeError, match="loop"):
        minimize(Fst.of_arcs([0, 1], [1, 1], [0, 0], [1, 0], [0, 0]))


def test_properties():
    line = Fst.of_arcs([0, 1], [2, 1], [0, 0], [1, 2], [np.inf, np.inf, 0])
    assert acceptor_properties(line) == 0x956A5A950001  # as OpenFst writes them
    loop = Fst.of_arcs([0, 1, 1], [2, 2, 0], [0, 1.5, 0], [1, 1, 0], [np.inf, 0])
    wanted = {18: True, 22: True, 28: False, 32: True, 34: True, 36: True, 38: False, 44: False}
    found = acceptor_properties(loop)
    for bit, holds in (wanted | {46: True}).items():
        assert bool(found >> bit & 1) == holds and bool(found >> (bit + 1) & 1) != holds


@pytest.mark.parametrize("first, frames", [(0, 6), (0, 2), (2, 3), (4, 2)])
def test_part_of_a_supervision(first, frames):
    rng = np.random.default_rng(first)
    fst = random_lattice(rng, frames=6)
    supervision = Supervision(
        0.5, 1, 6, 3, replace(fst, final=np.where(np.isinf(fst.final), np.inf, 0))
    )
    part = SupervisionSplitter(supervision).part(first, frames)
    assert (part.weight, part.frames_per_sequence, part.label_dim) == (0.5, frames, 3)
    inside = {}
    for state in np.flatnonzero(state_times(fst) == first).tolist():
        for labels, weight in language(_cut(fst, state, first + frames)).items():
            inside[labels] = min(inside.get(labels, np.inf), weight)
    same(language(part.fst), inside)
    with pytest.raises(ShapeError, match="frames 5 to 7 of 6"):
        SupervisionSplitter(supervision).part(5, 3)


def _cut(fst, state, end):
    """The paths from a state to any state at a time."""
    final = np.where(state_times(fst) == end, 0.0, np.inf)
    return replace(fst, start=state, final=final)


def test_scaled_weights():
    fst = random_lattice(np.random.default_rng(0), 3)
    same(language(scaled(fst, 0.5)), {k: 0.5 * v for k, v in language(fst).items()})


def model():
    """Two phones of one state: transitions 1 and 3 are loops, 2 and 4 lead on; a pdf for each."""
    states = [HmmState(0, 1, [(0, 0.5), (1, 0.5)]), HmmState()]
    tuples = np.array([[1, 0, 0, 1], [2, 0, 2, 3]], np.int32)
    probs = np.zeros(5, np.float32)
    return TransitionModel([1, 2], [-1, 0, 0], [states], "<Tuples>", tuples, probs)


def test_unconstrained_supervision():
    transitions = model().transitions()
    assert transitions.pdf.tolist() == [-1, 1, 0, 3, 2] and transitions.num_pdfs == 4
    # In Kaldi's chain graphs the transition that leads on comes before the loops.
    line = Fst.of_arcs([0, 1, 2, 3], [1, 2, 1, 4], [0] * 4, [1, 2, 3, 4], [np.inf] * 4 + [0])
    found = unconstrained(Supervision(1.0, 1, 4, 4, line), model(), np.random.default_rng(0))
    assert found.fst is None and found.label_dim == 4
    assert found.alignment_pdfs.tolist() == [1, 0, 1, 2]
    words = {tuple(labels) for labels in language(found.e2e_fsts[0], 6)}
    assert words == {
        (*[2] * first, 1, *[2] * loops, 3, *[4] * last)
        for first in range(1, 7)
        for loops in range(6)
        for last in range(6)
        if first + loops + last + 2 <= 6
    }
    with pytest.raises(ShapeError, match="convert-to-pdfs"):
        unconstrained(Supervision(1.0, 1, 4, 3, line), model(), np.random.default_rng(0))


def test_training_graph_as_supervision():
    """Words and arcs without a transition do not matter; loops may be passed at will."""
    source, target = [1, 2, 2, 2, 0, 0], [2, 2, 0, 3, 0, 3]
    tids, words = [2, 1, 4, 0, 3, 0], [5, 0, 6, 0, 0, 0]
    graph = Fst.of_arcs(
        *(source, tids, [0.5, 0, 0.25, 0, 0, 1], target, [np.inf] * 3 + [0.125], words),
        start=1,
    )
    found = graph_supervision(graph, model().transitions(), 6)
    assert found.frames_per_sequence == 6 and found.label_dim == 4
    fst = found.e2e_fsts[0]
    assert fst.start == 0 and fst.ilabel.min() > 0
    assert least_supervision(graph, model().transitions()).frames_per_sequence == 1
    paths = language(fst, 5)
    assert paths[1, 2, 2] == 0.625 and paths[1, 2, 3, 4, 4] == 0.5 + 0.25 + 1.125
    with pytest.raises(ShapeError, match="1 frames at least, and there are 0"):
        graph_supervision(graph, model().transitions(), 0)
    with pytest.raises(ShapeError, match="transition-id 9 of a model with 4"):
        wrong = Fst.of_arcs([0], [9], [0], [1], [np.inf, 0])
        graph_supervision(wrong, model().transitions(), 3)
    with pytest.raises(ShapeError, match="no path of the graph leads to an end"):
        least_supervision(Fst.of_arcs([0], [1], [0], [1], [np.inf] * 2), model().transitions())


def test_allowed_lengths():
    options = ExampleGenerationOptions((40, 61), frame_subsampling_factor=3)
    assert [allowed_length(n, options) for n in (38, 42, 46, 59, 67)] == [42, 42, 42, 63, 63]
    with pytest.raises(ShapeError, match="50 frames, and the nearest allowed length is 42"):
        allowed_length(50, options)
