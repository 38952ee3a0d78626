"""Models made of models: two interpolated, and one without the n-grams that hardly matter.

Source: Stolcke, "Entropy-based pruning of backoff language models" (1998).
"""

from __future__ import annotations

import numpy as np

from .model import BEGIN, END, NO_PROBABILITY, NgramModel


def interpolated(first: NgramModel, second: NgramModel, weight: float) -> NgramModel:
    """The model of all n-grams of two, with `weight` times the first's probabilities and the rest
    of the second's; a word that one of them lacks has no probability there.

    Back-off weights make every context add up to 1 again.
    """
    vocabulary = list(dict.fromkeys([*first.vocabulary, *second.vocabulary]))
    models = first, second
    numbers_of = {word: number for number, word in enumerate(vocabulary)}
    number = [np.array([numbers_of[word] for word in m.vocabulary], np.int64) for m in models]
    rows = []
    for order in range(1, max(first.order, second.order) + 1):
        words = np.concatenate(
            [
                numbers[model.row_words(order)]
                for model, numbers in zip(models, number, strict=True)
                if order <= model.order
            ]
        )
        words = np.arange(len(vocabulary))[:, None] if order == 1 else np.unique(words, axis=0)
        parts = zip(models, number, (weight, 1 - weight), strict=True)
        probability = np.zeros(len(words))
        for model, numbers, share in parts:
            probability += share * _probability(model, numbers, words, len(vocabulary))
        log10 = np.log10(np.maximum(probability, 10.0**NO_PROBABILITY))
        rows.append((words, log10, np.zeros(len(words))))
    return NgramModel.of_rows(vocabulary, rows)[0].with_backoffs()


def _probability(
    model: NgramModel, numbers: np.ndarray, words: np.ndarray, vocabulary: int
) -> np.ndarray:
    """What a model gives to the last of each row of words, after those before it."""
    own = np.full(vocabulary, -1)
    own[numbers] = np.arange(len(numbers))
    words = own[words]
    history = words[:, :-1]
    contexts = [np.zeros(len(words), np.int64)]
    for length in range(1, min(words.shape[1], model.order)):
        row = np.zeros(len(words), np.int64)
        for j in range(length):
            row = model.orders[j].find(row, history[:, history.shape[1] - length + j])
        contexts.append(row)
    return 10.0 ** model.scored(contexts, words[:, -1])[0]


def pruned(model: NgramModel, threshold: float) -> NgramModel:
    """Without the n-grams whose loss changes the model's perplexity by less than `threshold`,
    relative to what it is: those that are no context of others.

    The probability of a history is the product of its words' probabilities; `<s>` is taken to have
    the probability of `</s>`, as in SRILM.
    """
    kept = [np.ones(len(ngrams), bool) for ngrams in model.orders]
    for order in range(model.order, 1, -1):
        ngrams = model.orders[order - 1]
        is_context = np.zeros(len(ngrams), bool)
        if order < model.order:
            longer = model.orders[order]
            is_context[longer.context[kept[order]]] = True
        kept[order - 1] = is_context | (_change(model, order) >= threshold)
    kept[0][:] = True
    rows = [
        (model.row_words(order)[kept[order - 1]], ngrams.log10[kept[order - 1]])
        for order, ngrams in enumerate(model.orders, 1)
    ]
    while len(rows) > 1 and not len(rows[-1][0]):
        rows.pop()
    made = [(words, log10, np.zeros(len(words))) for words, log10 in rows]
    return NgramModel.of_rows(model.vocabulary, made)[0].with_backoffs()


def _change(model: NgramModel, order: int) -> np.ndarray:
    """How much larger the perplexity is without each n-gram of an order, relatively; float64."""
    ngrams = model.orders[order - 1]
    history = _history(model, order - 1)[ngrams.context]
    left, left_shorter = (part[ngrams.context] for part in model.left_over(order))
    p = 10.0**ngrams.log10
    shorter = 10.0 ** model.shorter(order)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Natural logarithms of the back-off weight with the n-gram and without it.
        before = np.log(left) - np.log(left_shorter)
        after = np.log(left + p) - np.log(left_shorter + shorter)
        loss = p * (np.log(shorter) + after - np.log(p))
        loss += np.where(left > 0, left * (after - before), 0)
        change = np.exp(-history * loss) - 1
    return np.where(np.isfinite(change), change, np.inf)


def _history(model: NgramModel, order: int) -> np.ndarray:
    """The probability of each n-gram of an order as a history: of all its words."""
    unigrams = 10.0 ** model.orders[0].log10
    begin, end = model.numbers.get(BEGIN, -1), model.numbers.get(END, -1)
    if begin >= 0 and end >= 0:
        unigrams[begin] = unigrams[end]
    history = unigrams
    for ngrams in model.orders[1:order]:
        history = history[ngrams.context] * 10.0**ngrams.log10
    return history
