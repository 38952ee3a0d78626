"""From transition-ids to phones in context; and the self-loops that are added in the end."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import relation, rows
from opscope.framework.base.errors import FormatError
from opscope.kaldi.fst.algorithms.compose import compose
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.graphs.h_transducer import h_transducer
from opscope.kaldi.graphs.hmms import PhoneHmms
from opscope.kaldi.graphs.self_loops import add_self_loops
from phone_models import Trained

WINDOWS = [(), (0,), (0, 1), (-9,), (1, 2), (2, 2), (2, 1)]
"""Of a tree that asks about the phone before, with the contexts 0 and 1; 2 is as 1."""


def hmms(**kind):
    trained = Trained(2, 2, **kind)
    return trained, PhoneHmms(trained.tree, trained.model)


def test_states_and_arcs():
    """HMMs without their self-loops; that of (2, 2) is that of (1, 2)."""
    trained, known = hmms()
    fst, symbols = h_transducer(WINDOWS, known, scale=2.0)
    assert symbols == [known.count, known.count + 1]
    first = [trained.alignment([1], [[1, 1]], True), trained.alignment([1, 2], [[1, 1]] * 2, True)]
    (a, b), (c, d) = first[0], first[1][2:]
    e, f = trained.alignment([2, 1], [[1, 1]] * 2, True)[2:]
    assert rows(fst) == [
        *[(0, 1, symbols[0], 1, 0), (0, 2, a, 2, 0), (0, 4, symbols[1], 3, 0)],
        *[(0, 5, c, 4, 0), (0, 5, c, 5, 0), (0, 7, e, 6, 0)],
        *[(1, 0, 0, 0, 0), (2, 3, b, 0, 0), (3, 0, 0, 0, 0), (4, 0, 0, 0, 0)],
        *[(5, 6, d, 0, 0), (6, 0, 0, 0, 0), (7, 8, f, 0, 0), (8, 0, 0, 0, 0)],
    ]
    assert np.flatnonzero(~np.isinf(fst.final)).tolist() == [0]


def test_skipping_states():
    """A start with two ways out is a state of its own."""
    _, known = hmms(skips=True)
    fst, _ = h_transducer([(), (0, 1)], known, scale=1.0)
    weights = sorted(relation(fst, steps=4).values())
    assert weights == pytest.approx([0, 0, 0], abs=1e-6)
    assert rows(fst)[0] == (0, 1, 0, 1, 0)


def test_nonterminals():
    _, known = hmms()
    fst, _ = h_transducer([(), (-9, 2), (-9, 6)], known, offset=6)
    assert fst.ilabel.tolist()[:2] == [10_009_002, 10_009_006]
    for window, offset in (((-9, 2), 0), ((-9, 7), 6), ((-3, 2), 6), ((-9, 2, 1), 6)):
        with pytest.raises(FormatError, match="a nonterminal and a phone up to"):
            h_transducer([(), window], known, offset=offset)


def test_windows_that_do_not_fit():
    _, known = hmms()
    with pytest.raises(FormatError):
        h_transducer([(), (1, 3)], known)


@pytest.mark.parametrize("reorder", [True, False])
def test_loops(reorder):
    """Paths with loops are alignments; what is no transition passes."""
    trained, known = hmms()
    h, symbols = h_transducer(WINDOWS, known)
    said = [WINDOWS.index(window) for window in ((0, 1), (-9,), (1, 2))]
    words = Fst.of_arcs(np.arange(3), said, np.zeros(3), np.arange(1, 4), [np.inf] * 3 + [0])
    graph = add_self_loops(compose(h, words), known, 1.0, symbols, reorder=reorder)
    found = {
        tuple(i for i in ids if i not in symbols): w for (ids, _), w in relation(graph).items()
    }
    for frames in ([[1, 1], [1, 1]], [[2, 1], [1, 3]]):
        ids = tuple(trained.alignment([1, 2], frames, reorder).tolist())
        assert found[ids] == pytest.approx(len(ids) * np.log(2), abs=1e-4)
    with pytest.raises(FormatError, match=f"label {symbols[1]} is no transition-id"):
        add_self_loops(compose(h, words), known, 1.0, symbols[:1], reorder=reorder)
    with pytest.raises(FormatError, match="already has self-loops"):
        add_self_loops(graph, known, 1.0, symbols, reorder=reorder)
