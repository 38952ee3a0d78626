"""Look-ahead FSTs made of transducers: what can come next, as intervals of new labels."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import assert_same_relation, random_transducer, relation
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.fst.algorithms import label_reachability
from opscope.kaldi.fst.algorithms.compose import compose
from opscope.kaldi.fst.algorithms.label_reachability import make_look_ahead, relabel_by
from opscope.kaldi.fst.algorithms.symbols import SIDES
from opscope.kaldi.fst.files.fst_io import read_fst, write_fst
from opscope.kaldi.fst.fst import Fst
from speech_graphs import reachability


@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_intervals_are_what_can_come_next(
    seed: int, of_input: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(label_reachability, "_MANY", 1)  # arrays of intervals, not lists
    fst = random_transducer(np.random.default_rng(seed), states=8, arcs=16, labels=6, loops=True)
    made, pairs = make_look_ahead(fst, of_input=of_input)
    side = SIDES[not of_input]
    used = set(fst.arcs[side].tolist()) - {0}
    pairs = pairs[np.isin(pairs[:, 0], list(used))]
    old, new = pairs.T
    assert set(old.tolist()) == used
    assert len(set(new.tolist())) == len(new) and new.min() > 0
    found = made.header.reachability
    assert found is not None and found.of_input is of_input
    assert found.final_label not in new
    wanted = reachability(made.with_columns(olabel=made.arcs[side]), found.final_label)
    np.testing.assert_array_equal(found.begin, wanted.begin)
    np.testing.assert_array_equal(found.intervals, wanted.intervals)
    assert_same_relation(relabel_by(made, pairs[:, ::-1], side), fst)

    writer = Writer(True, header=False)
    write_fst(made, writer, made.header.kind)
    again = read_fst(Reader(writer.getvalue(), binary=False))
    np.testing.assert_array_equal(again.arcs, made.arcs)
    known = again.header.reachability
    assert known is not None and again.header.properties == made.header.properties
    np.testing.assert_array_equal(known.intervals, found.intervals)


def test_labels_that_one_state_leads_to_follow_each_other() -> None:
    """A tree of words in which every state has one interval, though labels are in disorder."""
    rows = [(0, 1, 0), (0, 2, 0), (1, 3, 4), (1, 3, 9), (2, 3, 2), (2, 3, 7), (2, 3, 1)]
    source, target, olabel = np.array(rows).T
    zero = np.zeros(len(rows))
    tree = Fst.of_arcs(source, zero, zero, target, [np.inf] * 3 + [0], olabel)
    made, _ = make_look_ahead(tree)
    known = made.header.reachability
    assert known is not None
    assert np.diff(known.begin).tolist() == [1, 1, 1, 1]
    assert known.intervals.tolist() == [[1, 6], [1, 3], [3, 6], [6, 7]]


def test_the_other_fst_is_relabeled() -> None:
    """Labels that the look-ahead FST lacks, 4 to 6, meet none of its new ones."""
    labels = np.arange(1, 7)
    one = np.zeros(6, int)
    second = Fst.of_arcs(one, labels, labels / 4, one, [0.5], labels)
    first = random_transducer(np.random.default_rng(3), labels=3)
    made, pairs = make_look_ahead(first)
    relabeled = relabel_by(second, pairs, "ilabel")
    assert set(relabeled.ilabel[3:].tolist()).isdisjoint(made.olabel.tolist())
    wanted = relation(compose(first, second))
    assert relation(compose(made, relabeled)) == pytest.approx(wanted) and wanted
