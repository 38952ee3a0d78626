"""Tokens drawn among the best, and the memory that holds what each token reads."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import NotFiniteError
from opscope.framework.base.machine import huge_pages
from opscope.python_api.generate import stepping
from opscope.python_api.generate.generation import Generator, _drawing, log_softmax

V = 40


def test_each_row_draws_among_its_own_best():
    scores = np.array([[0, 3, 3, -1, 1], [5, 0, 1, 2, 5], [-np.inf] * 4 + [2]], np.float32)
    for top_k, wanted in (1, [{1, 2}, {0, 4}, {4}]), (3, [{1, 2, 4}, {0, 3, 4}, {4}]):
        choose = _drawing(2.0, top_k, 1.0, 0)
        drawn = np.array([choose(scores) for _ in range(300)])
        assert [set(column.tolist()) for column in drawn.T] == wanted


def test_rows_draw_the_same_among_all_and_among_as_many():
    scores = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    for top_p in (1.0, 0.7):
        all_of_them, most = (_drawing(0.7, top_k, top_p, 3) for top_k in (0, 7))
        for _ in range(20):
            np.testing.assert_array_equal(all_of_them(scores), most(scores))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("top_k", [0, 1, 2, 4, 100])
@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_infinite_scores_are_drawn_alone(top_k, top_p):
    inf = np.inf
    scores = np.array([[0, 0, 0, inf, -inf], [0, 9e9, 0, 0, 0], [-inf, 1, inf, 3, inf]], np.float32)
    choose = _drawing(1.0, np.int64(top_k), top_p, 0)
    drawn = np.array([choose(scores) for _ in range(100)])
    assert [set(column.tolist()) for column in drawn.T] == [{3}, {1}, {2, 4} if top_p == 1 else {2}]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-3])
def test_a_tiny_temperature_draws_the_most_probable(temperature):
    for scores in (
        [[1, 3e38, 2]],
        [[-3e38, 3e38, 2.9e38]],
        [[-1.7e308, 1.7e308, 0]],
        [[1, 3, 2.0]],
    ):
        for top_k in (0, 2):
            choose = _drawing(temperature, top_k, 1.0, 0)
            assert {int(choose(np.array(scores))[0]) for _ in range(20)} == {1}


@pytest.mark.filterwarnings("error")
def test_infinite_scores_share_the_probability():
    scores = np.array([[0, np.inf, np.inf], [-np.inf, 1, 1]], np.float32)
    np.testing.assert_allclose(np.exp(log_softmax(scores)), [[0, 0.5, 0.5]] * 2)


def biased(bias):
    """A generator of tokens whose scores are those of a constant."""
    b = NetBuilder("net")
    b.fc(b.embedding(b.input("ids", [-1, -1], "int64"), [V, 4]), size=V, name="scores")
    scope = Scope()
    b.initialize(scope)
    scope.get("scores.b").set(np.asarray(bias, np.float32))
    return Generator(b, scope)


@pytest.mark.filterwarnings("error")
def test_all_ways_write_a_token_with_an_infinite_score():
    generator = biased([0] * 5 + [np.inf] + [0] * (V - 6))
    ways = [generator.greedy([[1, 2], [3]], 4)]
    ways += [generator.sample([[1, 2], [3]], 4, top_k=k, seed=0) for k in (0, 1, 2, V, 2 * V)]
    ways += [[best[0].tokens for best in generator.beam([[1, 2], [3]], 4, width=2)]]
    assert [[list(row) for row in way] for way in ways] == [[[5] * 4] * 2] * len(ways)


def test_scores_without_a_likely_token_are_refused():
    generator = biased([-np.inf] * V)
    for way in (generator.greedy, generator.sample, generator.beam):
        with pytest.raises(NotFiniteError, match="'scores' holds nothing but -inf in row 0"):
            way([[1, 2], [3]], 4)


@pytest.mark.parametrize("weights", ["", "q8"])
def test_weights_that_each_token_reads_are_gathered_once(monkeypatch, weights):
    b = NetBuilder("wide")
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 512])
    x = b.transformer_encoder(x, layers=1, heads=2, norm_first=True, causal=True)
    b.fc(x, size=V, name="scores")
    scope = Scope()
    b.initialize(scope)
    net = opscope.quantize_weights(b, scope, weights) if weights else b
    generator = Generator(net, None if weights else scope)
    own = generator.stepper.scope
    held = [own.get(name).inner for name in own.names()]
    asked = []
    monkeypatch.setattr(huge_pages, "gather", lambda spans: asked.append(dict(spans)))
    monkeypatch.setattr(stepping, "_MANY_BYTES", sum(array.nbytes for array in held) // 2)
    written = generator.greedy([[1, 2]], 4)
    np.testing.assert_array_equal(written, generator.greedy([[1, 2]], 4))
    (spans,) = asked
    assert sum(spans.values()) >= sum(array.nbytes for array in held)
    if weights:
        assert all(spans[array.ctypes.data] == array.nbytes for array in held)


def test_only_contiguous_weights_are_gathered(monkeypatch):
    b = NetBuilder("views")
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 8])
    b.fc(x, size=V, name="scores")
    scope = Scope()
    b.initialize(scope)
    generator = Generator(b, scope)
    own = generator.stepper.scope
    bias, table, turned = (own.find(name) for name in ("scores.b", "embedding_0.w", "scores.w"))
    table.share(table.inner[::-1])
    bias.share(np.broadcast_to(np.float32(0.5), bias.shape))
    turned.share(np.asfortranarray(turned.inner))
    asked = []
    monkeypatch.setattr(huge_pages, "gather", asked.extend)
    monkeypatch.setattr(stepping, "_MANY_BYTES", 0)
    generator.greedy([[1, 2]], 4)
    assert asked == [(turned.inner.ctypes.data, turned.inner.nbytes)]


def test_few_weights_stay_where_they_are(monkeypatch):
    b = NetBuilder("narrow")
    x = b.embedding(b.input("ids", [-1, -1], "int64"), [V, 8])
    b.fc(x, size=V, name="scores")
    scope = Scope()
    b.initialize(scope)
    asked = []
    monkeypatch.setattr(huge_pages, "gather", asked.append)
    assert len(Generator(b, scope).greedy([[1, 2]], 4)[0]) == 4
    assert not asked
