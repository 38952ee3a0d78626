"""Transition probabilities and priors from counts."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.nnet3.training.transitions import TransitionOptions, output_priors, train_transitions


def model(tuples=((1, 0, 0), (1, 1, 1), (2, 0, 0), (2, 1, 1))):
    states = [
        HmmState(0, 0, [(0, 0.5), (1, 0.5)]),
        HmmState(1, 1, [(1, 0.25), (0, 0.25), (2, 0.5)]),
        HmmState(),
    ]
    probs = [1.0] + [p for _, n, _ in tuples for _, p in states[n].transitions]
    return TransitionModel(
        *([1, 2], [-1, 0, 0], [states], "<Triples>"),
        *(np.array(tuples, np.int32), np.log(np.array(probs, np.float32))),
    )


COUNTS = np.array([0, 30, 10, 5, 0, 15, 1, 1, 100, 100, 0], np.float64)


def test_shares_with_a_floor():
    m, lines = model(), []
    gain, total = train_transitions(m, COUNTS, TransitionOptions(), lines.append)
    probs = np.exp(m.log_probs)
    np.testing.assert_allclose(probs[1:3], [0.75, 0.25], rtol=1e-6)
    np.testing.assert_allclose(probs[3:6], [0.2475, 0.01, 0.7426], atol=2e-4)
    np.testing.assert_allclose(probs[6:8], 0.5)  # two frames are too few
    assert total == COUNTS.sum() and gain > 0
    assert "2 probabilities floored, 1 out of 4 transition-states skipped" in lines[1]


def test_states_of_one_output_share():
    m = model()
    train_transitions(m, COUNTS, TransitionOptions(share_for_pdfs=True), lambda line: None)
    np.testing.assert_allclose(np.exp(m.log_probs[1:3]), np.array([31, 11]) / 42, rtol=1e-6)
    np.testing.assert_array_equal(m.log_probs[1:6], m.log_probs[6:11])
    unlike = model(((1, 0, 0), (1, 1, 0)))
    with pytest.raises(ShapeError, match="output 0"):
        options = TransitionOptions(share_for_pdfs=True)
        train_transitions(unlike, COUNTS[:6], options, lambda line: None)


def test_priors():
    priors = output_priors(model(), COUNTS, 0.25)
    np.testing.assert_allclose(priors, np.array([0.25, 220 / 262]) / (0.25 + 220 / 262))
    with pytest.raises(ShapeError, match="no alignments"):
        output_priors(model(), 0 * COUNTS, 0.1)


def test_a_topology_without_the_state():
    with pytest.raises(FormatError, match="no state 0 of phone 3"):
        model(((1, 0, 0), (3, 0, 1))).transitions()
