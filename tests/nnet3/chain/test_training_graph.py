"""Graphs of what was said: their paths are the alignments of all pronunciations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fst_relations import relation
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.phone_segments import PhoneSplitter
from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.chain.graphs.training_graph import TrainingGraphCompiler, linear
from phone_models import Trained

SILENCE, SYMBOL = 3, 4
SAID = {1: {(1,): 0.5, (2, 1): 1.0}, 2: {(2,): 0.25}}
"""The pronunciations of each word with their costs."""


def lexicon(symbol=0):
    """State 1 is between words; silence, which costs 2, may be there at the beginning alone."""
    arcs = [(0, 0, 0, 0.0, 1), (0, SILENCE, 0, 2.0, 1)]
    states = 2
    for word, ways in SAID.items():
        for phones, cost in ways.items():
            phones = (*phones, symbol) if symbol else phones
            inner = range(states, states + len(phones) - 1)
            states += len(inner)
            steps = itertools.pairwise([1, *inner, 1])
            for at, ((one, other), phone) in enumerate(zip(steps, phones, strict=True)):
                arcs.append((one, phone, 0 if at else word, 0.0 if at else cost, other))
    source, ilabel, olabel, weight, target = zip(*arcs, strict=True)
    final = np.full(states, np.inf)
    final[1] = 0
    return Fst.of_arcs(np.array(source), ilabel, weight, target, final, olabel)


def sayings(words):
    """The phones of all ways to say words, with their costs."""
    for begin, more in (([], 0.0), ([SILENCE], 2.0)):
        for ways in itertools.product(*(SAID[word].items() for word in words)):
            yield begin + [p for way, _ in ways for p in way], more + sum(cost for _, cost in ways)


@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize("symbol", [0, SYMBOL])
@pytest.mark.parametrize("kind", [(3, 1), (3, 4), (3, 4, False, True)])
def test_paths_are_alignments(kind, symbol, reorder):
    trained = Trained(*kind)
    words = [1, 2]
    compiler = TrainingGraphCompiler(
        trained.tree,
        trained.model,
        lexicon(symbol),
        [symbol] if symbol else [],
        transition_scale=1.0,
        self_loop_scale=1.0,
        reorder=reorder,
        remove_epsilons=True,
    )
    found = relation(compiler.compile(linear(words)), steps=12)
    assert {outputs for _, outputs in found} == {(1, 2)}
    ways = [(phones, cost) for phones, cost in sayings(words)]
    splitter = PhoneSplitter(trained.model)
    for ids, _ in found:
        split = splitter.split(np.array(ids))
        assert split.whole and split.phones.tolist() in [phones for phones, _ in ways]
    for phones, cost in ways:
        for frames in ([[1, 1]] * len(phones), [[1, 2], *[[1, 1]] * (len(phones) - 1)]):
            ids = tuple(trained.alignment(phones, frames, reorder).tolist())
            if len(ids) <= 8:  # every transition has the probability 1/2
                assert found[ids, (1, 2)] == pytest.approx(cost + len(ids) * np.log(2), abs=2e-3)


def test_grammars():
    """Of alternatives each is there with its cost; the scales of transitions are 0 by default."""
    trained = Trained(3, 1)
    compiler = TrainingGraphCompiler(trained.tree, trained.model, lexicon(SYMBOL), [SYMBOL])
    grammar = Fst.of_arcs(
        np.array([0, 0, 1, 0]), [2, 0, 1, 1], [1.0, 0.5, 0.0, 4.0], [2, 1, 2, 2],
        [np.inf, np.inf, 0.125],
    )  # fmt: skip
    found = relation(compiler.compile(grammar), steps=12)

    def weight(phones, word):
        return found[tuple(trained.alignment(phones, [[1, 1]] * len(phones), True)), (word,)]

    assert weight([2], 2) == pytest.approx(1.0 + 0.125 + 0.25, abs=2e-3)
    # word 1 directly or through the arc without a word: probabilities add up
    both = -np.logaddexp(-0.5, -4.0)
    assert weight([1], 1) == pytest.approx(both + 0.125 + 0.5, abs=2e-3)
    assert weight([SILENCE, 2, 1], 1) == pytest.approx(both + 0.125 + 3.0, abs=2e-3)
    assert compiler.compile(linear([9])).states == 0


def test_mistakes():
    trained = Trained(3, 1)
    for symbols, told in (([], "the label 4, which is neither"), ([3, 4], "3 is also a phone")):
        with pytest.raises(FormatError, match=told):
            TrainingGraphCompiler(trained.tree, trained.model, lexicon(SYMBOL), symbols)
    same = Fst.of_arcs(np.array([0, 0]), [1, 1], [0.0, 0.0], [1, 1], [np.inf, 0], [1, 2])
    compiler = TrainingGraphCompiler(trained.tree, trained.model, same)
    either = Fst.of_arcs(np.array([0, 0]), [1, 2], [0.0, 0.0], [1, 1], [np.inf, 0])
    with pytest.raises(ShapeError):
        compiler.compile(either)
