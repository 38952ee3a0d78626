"""What used to pass without a word: scores that are none, steps that two nets count."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from opscope import NetBuilder, Scope


@pytest.mark.parametrize(
    ("inner", "loss"),
    [
        ("softmax", "softmax_cross_entropy"),
        ("softmax", "cross_entropy_loss"),
        ("softmax", "softmax_focal_loss"),
        ("sigmoid", "sigmoid_cross_entropy"),
        ("sigmoid", "sigmoid_focal_loss"),
    ],
)
def test_a_loss_of_scores_that_are_probabilities(inner, loss):
    b = NetBuilder()
    kind = "int64" if inner == "softmax" else "float32"
    x = b.input("x", [-1, 4])
    label = b.input("t", [-1] if inner == "softmax" else [-1, 4], dtype=kind)
    made = getattr(b, inner)(x, name="made")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(b, loss)(x, label)
        b.log_softmax(x)
    told = (
        rf"of 'made', which {inner} has made: it takes scores \(logits\), and does {inner} itself"
    )
    with pytest.warns(UserWarning, match=told) as caught:
        getattr(b, loss)(made, label)
    assert len(caught) == 1 and caught[0].filename == __file__


def _net(name: str) -> NetBuilder:
    b = NetBuilder(name)
    x, w = b.input("x", [-1, 3]), b.parameter("w", [3, 1], "ones")
    b.backward_from(b.mean(b.matmul(x, w)))
    b.add_optimization(0.1, "adam")
    return b


def test_nets_that_share_count_the_steps_of_both():
    """As `initialize` says of `share`; and how they count apart."""
    feed = {"x": np.ones((2, 3), np.float32)}
    scope, one, two = Scope(), _net("one"), _net("two")
    one.initialize(scope)
    two.initialize(scope, share=True)
    for net, count in ((one, 2), (two, 3)):
        for _ in range(count):
            net.run(scope, feed=feed)
    assert scope.numpy("optimizer@STEP") == 5

    kid = scope.new_scope()
    for name in ("optimizer@STEP", "w@ADAM_MOMENT1", "w@ADAM_MOMENT2"):
        kid.var(name)
    three = _net("three")
    three.initialize(kid, share=True)
    before = scope.numpy("w").copy()
    three.run(kid, feed=feed)
    assert kid.numpy("optimizer@STEP") == 1 and scope.numpy("optimizer@STEP") == 5
    np.testing.assert_allclose(scope.numpy("w"), before - 0.1, rtol=1e-4)  # Adam's first step
