"""N-grams of a text, counted: arrays by order, all positions at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from .model import BEGIN, END, UNKNOWN

RESERVED = BEGIN, END


@dataclass
class Text:
    """Sentences as numbers of words, each after a `<s>` and with a `</s>` at its end.

    Attributes:
        vocabulary: the words, with `<s>`, `</s>` and `<unk>` first. words: all sentences one after
            the other, int64. sentences: how many there are.
    """

    vocabulary: list[str]
    words: np.ndarray
    sentences: int


def text_of(lines: Iterable[str], name: str, vocabulary: Iterable[str] | None = None) -> Text:
    """The sentences of a text, one a line; empty lines are none.

    Args:
        name: of the text, for errors.
        vocabulary: the words that are known, others become `<unk>`; None: all words of the text.

    Raises:
        FormatError: a line has `<s>` or `</s>`, or there is no sentence.
    """
    numbers = {word: number for number, word in enumerate((*RESERVED, UNKNOWN))}
    for word in vocabulary or ():
        numbers.setdefault(word, len(numbers))
    words: list[int] = []
    sentences = 0
    for place, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        for mark in RESERVED:
            if mark in fields:
                raise FormatError(f"{name}: line {place}: {mark} is put there by itself")
        words.append(0)
        if vocabulary is None:
            words.extend([numbers.setdefault(word, len(numbers)) for word in fields])
        else:
            words.extend([numbers.get(word, 2) for word in fields])
        words.append(1)
        sentences += 1
    if not sentences:
        raise FormatError(f"{name}: there is no sentence in it")
    return Text(list(numbers), np.array(words, np.int64), sentences)


@dataclass
class Counts:
    """How often each n-gram of one order stands in a text; sorted by context and word.

    Attributes:
        context: rows of the order before, int64; 0 for order 1. word, count: int64.
        tail: rows of the order before, of the n-gram without its first word; 0 for order 1.
    """

    context: np.ndarray
    word: np.ndarray
    count: np.ndarray
    tail: np.ndarray


def counted(text: Text, order: int) -> list[Counts]:
    """The n-grams of every order up to `order`; of order 1 all words, counted or not."""
    words = text.words
    total = len(text.vocabulary)
    begins = words == 0
    every = np.arange(total)
    zeros = np.zeros(total, np.int64)
    counts = [Counts(zeros, every, bincount(words, minlength=total), zeros)]
    # row[i]: the n-gram of the order before that ends at position i; -1: it leaves its sentence.
    row = words.copy()
    for _ in range(1, order):
        inside = np.flatnonzero((row[:-1] >= 0) & ~begins[1:]) + 1
        key = row[inside - 1] * total + words[inside]
        found, first, inverse, count = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        counts.append(Counts(found // total, found % total, count, row[inside[first]]))
        row = np.full(len(words), -1)
        row[inside] = inverse
    return counts
