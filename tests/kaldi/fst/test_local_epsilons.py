"""Local removal of epsilons: the relation stays, and sums of states where they can."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import assert_same_relation, random_transducer, relation, rows
from opscope.kaldi.fst.algorithms.local_epsilons import remove_epsilons_locally
from opscope.kaldi.fst.fst import Fst


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_the_relation_stays_and_arcs_become_fewer(seed, log):
    fst = random_transducer(np.random.default_rng(seed), states=8, arcs=14, labels=1)
    found = remove_epsilons_locally(fst, log=log)
    assert_same_relation(found, fst, log=log)
    assert found.states <= fst.states
    ends = np.isfinite(found.final).sum() - np.isfinite(fst.final).sum()
    assert len(found.arcs) + ends <= len(fst.arcs)


@pytest.mark.parametrize("seed", range(6))
def test_loops(seed):
    rng = np.random.default_rng(seed)
    fst = random_transducer(rng, states=5, arcs=9, labels=1, loops=True)
    found = remove_epsilons_locally(fst)
    assert len(found.arcs) + found.states <= len(fst.arcs) + fst.states
    # each pair of labels that a short path of either has, a longer one of the other has
    for short, long in ((found, fst), (fst, found)):
        known = relation(long, steps=9)
        for key, weight in relation(short, steps=4).items():
            assert known[key] <= weight + 1e-4


def sums(fst):
    """The logarithm of the sum of the probabilities of each state."""
    flow = np.bincount(fst.source(), np.exp(-fst.weight), fst.states) + np.exp(-fst.final)
    return np.log(flow)


def test_documented_examples():
    chain = Fst.of_arcs([0, 1], [1, 0], [0, 0], [1, 2], [np.inf, np.inf, 0], [0, 2])
    assert rows(remove_epsilons_locally(chain)) == [(0, 1, 1, 2, 0.0)]
    two = Fst.of_arcs([0], [0], [0], [1], [0, 0])
    assert remove_epsilons_locally(two).final.tolist() == [0]
    summed = remove_epsilons_locally(two, log=True)
    assert summed.final[0] == pytest.approx(-np.log(2))


@pytest.mark.parametrize("in_log", [True, False])
def test_sums_of_states_stay(in_log):
    """0 -1:0-> 1, from where 1 goes on in two ways, one of which can be joined."""
    half = float(np.log(2))
    weights = [half, half, half]
    fst = Fst.of_arcs([0, 1, 1], [1, 0, 1], weights, [1, 2, 2], [half, np.inf, 0], [0, 2, 2])
    found = remove_epsilons_locally(fst, sums_in_log=in_log)
    assert_same_relation(found, fst)
    np.testing.assert_allclose(sums(found), 0 if in_log else [np.log(1.25), -half, 0], atol=1e-6)
