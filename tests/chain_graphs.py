"""Small random graphs and supervisions for tests of LF-MMI, and their paths one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.chain.supervisions.supervision import Supervision


def random_hmm(rng, states=4, pdfs=3):
    """An FST in which every state has some arcs; all states can be reached."""
    source, target = [], []
    for state in range(states):
        for other in {(state + 1) % states, *rng.integers(0, states, 2).tolist()}:
            source.append(state)
            target.append(other)
    count = len(source)
    return Fst.of_arcs(
        np.array(source),
        rng.integers(1, pdfs + 1, count),
        rng.uniform(0.1, 2.0, count),
        np.array(target),
        rng.uniform(0.0, 1.0, states),
    )


def random_lattice(rng, frames, pdfs=3, width=2):
    """An acyclic FST sorted by time with several ends; several arcs may join the same states."""
    sizes = [1, *rng.integers(1, width + 1, frames).tolist()]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    arcs = []
    for t in range(frames):
        here, there = range(offsets[t], offsets[t + 1]), range(offsets[t + 1], offsets[t + 2])
        pairs = {(rng.choice(here), state) for state in there}
        pairs |= {(state, rng.choice(there)) for state in here}
        for a, b in pairs:
            arcs += [(a, b, label) for label in {1, int(rng.integers(1, pdfs + 1))}]
    source, target, label = np.array(arcs).T
    final = np.full(offsets[-1], np.inf)
    final[offsets[-2] :] = rng.uniform(0, 1, sizes[-1])
    return Fst.of_arcs(source, label, rng.uniform(0, 2, len(arcs)), target, final)


def random_supervision(rng, frames=3, pdfs=3, weight=1.0):
    """One sequence."""
    fst = random_lattice(rng, frames, pdfs)
    return Supervision(weight, 1, frames, pdfs, fst)


def paths(fst, frames):
    """All paths of so many arcs from state 0: (log-probability, pdfs), with the final weight."""
    source = fst.source()
    found = []

    def go(state, pdfs, log_prob):
        if len(pdfs) == frames:
            if not np.isinf(fst.final[state]):
                found.append((log_prob - float(fst.final[state]), pdfs))
            return
        for arc in np.flatnonzero(source == state):
            label = int(fst.ilabel[arc]) - 1
            go(fst.nextstate[arc], (*pdfs, label), log_prob - float(fst.weight[arc]))

    go(0, (), 0.0)
    return found


def brute_force(found, log_likes):
    """log of the sum over paths, and the posterior of each pdf at each frame."""
    scores = np.array([p + sum(log_likes[t, pdf] for t, pdf in enumerate(q)) for p, q in found])
    total = np.logaddexp.reduce(scores)
    posterior = np.zeros(log_likes.shape)
    for share, (_, pdfs) in zip(np.exp(scores - total), found, strict=True):
        posterior[np.arange(len(pdfs)), list(pdfs)] += share
    return total, posterior


def leaky_paths(graph, frames, leaky):
    """All paths of a denominator graph whose HMM leaks, as `paths` gives them."""
    arcs = list(zip(graph.source, graph.nextstate, graph.pdf, graph.prob, strict=True))
    leak = np.eye(graph.states) + leaky * graph.initial[None, :]
    found = []
    for chosen in itertools.product(arcs, repeat=frames):
        prob = graph.initial @ leak[:, chosen[0][0]]
        for before, after in itertools.pairwise(chosen):
            prob *= before[3] * leak[before[1], after[0]]
        prob *= chosen[-1][3] * leak[chosen[-1][1]].sum()
        if prob > 0:
            found.append((float(np.log(prob)), tuple(int(arc[2]) for arc in chosen)))
    return found


def language(fst, longest=8):
    """The best weight of each sequence of labels; label 0 is left out."""
    found = {}
    todo = [(fst.start, (), 0.0)] if fst.states else []
    while todo:
        state, labels, weight = todo.pop()
        if not np.isinf(fst.final[state]):
            whole = weight + float(fst.final[state])
            found[labels] = min(found.get(labels, np.inf), whole)
        for arc in range(fst.begin[state], fst.begin[state + 1]):
            label = int(fst.ilabel[arc])
            following = (*labels, label) if label else labels
            if len(following) <= longest:
                todo.append((int(fst.nextstate[arc]), following, weight + float(fst.weight[arc])))
    return found


def same(one, other, tolerance=1e-5):
    """Both languages have the same sequences, and these the same weights."""
    assert one.keys() == other.keys() and one
    for labels, weight in one.items():
        assert weight == pytest.approx(other[labels], abs=tolerance)
