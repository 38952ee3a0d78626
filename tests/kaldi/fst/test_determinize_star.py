"""Determinization with removal of epsilons, against kaldifst and the relations of FSTs."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import assert_same_relation, random_transducer, rows, through
from opscope.framework.base.errors import ShapeError
from opscope.kaldi.fst.algorithms.determinize_star import determinize_star
from opscope.kaldi.fst.algorithms.symbols import sort_by
from opscope.kaldi.fst.fst import Fst


def determinizable(seed):
    """A random FST and its deterministic form; those that are not functional are left out."""
    rng = np.random.default_rng(seed)
    while True:
        fst = sort_by(random_transducer(rng, labels=4, arcs=10), "ilabel")
        try:
            return fst, determinize_star(fst), determinize_star(fst, log=True)
        except ShapeError as error:
            assert "not functional" in str(error)


@pytest.mark.parametrize("seed", range(20))
def test_arc_for_arc_as_kaldi(seed, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    fst, found, _ = determinizable(seed)
    wanted = through(tmp_path, kaldifst, fst, kaldifst.determinize_star)
    assert (found.start, rows(found)) == (wanted.start, rows(wanted))
    np.testing.assert_allclose(found.final, wanted.final, atol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_the_relation_stays(seed):
    fst, found, summed = determinizable(seed)
    assert_same_relation(found, fst)
    # of loops without labels there are none, so that all sums have few terms
    assert_same_relation(summed, fst, log=True)
    keys = summed.source() * 1000 + summed.ilabel
    assert len(np.unique(keys)) == len(keys)


def test_loops_without_labels():
    loop = Fst.of_arcs([0, 0], [0, 1], [0.5, 0], [0, 1], [np.inf, 1], [0, 7])
    assert rows(determinize_star(loop)) == [(0, 1, 1, 7, 0.0)]
    # 1 + p + p^2 + ... = 1 / (1 - p)
    wanted = np.log1p(-np.exp(-0.5))
    assert determinize_star(loop, 1e-6, log=True).weight[0] == pytest.approx(wanted, abs=1e-4)


def test_each_path_is_added_once():
    """Two states that a label leads to, with an epsilon between them and one after them."""
    fst = Fst.of_arcs(
        [0, 0, 1, 2], [1, 1, 0, 0], [0] * 4, [1, 2, 2, 3], [*[np.inf] * 3, 0], [0] * 4
    )
    found = determinize_star(fst, log=True)
    assert float(found.weight[0] + found.final[1]) == pytest.approx(-np.log(2))


def test_words_that_are_spelled_alike():
    """Two words of one spelling: refused, and taken with disambiguation symbols after them."""
    alike = Fst.of_arcs([0, 0], [1, 1], [0, 0], [1, 1], [np.inf, 0], [5, 6])
    with pytest.raises(ShapeError, match="after the input labels 1 both the output labels 5 and"):
        determinize_star(alike)
    apart = Fst.of_arcs(
        [0, 1, 0, 3], [1, 8, 1, 9], [0.5, 0, 0.25, 0], [1, 2, 3, 2], [np.inf, np.inf, 0, np.inf],
        [5, 0, 6, 0],
    )  # fmt: skip
    assert rows(determinize_star(apart)) == [
        (0, 1, 1, 0, 0.25),
        (1, 2, 8, 5, 0.25),
        (1, 2, 9, 6, 0.0),
    ]


# a x* or b x*, where an x costs 1 or 0: weights move ever further apart
ENDLESS = Fst.of_arcs(
    [0, 0, 1, 2], [1, 1, 2, 2], [0, 0, 1, 0], [1, 2, 1, 2], [np.inf, 0, 0], [0, 0, 0, 0]
)


@pytest.mark.parametrize(
    ("fst", "part"),
    [
        (Fst.of_arcs([0], [0], [0], [0], [0], [1]), "not functional: after no input label"),
        (Fst.of_arcs([0], [0], [-1], [0], [0], [0]), "loop whose weights have no sum"),
        (
            Fst.of_arcs([0, 0], [0, 0], [0, 0], [1, 1], [np.inf, 0], [1, 2]),
            "both the output labels 1 and the output labels 2",
        ),
        (ENDLESS, "more than 50 states, the limit"),
    ],
)
def test_mistakes(fst, part):
    with pytest.raises(ShapeError, match=part):
        determinize_star(fst, most_states=50)


def test_words_without_end_that_are_spelled_alike():
    alike = Fst.of_arcs([0, 0], [1, 1], [0, 0], [1, 2], [0, 0, 0], [5, 6])
    two = Fst.of_arcs([0, 0, 1, 2], [1, 1, 2, 2], [0] * 4, [1, 2, 1, 2], [np.inf, 0, np.inf],
                      [5, 6, 5, 6])  # fmt: skip
    with pytest.raises(ShapeError, match="not functional"):
        determinize_star(alike)
    with pytest.raises(ShapeError, match=r"labels \.\.\. 2 2 .* still open which .* than 2000"):
        determinize_star(two)


def test_nothing():
    empty = Fst.of_arcs([], [], [], [], [], start=-1)
    assert determinize_star(empty).start == -1
