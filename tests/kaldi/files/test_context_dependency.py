"""Decision trees, and the transition models that are made of them."""

import numpy as np
import pytest

from damage import check_damaged
from kaldi_data import need
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.context_dependency import (
    ContextDependency,
    Leaf,
    Split,
    Table,
    answers,
    new_transition_model,
)
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.tables.streams import open_reader

TREE = Split(
    0,
    frozenset({1, 2}),
    Table(1, (None, Leaf(3), Split(-1, frozenset({0}), Leaf(4), Leaf(5)))),
    Leaf(6),
)


def test_answers():
    assert answers(TREE, {0: 1, 1: 1}) == {3}
    assert answers(TREE, {0: 1, 1: 2, -1: 1}) == {5}
    assert answers(TREE, {0: 2}) == {3, 4, 5}
    assert answers(TREE, {1: 0}) == {6}
    assert answers(TREE, {0: 1, 1: 7}) == set()


def test_pairs_that_occur_together():
    """Forward and self-loop outputs both depend on the phone before."""
    left = (
        Split(0, frozenset({1}), Leaf(10), Leaf(11)),
        Split(0, frozenset({1}), Leaf(20), Leaf(21)),
    )
    tree = ContextDependency(2, 1, Table(-1, left))
    assert tree.pairs([1, 2], {1: 2}, 0, 1) == {(10, 20), (11, 21)}
    assert tree.pairs([1, 2], {1: 2}, 0, -1) == {(10, -1), (11, -1)}


def test_text():
    text = b"ContextDependency 2 1 ToPdf TE -1 2 ( CE 5 SE 0 [ 1 3 ]\n{ CE 6 NULL } ) "
    text += b"EndContextDependency "
    with pytest.raises(FormatError, match="two subtrees"):
        ContextDependency.read(Reader(text, name="tree", binary=False))
    read = ContextDependency.read(Reader(text.replace(b"NULL", b"CE 7"), name="tree", binary=False))
    assert read.outputs({0: 3}, 1) == {6} and read.outputs({}, 1) == {6, 7}


@pytest.mark.parametrize(("folder", "model"), [("formats", "final.mdl"), ("chain", "0.trans_mdl")])
def test_kaldi_makes_the_same(folder, model):
    tree = ContextDependency.read(open_reader(str(need(folder, "tree"))))
    made = new_transition_model(tree, open_reader(str(need(folder, "topo"))))
    theirs = TransitionModel.read_from(open_reader(str(need(folder, model))))
    assert (made.phones, made.entry_of, made.opening) == (
        theirs.phones,
        theirs.entry_of,
        theirs.opening,
    )
    np.testing.assert_array_equal(made.tuples, theirs.tuples)
    assert made.log_probs.shape == theirs.log_probs.shape
    if folder == "chain":  # the other one was trained since
        np.testing.assert_allclose(made.log_probs, theirs.log_probs, rtol=1e-6)


def test_damage():
    data = b"\0BContextDependency " + b"".join(
        (b"\4\1\0\0\0\4\0\0\0\0ToPdf TE ", b"\4\0\0\0\0\xfc\2\0\0\0( NULL ")
    )
    data += b"SE \4\0\0\0\0\4\1\0\0\0\1\0\0\0{ CE \4\0\0\0\0CE \4\1\0\0\0} ) "
    data += b"EndContextDependency "

    def read(data):
        reader = Reader(data, name="tree")
        return ContextDependency.read(reader)

    check_damaged(data, read, whole=False)
