"""Tokens drawn among the best, and the memory that holds what each token reads."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.machine import huge_pages
from opscope.python_api.generate import stepping
from opscope.python_api.generate.generation import Generator, _drawing

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
