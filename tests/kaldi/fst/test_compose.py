"""Composition of transducers, against kaldifst and the relations that they stand for."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from fst_relations import random_transducer, relation
from opscope.kaldi.fst.algorithms.compose import compose, invert
from opscope.kaldi.fst.algorithms.symbols import sort_by
from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.programs.base.graphs import open_fst, save_fst


def pair(seed, loops):
    """Two FSTs of which some strings pass both."""
    rng = np.random.default_rng(seed)
    while True:
        first, second = (
            random_transducer(rng, states=5, arcs=10, labels=2, loops=loops) for _ in range(2)
        )
        if compose(first, second).states:
            return first, second


@pytest.mark.parametrize("seed", range(12))
def test_the_relation_is_that_of_both(seed):
    first, second = pair(seed, loops=False)
    wanted = defaultdict(lambda: np.inf)
    for (inputs, middle), weight in relation(first).items():
        for (entered, outputs), more in relation(second).items():
            if entered == middle:
                key = inputs, outputs
                wanted[key] = min(wanted[key], weight + more)
    for composed in (compose(first, second), invert(compose(invert(second), invert(first)))):
        assert relation(composed, steps=24) == pytest.approx(dict(wanted))


@pytest.mark.parametrize("connect", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_states_and_arcs_are_as_many_as_of_openfst(seed, connect, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    first, second = pair(seed, loops=True)
    theirs = []
    for fst, side in ((first, "olabel"), (second, "ilabel")):
        save_fst(sort_by(fst, side), str(tmp_path / "x.fst"))
        theirs.append(kaldifst.StdVectorFst.read(str(tmp_path / "x.fst")))
    kaldifst.compose(*theirs, connect=connect).write(str(tmp_path / "x.fst"))
    wanted = open_fst(str(tmp_path / "x.fst"))
    found = compose(first, second, connected=connect)
    assert (found.states, len(found.arcs)) == (wanted.states, len(wanted.arcs))

    def labels(fst):
        columns = fst.ilabel, fst.olabel, np.round(fst.weight, 4)
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    assert labels(found) == labels(wanted)
    assert sorted(found.final.tolist()) == sorted(wanted.final.tolist())


def test_nothing_in_common():
    one, two = (Fst.of_arcs([0], [label], [0], [1], [np.inf, 0]) for label in (1, 2))
    assert compose(one, two).start == compose(one, compose(one, two)).start == -1
