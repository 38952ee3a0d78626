"""Operations on acceptors with loops: against their paths and weights, and against OpenFst."""

from __future__ import annotations

import numpy as np
import pytest

from chain_graphs import random_hmm
from opscope.framework.base.errors import ShapeError
from opscope.kaldi.files.context_dependency import ContextDependency
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.fst.algorithms.acceptors import connect
from opscope.kaldi.fst.algorithms.epsilons import remove_epsilons
from opscope.kaldi.fst.algorithms.operations import relabel, renumber, reverse, sort_arcs
from opscope.kaldi.fst.algorithms.partition import minimize_unpushed, quantized
from opscope.kaldi.fst.algorithms.pushing import push_special
from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.chain.graphs.hmm_graph import in_context
from opscope.nnet3.programs.base.graphs import open_fst, save_fst

SEEDS = range(5)


def random_acceptor(rng, states=6, labels=3, arcs=14, epsilons=True):
    """Arcs between any states, some without labels; every state is on a path."""
    while True:
        label = rng.integers(0 if epsilons else 1, labels + 1, arcs)
        weight = rng.uniform(0.2, 2, arcs).astype(np.float32)
        source, target = rng.integers(0, states, (2, arcs))
        final = np.where(rng.random(states) < 0.4, rng.uniform(0, 1, states), np.inf)
        fst = connect(Fst.of_arcs(source, label, weight, target, final))
        if fst.states > 3 and len(fst.arcs) > 5:
            return fst


def best(fst, labels):
    """The best weight of a sequence of labels, by relaxation; infinity where it is not accepted."""
    source = fst.source()
    silent = fst.ilabel == 0

    def closed(weights):
        for _ in range(fst.states):
            through = weights[source[silent]] + fst.weight[silent]
            np.minimum.at(weights, fst.nextstate[silent], through)
        return weights

    weights = np.full(fst.states, np.inf)
    weights[fst.start] = 0
    weights = closed(weights)
    for label in labels:
        used = fst.ilabel == label
        following = np.full(fst.states, np.inf)
        through = weights[source[used]] + fst.weight[used]
        np.minimum.at(following, fst.nextstate[used], through)
        weights = closed(following)
    return float((weights + fst.final).min())


def same_weights(one, other, rng, *, backwards=False, tolerance=1e-5, labels=3):
    accepted = 0
    for _ in range(60):
        text = rng.integers(1, labels + 1, rng.integers(0, 6)).tolist()
        wanted = best(other, text)
        accepted += wanted < np.inf
        found = best(one, text[::-1] if backwards else text)
        assert found == pytest.approx(wanted, abs=tolerance * (len(text) + 1))
    assert accepted


@pytest.mark.parametrize("seed", SEEDS)
def test_paths_are_kept(seed):
    rng = np.random.default_rng(seed)
    fst = random_acceptor(rng)
    same_weights(remove_epsilons(fst), fst, rng)
    assert remove_epsilons(fst).ilabel.min() > 0
    same_weights(reverse(fst), fst, rng, backwards=True)
    same_weights(reverse(reverse(fst)), fst, rng)
    number = rng.permutation(fst.states)
    same_weights(renumber(fst, number), fst, rng)
    same_weights(sort_arcs(fst), fst, rng)
    assert np.all(np.diff(sort_arcs(fst).source() * 10 + sort_arcs(fst).ilabel) >= 0)
    pushed, reached = push_special(fst, 1e-6)
    same_weights(pushed, fst, rng)
    assert reached
    # equal quantities flow out of every state, the end being an arc to the start
    flow = np.bincount(pushed.source(), np.exp(-pushed.weight), pushed.states)
    np.testing.assert_allclose(
        flow + np.exp(-pushed.final), (flow + np.exp(-pushed.final))[0], 1e-4
    )
    same_weights(minimize_unpushed(fst, 1e-4), fst, rng, tolerance=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_of_states_are_merged(seed):
    rng = np.random.default_rng(seed)
    fst = minimize_unpushed(random_acceptor(rng, epsilons=False), 1 / 64)
    # twice each state; arcs lead to either copy
    copies = np.concatenate((fst.source(), fst.source() + fst.states))
    target = np.tile(fst.nextstate, 2) + fst.states * rng.integers(0, 2, 2 * len(fst.arcs))
    columns = np.tile(fst.ilabel, 2), np.tile(fst.weight, 2), target, np.tile(fst.final, 2)
    doubled = Fst.of_arcs(copies, *columns, start=fst.start)
    order = rng.permutation(doubled.states)
    found = minimize_unpushed(renumber(doubled, order), 1 / 64)
    assert (found.states, len(found.arcs)) == (fst.states, len(fst.arcs))
    same_weights(found, fst, rng)


def test_weights_that_are_nearly_the_same():
    assert quantized(np.float32([0.26, 0.24, -0.3, np.inf]), 0.25).tolist() == [
        0.25,
        0.25,
        -0.25,
        np.inf,
    ]
    fst = Fst.of_arcs([0, 0], [1, 2], [0, 0], [1, 2], [np.inf, 0.24, 0.26])
    assert minimize_unpushed(fst, 0.25).states == 2
    assert minimize_unpushed(fst, 0.01).states == 3
    nothing = connect(Fst.of_arcs([0], [1], [0], [1], [np.inf, np.inf]))
    assert minimize_unpushed(nothing, 0.1).states == 0 and push_special(nothing, 0.1) == (
        nothing,
        True,
    )


def test_labels_that_are_replaced():
    fst = relabel(Fst.of_arcs([0, 1], [1, 0], [0, 1], [1, 0], [0, 0], [5, 6]), np.array([0, 7]))
    assert fst.ilabel.tolist() == fst.olabel.tolist() == [7, 0]


@pytest.mark.parametrize(("scale", "reached"), [(0.25, True), (-4.0, False)])
def test_chains_are_pushed(scale, reached):
    weight = scale * np.float32([1, 2, 3, 4])
    chain = Fst.of_arcs([0, 1, 2], [1, 1, 1], weight[:3], [1, 2, 3], [np.inf] * 3 + [weight[3]])
    pushed, told = push_special(chain, 1e-5)
    assert told is reached  # where weights are large, 200 steps are too few
    found = [*pushed.weight.tolist(), float(pushed.final[3])]
    assert sum(found) == pytest.approx(float(weight.sum()), abs=1e-4)
    assert np.allclose(found, weight.mean(), atol=1e-4) is reached


def test_probabilities_beyond_all_numbers():
    fst = Fst.of_arcs([0, 0], [1, 2], [-900, 5], [0, 1], [0.5, 0])
    with pytest.raises(ShapeError, match="too far apart to be pushed"):
        push_special(fst, 0.1)


# OpenFst


@pytest.fixture
def through(tmp_path):
    """Calls a function with an FST of kaldifst, and gives what it returns or changes."""
    kaldifst = pytest.importorskip("kaldifst")

    def call(fst, change):
        path = str(tmp_path / "x.fst")
        save_fst(fst, path)
        theirs = kaldifst.StdVectorFst.read(path)
        made = change(kaldifst, theirs)
        (theirs if made is None else made).write(path)
        return open_fst(path)

    return call


def rows(fst):
    columns = fst.source(), fst.ilabel, fst.nextstate, np.round(fst.weight, 4)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_epsilons_are_removed_as_by_openfst(seed, through):
    fst = random_acceptor(np.random.default_rng(seed), states=8, arcs=20)
    found = remove_epsilons(fst)
    wanted = through(fst, lambda kaldifst, theirs: kaldifst.rmepsilon(theirs))
    assert (found.start, rows(found)) == (wanted.start, rows(wanted))
    np.testing.assert_allclose(found.final, wanted.final, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_reversed_as_by_openfst(seed, through):
    fst = random_acceptor(np.random.default_rng(seed))
    wanted = through(fst, lambda kaldifst, theirs: kaldifst.reverse(theirs))
    found = reverse(fst)
    assert (found.start, rows(found)) == (wanted.start, rows(wanted))
    np.testing.assert_array_equal(found.final, wanted.final)


@pytest.mark.parametrize("seed", SEEDS)
def test_minimized_as_by_openfst(seed, through):
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(30), 2)
    label = np.tile([1, 2], 30)
    columns = label, rng.integers(0, 2, 60) / 2, rng.integers(0, 30, 60), rng.integers(0, 2, 30)
    fst = connect(Fst.of_arcs(source, *columns))
    wanted = through(fst, lambda kaldifst, theirs: kaldifst.minimize_encoded(theirs, 1 / 16))
    found = minimize_unpushed(fst, 1 / 16)
    assert (found.states, len(found.arcs)) == (wanted.states, len(wanted.arcs))
    same_weights(found, wanted, rng, labels=2)


@pytest.mark.parametrize("window", [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (4, 2)])
def test_phones_in_context_as_by_kaldi(window, through):
    rng = np.random.default_rng(sum(window))
    lm = sort_arcs(random_hmm(rng))
    text = f"ContextDependency {window[0]} {window[1]} ToPdf CE 0\nEndContextDependency "
    tree = ContextDependency.read(Reader(text.encode(), name="tree", binary=False))
    found, windows = in_context(lm, tree, [1, 2, 3])
    labels = []

    def composed(kaldifst, theirs):
        made, info = kaldifst.compose_context([], *window, theirs, False)
        labels.extend(info)
        return made

    wanted = through(lm, composed)
    # the same windows in the same order, hence the same labels
    assert [list(one) for one in windows] == labels
    assert (found.states, len(found.arcs)) == (wanted.states, len(wanted.arcs))
    assert rows(found) == rows(wanted)
    np.testing.assert_array_equal(found.final, wanted.final)
