"""Models mixed and pruned, beside the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from language_models import log10, sentences
from opscope.speech.language_model.changes import interpolated, pruned
from opscope.speech.language_model.counting import text_of
from opscope.speech.language_model.model import NgramModel
from opscope.speech.language_model.smoothing import METHODS

CONTEXTS = [(), ("a",), ("<s>",), ("<s>", "a"), ("a", "b"), ("b", "a"), ("w7", "a")]


def made(seed: int, order: int, extra: str = "a") -> NgramModel:
    lines = [*sentences(12, seed), f"a b {extra}"]
    return METHODS["witten-bell"](text_of(lines, "text"), order)


def total(model: NgramModel, context: tuple[str, ...]) -> float:
    words = set(model.vocabulary) - {"<s>"}
    return sum(10 ** log10(model, word, context) for word in words)


def test_mixed() -> None:
    first, second = made(1, 3, "mine"), made(2, 2, "theirs")
    mixed = interpolated(first, second, 0.3)
    assert set(mixed.vocabulary) == {*first.vocabulary, *second.vocabulary} and mixed.order == 3
    for context in CONTEXTS:
        assert total(mixed, context) == pytest.approx(1, abs=1e-9)
    for order in (1, 2, 3):
        for row in mixed.row_words(order).tolist():
            *context, word = (mixed.vocabulary[number] for number in row)
            wanted = sum(
                share * 10 ** log10(model, word, tuple(context))
                for model, share in ((first, 0.3), (second, 0.7))
                if word in model.numbers
            )
            if word != "<s>":
                assert 10 ** log10(mixed, word, tuple(context)) == pytest.approx(wanted)


def without(model: NgramModel, order: int, row: int) -> NgramModel:
    rows = [
        (model.row_words(n), ngrams.log10, ngrams.backoff)
        for n, ngrams in enumerate(model.orders, 1)
    ]
    rows[order - 1] = tuple(np.delete(column, row, 0) for column in rows[order - 1])
    return NgramModel.of_rows(model.vocabulary, rows)[0].with_backoffs()


def growth(model: NgramModel, order: int, row: int) -> float:
    """The perplexity without an n-gram, relative to that with it, by the relative entropy."""
    *history, _ = (model.vocabulary[number] for number in model.row_words(order)[row])
    other = without(model, order, row)
    weight = 1.0
    for place, word in enumerate(history):
        # `<s>` counts as `</s>`, which has a probability.
        word = "</s>" if place == 0 and word == "<s>" else word
        weight *= 10 ** log10(model, word, tuple(history[:place]))
    entropy = 0.0
    for word in set(model.vocabulary) - {"<s>"}:
        old, new = (log10(m, word, tuple(history)) for m in (model, other))
        entropy += 10**old * (old - new) * math.log(10)
    return math.exp(weight * entropy) - 1


@pytest.mark.parametrize("order", [2, 3])
def test_pruned(order: int) -> None:
    model = made(1, order)
    changes = [growth(model, order, row) for row in range(len(model.orders[-1]))]
    threshold = sorted(changes)[len(changes) // 2] * 1.0001
    small = pruned(model, threshold)
    found = {tuple(row) for row in small.row_words(order).tolist()}
    rows = model.row_words(order).tolist()
    assert found == {tuple(r) for r, c in zip(rows, changes, strict=True) if c >= threshold}
    assert 0 < len(found) < len(rows)
    for context in CONTEXTS:
        assert total(small, context[len(context) - order + 1 :]) == pytest.approx(1, abs=1e-9)
    assert pruned(model, 1e9).order == 1
