"""Recurrent language models: the embedding of words of their features, histories, mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.nnet3 import Nnet
from opscope.speech.language_model.rnnlm import Rnnlm, RnnlmAutomaton, RnnlmOptions, word_embedding

GOLDEN = Path(__file__).parents[2] / "golden" / "rescoring"
SYMBOLS = RnnlmOptions(bos_symbol=1, eos_symbol=2)
EMBEDDING = np.random.default_rng(1).normal(size=(9, 6)).astype(np.float32)


def test_embeddings_of_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 7)) * (rng.random((40, 7)) < 0.4)
    dense[0] = 0
    lines = [
        " ".join([str(label), *(f"{at} {row[at]:.6g}" for at in np.flatnonzero(row))])
        for label, row in enumerate(dense)
    ]
    path = tmp_path / "word_feats.txt"
    path.write_text("\n".join(lines) + "\n")
    features = rng.normal(size=(7, 5)).astype(np.float32)
    np.testing.assert_allclose(word_embedding(str(path), features), dense @ features, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there are no words"),
        ("0\n2 1 1\n", "line 2: the label 1 were expected, not '2 1 1'"),
        ("0\n1 7 1\n", "line 2: features from 0 to 6"),
        ("0\n1 2 1 1 1\n", "line 2: features in ascending order"),
        ("0\n1 2\n", "line 2: a label, and pairs"),
        ("0\n1 2 x\n", "line 2: a label, and pairs"),
    ],
)
def test_damaged_features(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "word_feats.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=told):
        word_embedding(str(path), np.ones((7, 5), np.float32))


def test_normalized_probabilities_add_up_to_one() -> None:
    options = RnnlmOptions(normalize_probs=True, bos_symbol=1, eos_symbol=2)
    automaton = RnnlmAutomaton(Rnnlm(Nnet.read(GOLDEN / "rnn.raw"), EMBEDDING, options), 3)
    state, _ = automaton.arc(automaton.start, 5)
    costs = [automaton.arc(state, word)[1] for word in range(1, len(EMBEDDING))]
    assert np.exp(-np.array(costs)).sum() == pytest.approx(1, abs=1e-5)
    assert automaton.final(state) == costs[1]


def test_histories_of_an_order_are_told_apart() -> None:
    model = Rnnlm(Nnet.read(GOLDEN / "rnn.raw"), EMBEDDING, SYMBOLS)

    def after(order: int, *words: int) -> int:
        state = automaton[order].start
        for word in words:
            state, _ = automaton[order].arc(state, word)
        return state

    automaton = {order: RnnlmAutomaton(model, order) for order in (0, 2, 3)}
    assert after(3, 5, 6, 7) == after(3, 4, 6, 7) != after(3, 6, 5, 7)
    assert after(2, 5, 6, 7) == after(2, 6, 5, 7) != after(2, 5, 6)
    assert after(0, 5, 6, 7) != after(0, 4, 6, 7)
    # A state goes on from the words that came to it first, until all are forgotten.
    first = automaton[2].final(after(2, 5, 6, 7))
    automaton[2].clear()
    assert automaton[2].final(after(2, 6, 5, 7)) != first
    automaton[2].clear()
    assert automaton[2].final(after(2, 5, 6, 7)) == first


def test_parts_that_do_not_go_together() -> None:
    nnet = Nnet.read(GOLDEN / "rnn.raw")
    with pytest.raises(ShapeError, match="5 columns for a network from 6 to 6"):
        Rnnlm(nnet, EMBEDDING[:, :5], SYMBOLS)
    with pytest.raises(FormatError, match="--bos-symbol=-1 is none of the labels of the 9 words"):
        Rnnlm(nnet, EMBEDDING, RnnlmOptions())
    automaton = RnnlmAutomaton(Rnnlm(nnet, EMBEDDING, SYMBOLS), 3)
    with pytest.raises(FormatError, match="the word 9 is none of the 9"):
        automaton.arc(automaton.start, 9)
