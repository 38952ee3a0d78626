"""Pronunciations of new words, guessed from a lexicon by n-grams of letters with phones.

Source: Bisani and Ney, "Joint-sequence models for grapheme-to-phoneme conversion" (2008).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import shown
from ..language_model.counting import Text
from ..language_model.model import BEGIN, END, UNKNOWN, NgramModel
from ..language_model.smoothing import kneser_ney, witten_bell
from .joint_alignment import Pair, aligned

ORDER = 6
_BEAM = 40
_MOST_WORDS = 150_000  # that are learnt from: more take longer and hardly help
_MARKS = BEGIN, END, UNKNOWN
_NO_WORDS = tuple("<[{(!#")
"""What names of noises and symbols begin with: they are not spelled as they sound."""


class Guess(NamedTuple):
    """A pronunciation of a word.

    Attributes:
        phones: one or more. probability: among all that the search has found.
    """

    phones: tuple[str, ...]
    probability: float


@dataclass
class _Ways:
    """Beginnings of a word's pronunciation that have read as many letters.

    Attributes:
        log10: of their probabilities. contexts: what the language model takes as contexts.
        pairs: the pairs that each consists of.
    """

    log10: np.ndarray
    contexts: list[np.ndarray]
    pairs: list[tuple[int, ...]]

    def best(self) -> _Ways:
        """The most likely ones."""
        kept = np.argsort(-self.log10, kind="stable")[:_BEAM]
        pairs = [self.pairs[i] for i in kept.tolist()]
        return _Ways(self.log10[kept], [each[kept] for each in self.contexts], pairs)


class Guesser:
    """Guesses pronunciations; see `trained`."""

    def __init__(
        self, model: NgramModel, pairs: Sequence[Pair], letters: dict[str, int], phones: list[str]
    ) -> None:
        self._model = model
        self._pairs = pairs
        self._letters = letters
        self._phones = phones
        by_letters: dict[tuple[int, ...], list[int]] = {}
        for number, (chunk, _) in enumerate(pairs):
            by_letters.setdefault(chunk, []).append(number)
        self._by_letters = {chunk: np.array(found) for chunk, found in by_letters.items()}

    @classmethod
    def trained(cls, lexicon: Iterable[tuple[str, Sequence[str]]], order: int = ORDER) -> Guesser:
        """A guesser that has learnt from words and their phones.

        Letters are compared without case; Hangul and letters with accents are decomposed. Words
        that begin as names of noises do (`<unk>`, `[laughter]`, `!SIL`) are left out. Of more than
        150,000 pronunciations, every second or third one is taken, and so on.

        Args:
            order: how many pairs of letters and phones the longest n-grams have.

        Raises:
            FormatError: no word of the lexicon can be aligned to its phones.
        """
        letters: dict[str, int] = {}
        phones: dict[str, int] = {}
        rows = [
            (
                [letters.setdefault(each, len(letters)) for each in _spelled(word)],
                [phones.setdefault(each, len(phones)) for each in pronunciation],
            )
            for word, pronunciation in lexicon
            if not word.startswith(_NO_WORDS) and pronunciation
        ]
        rows = rows[:: max(-(-len(rows) // _MOST_WORDS), 1)]
        words = [each for each in aligned(*zip(*rows, strict=True)) if each] if rows else []
        if not words:
            raise FormatError("no word of the lexicon can be aligned to its phones")
        pairs: dict[Pair, int] = {}
        numbers: list[int] = []
        for word in words:
            numbered = [len(_MARKS) + pairs.setdefault(pair, len(pairs)) for pair in word]
            numbers += [0, *numbered, 1]
        vocabulary = [*_MARKS, *map(str, range(len(pairs)))]
        text = Text(vocabulary, np.array(numbers, np.int64), len(words))
        try:
            model = kneser_ney(text, order)
        except FormatError:  # too few words for its discounts
            model = witten_bell(text, order)
        return cls(model, list(pairs), letters, list(phones))

    def guess(self, word: str, count: int = 1) -> list[Guess]:
        """The most likely pronunciations of a word, the best first.

        Marks that the lexicon never had are passed over.

        Raises:
            FormatError: the lexicon never had one of its letters, or there is nothing to say.
        """
        letters = self._read(word)
        ways: list[list[_Ways]] = [[] for _ in range(len(letters) + 1)]
        nothing = [np.full(1, -int(place > 0)) for place in range(self._model.order)]
        begin = np.zeros(1, np.int64)
        ways[0].append(_Ways(np.zeros(1), self._after(nothing, begin), [()]))
        for place in range(len(letters)):
            if not ways[place]:
                continue
            here = _joined(ways[place]).best()
            for size in (1, 2):
                pairs = self._by_letters.get(tuple(letters[place : place + size]))
                if pairs is not None and place + size <= len(letters):
                    ways[place + size].append(self._longer(here, pairs))
        if not ways[-1]:
            raise FormatError(f"no pronunciation of the word {shown(word)} can be guessed")
        end = _joined(ways[-1]).best()
        ones = np.ones(len(end.pairs), np.int64)
        log10 = end.log10 + self._model.scored(end.contexts, ones)[0]
        shares = 10.0 ** (log10 - log10.max())
        found: dict[tuple[str, ...], float] = {}
        for pairs, share in zip(end.pairs, shares.tolist(), strict=True):
            phones = tuple(self._phones[each] for pair in pairs for each in self._pairs[pair][1])
            if phones:
                found[phones] = found.get(phones, 0.0) + share
        if not found:
            raise FormatError(f"all letters of the word {shown(word)} are silent")
        total = sum(found.values())
        best = sorted(found.items(), key=lambda each: -each[1])[:count]
        return [Guess(phones, share / total) for phones, share in best]

    def _read(self, word: str) -> list[int]:
        numbers = []
        for letter in _spelled(word):
            if letter in self._letters:
                numbers.append(self._letters[letter])
            elif letter.isalnum():
                raise FormatError(
                    f"the word {shown(word)}: no word of the lexicon has the letter {shown(letter)}"
                )
        if not numbers:
            raise FormatError(f"the word {shown(word)} has no letters")
        return numbers

    def _longer(self, ways: _Ways, pairs: np.ndarray) -> _Ways:
        """All ways with one more of some pairs each."""
        rows = np.repeat(np.arange(len(ways.pairs)), len(pairs))
        added = np.tile(pairs, len(ways.pairs))
        contexts = [each[rows] for each in ways.contexts]
        log10 = ways.log10[rows] + self._model.scored(contexts, added + len(_MARKS))[0]
        best = np.argsort(-log10, kind="stable")[:_BEAM]
        steps = zip(rows[best].tolist(), added[best].tolist(), strict=True)
        after = self._after([each[best] for each in contexts], added[best] + len(_MARKS))
        return _Ways(log10[best], after, [(*ways.pairs[row], pair) for row, pair in steps])

    def _after(self, contexts: list[np.ndarray], words: np.ndarray) -> list[np.ndarray]:
        """The contexts that stand after one more word of the language model."""
        shorter = zip(self._model.orders[:-1], contexts[:-1], strict=True)
        return [np.zeros(len(words), np.int64), *(each.find(row, words) for each, row in shorter)]


def _joined(parts: list[_Ways]) -> _Ways:
    columns = zip(*(part.contexts for part in parts), strict=True)
    return _Ways(
        np.concatenate([part.log10 for part in parts]),
        [np.concatenate(column) for column in columns],
        [pairs for part in parts for pairs in part.pairs],
    )


def _spelled(word: str) -> str:
    return unicodedata.normalize("NFD", word.casefold())
