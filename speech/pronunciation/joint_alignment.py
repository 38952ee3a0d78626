"""Letters of words aligned to their phones, by expectation maximization over all words at once.

Words are cut into pairs of a few letters and a few phones each. Source: Bisani and Ney,
"Joint-sequence models for grapheme-to-phoneme conversion" (2008); Jiampojamarn and others,
"Applying many-to-many alignments" (2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.sequence import bincount

_MOST_PHONES = 4  # of a letter
_ROUNDS = 8
_SAMPLE = 20_000  # words that probabilities are estimated on
_MOST_PAIRS = 1 << 25  # cells of a table of pairs

Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""Some letters and their phones, as numbers."""


def aligned(
    letters: Sequence[Sequence[int]], phones: Sequence[Sequence[int]]
) -> list[list[Pair] | None]:
    """Each word as a sequence of pairs; None: it has too many phones for its letters.

    Args:
        letters, phones: of each word, as numbers from 0 on.
    """
    lengths = np.array([(len(a), len(b)) for a, b in zip(letters, phones, strict=True)])
    ratio = float(np.quantile(lengths[:, 1] / lengths[:, 0], 0.99))
    most = int(np.clip(np.ceil(ratio), 2, _MOST_PHONES))
    shapes = [(1, 0), *((1, count) for count in range(1, most + 1)), (2, 1)]
    by_length: dict[tuple[int, int], list[int]] = {}
    for number, (a, b) in enumerate(lengths.tolist()):
        if b <= most * a:
            by_length.setdefault((a, b), []).append(number)
    chunks = _Chunks(shapes)
    groups = [
        _Group(
            np.array(numbers),
            chunks.coded(0, np.array([letters[i] for i in numbers])),
            chunks.coded(1, np.array([phones[i] for i in numbers])),
        )
        for numbers in by_length.values()
    ]
    sizes = {shape: (chunks.count(0, shape[0]), chunks.count(1, shape[1])) for shape in shapes}
    shapes = [shape for shape, size in sizes.items() if size[0] * size[1] <= _MOST_PAIRS]
    # One letter and one phone are the rule, from which the first round begins.
    tables = [np.full(sizes[shape], 1.0 if shape == (1, 1) else 0.1) for shape in shapes]
    sample = _sampled(groups)
    for _ in range(_ROUNDS):
        tables = _estimated(sample, shapes, tables)
    found: list[list[Pair] | None] = [None] * len(letters)
    for group in groups:
        for number, steps in zip(group.words.tolist(), _best(group, shapes, tables), strict=True):
            found[number] = _pairs(letters[number], phones[number], steps, shapes)
    return found


@dataclass
class _Group:
    """Words with as many letters and phones.

    Attributes:
        words: their numbers. letters, phones: for each size of chunks the numbers of those that
            begin at each place, [words, places].
    """

    words: np.ndarray
    letters: dict[int, np.ndarray]
    phones: dict[int, np.ndarray]

    def scores(
        self, shapes: list[tuple[int, int]], tables: list[np.ndarray]
    ) -> list[np.ndarray | None]:
        """Of each shape the probability of every pair, [letters, phones, words]."""
        made: list[np.ndarray | None] = []
        for (a, b), table in zip(shapes, tables, strict=True):
            fits = a in self.letters and b in self.phones
            made.append(table[self.letters[a].T[:, None], self.phones[b].T[None]] if fits else None)
        return made


class _Chunks:
    """Numbers of chunks of letters, and of phones, of each size; each size counts from 0 on."""

    def __init__(self, shapes: list[tuple[int, int]]) -> None:
        self._sizes = [sorted({shape[side] for shape in shapes}) for side in (0, 1)]
        self._known: list[dict[int, dict[int, int]]] = [
            {size: {} for size in sizes} for sizes in self._sizes
        ]

    def coded(self, side: int, values: np.ndarray) -> dict[int, np.ndarray]:
        """Of each size, the numbers of the chunks of words, [words, places]."""
        made = {}
        for size in self._sizes[side]:
            places = values.shape[1] - size + 1
            if places <= 0:
                continue
            code = np.zeros((len(values), places), np.int64)
            for step in range(size):
                code = code << 15 | (values[:, step : step + places] + 1)
            found, inverse = np.unique(code, return_inverse=True)
            known = self._known[side][size]
            numbers = [known.setdefault(each, len(known)) for each in found.tolist()]
            made[size] = np.array(numbers, np.int64)[inverse].reshape(code.shape)
        return made

    def count(self, side: int, size: int) -> int:
        """How many chunks of a size there are."""
        return len(self._known[side][size])


def _sampled(groups: list[_Group]) -> list[_Group]:
    """Every so many words of each group."""
    step = -(-sum(len(group.words) for group in groups) // _SAMPLE)
    return [
        _Group(
            group.words[::step],
            {size: each[::step] for size, each in group.letters.items()},
            {size: each[::step] for size, each in group.phones.items()},
        )
        for group in groups
    ]


def _estimated(
    groups: list[_Group], shapes: list[tuple[int, int]], tables: list[np.ndarray]
) -> list[np.ndarray]:
    """The probabilities of pairs by how often they are expected to stand in words.

    Args:
        tables: the probabilities so far, of each shape a table [letters, phones].
    """
    counts = [np.zeros(table.size) for table in tables]
    for group in groups:
        scores = group.scores(shapes, tables)
        before, after = _sums(shapes, scores, len(group.words))
        whole = before[-1, -1]
        for shape, score, table, count in zip(shapes, scores, tables, counts, strict=True):
            if score is None:
                continue
            a, b = shape
            rows, columns = score.shape[:2]
            expected = before[:rows, :columns] * score * after[a:, b:]
            expected /= np.where(whole > 0, whole, np.inf)
            at = group.letters[a].T[:, None] * table.shape[1] + group.phones[b].T[None]
            count += bincount(at.ravel(), expected.ravel(), len(count))
    total = sum(float(count.sum()) for count in counts)
    return [
        (count / total).reshape(table.shape) for count, table in zip(counts, tables, strict=True)
    ]


def _sums(
    shapes: list[tuple[int, int]], scores: list[np.ndarray | None], words: int
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of all ways from the beginning to each place, and from it to the end."""
    letters, phones = _lengths(shapes, scores)
    before = np.zeros((letters + 1, phones + 1, words))
    after = np.zeros_like(before)
    before[0, 0] = after[-1, -1] = 1
    known = [(*each, one) for each, one in zip(shapes, scores, strict=True) if one is not None]
    for i in range(letters + 1):
        for j in range(phones + 1):
            for a, b, score in known:
                if i >= a and j >= b:
                    before[i, j] += before[i - a, j - b] * score[i - a, j - b]
    for i in range(letters, -1, -1):
        for j in range(phones, -1, -1):
            for a, b, score in known:
                if i + a <= letters and j + b <= phones:
                    after[i, j] += score[i, j] * after[i + a, j + b]
    return before, after


def _lengths(shapes: list[tuple[int, int]], scores: list[np.ndarray | None]) -> tuple[int, int]:
    """How many letters and phones the words of a group have."""
    first = scores[shapes.index((1, 0))]
    assert first is not None
    return first.shape[0], first.shape[1] - 1


def _best(
    group: _Group, shapes: list[tuple[int, int]], tables: list[np.ndarray]
) -> list[list[int]]:
    """The shapes of the best pairs of each word, first to last; empty: there is no way."""
    scores = group.scores(shapes, tables)
    letters, phones = _lengths(shapes, scores)
    best = np.zeros((letters + 1, phones + 1, len(group.words)))
    best[0, 0] = 1
    by = np.full(best.shape, -1, np.int8)
    for i in range(letters + 1):
        for j in range(phones + 1):
            for number, ((a, b), score) in enumerate(zip(shapes, scores, strict=True)):
                if score is None or i < a or j < b:
                    continue
                value = best[i - a, j - b] * score[i - a, j - b]
                better = value > best[i, j]
                best[i, j][better] = value[better]
                by[i, j][better] = number
    found = []
    for way in np.moveaxis(by, 2, 0).tolist():
        steps: list[int] = []
        i, j = letters, phones
        while (i or j) and way[i][j] >= 0:
            steps.append(way[i][j])
            i, j = i - shapes[steps[-1]][0], j - shapes[steps[-1]][1]
        found.append(steps[::-1])
    return found


def _pairs(
    letters: Sequence[int], phones: Sequence[int], steps: list[int], shapes: list[tuple[int, int]]
) -> list[Pair] | None:
    pairs: list[Pair] = []
    i = j = 0
    for step in steps:
        a, b = shapes[step]
        pairs.append((tuple(letters[i : i + a]), tuple(phones[j : j + b])))
        i, j = i + a, j + b
    return pairs or None
