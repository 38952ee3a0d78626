"""Minimum Bayes risk decoding: the words with the least expected number of errors, how sure each
is, and when it was spoken.

Source: Xu, Povey, Mangu and Zhu, "Minimum Bayes Risk decoding and system combination based on a
recursion for edit distance", 2011; Kaldi's `lat/sausages.cc`, from which the treatment of ties and
the times are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...framework.base.untrusted.limits import check_limit
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import bind
from ...framework.fusion.compiled.libraries import Library
from ...kaldi.lattices.lattice import CompactLattice, renumbered, single, topological_order
from ...kaldi.lattices.operations import best_path, connected, state_times, with_one_end
from ...kaldi.lattices.unfold import check_lattice

_DELTA = single(1e-5)  # keeps words from vanishing after empty ones of the same cost
_MOST_ROUNDS = 100
_LEAST_DIFFERENCE = math.log(sys.float_info.epsilon)


class TimedWord(NamedTuple):
    """A word, its begin and end in frames of the lattice, and its probability."""

    label: int
    begin: float
    end: float
    confidence: float


@dataclass(frozen=True)
class BayesRisk:
    """What minimum Bayes risk decoding finds.

    Attributes:
        words: the best ones, in order; their times do not overlap.
        bins: at each place all words (0: none) with their posteriors and mean times, the likeliest
            first. Every other bin is one between two words.
        spans: begin and end of each bin, mean times of all its words; bins do not overlap.
        risk: how many errors the words have, as the lattice expects.
    """

    words: list[TimedWord]
    bins: list[list[TimedWord]]
    spans: list[tuple[float, float]]
    risk: float


def minimum_bayes_risk(
    lattice: CompactLattice,
    *,
    decode: bool = True,
    keep_silence: bool = False,
    words: Sequence[int] | None = None,
) -> BayesRisk:
    """Decode a word-aligned lattice whose costs are scaled already.

    Args:
        decode: look for the words of the least risk; else the best path's, with the same measures.
        keep_silence: keep the empty places between words.
        words: labels to begin with, in place of the best path's.

    Raises:
        ShapeError: the lattice is empty, has a loop, or has paths of different lengths.
        FormatError: it has so many states and words that it needs more than the limit `fill`.
    """
    check_lattice(lattice)
    return _Decoding(lattice, words).run(decode, keep_silence)


class _Decoding:
    """Edit distances of all paths to some words; states are numbered in topological order."""

    def __init__(self, lattice: CompactLattice, words: Sequence[int] | None) -> None:
        lattice = with_one_end(connected(lattice))
        check_lattice(lattice)
        lattice = renumbered(lattice, topological_order(lattice) or [])
        self._times, _ = state_times(lattice)
        # of each state, the arcs that lead to it: source, word, log-likelihood
        self._before: list[list[tuple[int, int, float]]] = [[] for _ in lattice.arcs]
        for state, group in enumerate(lattice.arcs):
            for label, weight, target in group:
                self._before[target].append((state, label, -single(weight.cost)))
        forward = [0.0] * lattice.states
        for state, group in enumerate(self._before):
            if group:
                forward[state] = _log_sum([forward[s] + p for s, _, p in group])
        # of each of these arcs, its part of the probability of the ways to the state
        self._shares = [
            [math.exp(forward[source] + log - forward[state]) for source, _, log in group]
            for state, group in enumerate(self._before)
        ]
        if words is None:
            path = best_path(lattice)
            words = [arc.label for group in path.arcs for arc in group]
        self._words = [word for word in words if word]

    def run(self, decode: bool, keep_silence: bool) -> BayesRisk:
        rounds = 0
        while True:
            places = [0] * (2 * len(self._words) + 1)
            places[1::2] = self._words
            bins, spans, risk = self._statistics(places)
            change = 0.0
            if decode:
                for q, words in enumerate(bins):
                    old = next((w.confidence for w in words if w.label == places[q]), 0.0)
                    change += old - words[0].confidence
                    places[q] = words[0].label
            self._words = [word for word in places if word]
            rounds += 1
            if change == 0 or rounds > _MOST_ROUNDS:
                break
        chosen: list[TimedWord] = []
        for label, words in zip(places, bins, strict=True):
            if label or keep_silence:
                # a word that no path has gets the times of the likeliest one
                other = words[0]._replace(label=label, confidence=0.0)
                chosen.append(next((w for w in words if w.label == label), other))
                _part(chosen)
        return BayesRisk(chosen, bins, spans, risk)

    def _statistics(
        self, places: list[int]
    ) -> tuple[list[list[TimedWord]], list[tuple[float, float]], float]:
        """Bins of words by place, begin and end of each, and the mean distance."""
        library = native.load("bayes_risk")
        masses, risk = self._in_c(library, places) if library else self._in_python(places)
        bins = [_bin(each) for each in masses]
        return bins, _spans(bins, masses), risk

    def _in_c(self, library: Library, places: list[int]) -> tuple[list[_Masses], float]:
        """What `_in_python` computes."""
        before = [arc for group in self._before for arc in group]
        labels = sorted({0, *places, *(word for _, word, _ in before)})
        numbers = {label: number for number, label in enumerate(labels)}
        states, width = len(self._before), len(places) + 1
        # distances and sums of states, a way of each arc, masses of words at places
        _check_size(16 * states * width + (len(before) + 24 * len(labels)) * len(places))
        masses = np.zeros((len(places), len(labels), 3))
        distance = np.zeros((states, width))
        bind(
            library,
            "place_masses",
            states=states,
            arcs=len(before),
            begin=np.cumsum([0, *map(len, self._before)]),
            source=np.array([source for source, *_ in before], np.int32),
            word=np.array([numbers[word] for _, word, _ in before], np.int32),
            share=np.array([share for group in self._shares for share in group], np.float64),
            time=np.array(self._times, np.float64),
            places=len(places),
            place=np.array([numbers[word] for word in places], np.int32),
            words=len(labels),
            delta=_DELTA,
            distance=distance,
            after=np.empty(width),
            ways=np.empty((len(before), len(places)), np.uint8),
            onward=np.zeros((states, width)),
            masses=masses,
        ).run()
        found: list[_Masses] = [{} for _ in places]
        rows, columns = np.nonzero(masses[:, :, 0])
        for row, column, sums in zip(
            rows.tolist(), columns.tolist(), masses[rows, columns].tolist(), strict=True
        ):
            found[row][labels[column]] = sums
        return found, float(distance[-1, -1])

    def _in_python(self, places: list[int]) -> tuple[list[_Masses], float]:
        """What stands at each place, and the mean distance."""
        _check_size(8 * len(self._before) * (len(places) + 1))
        last = len(self._before) - 1
        inserted = [0.0]
        for word in places:
            inserted.append(inserted[-1] + (1.0 if word else 0.0))
        distance = [inserted]
        every: list[list[bytearray]] = [[]]
        for state in range(1, last + 1):
            total = [0.0] * (len(places) + 1)
            every.append([])
            for (source, word, _), share in zip(
                self._before[state], self._shares[state], strict=True
            ):
                after, ways = _after(distance[source], word, places)
                total = [so_far + share * more for so_far, more in zip(total, after, strict=True)]
                every[-1].append(ways)
            distance.append(total)
        sums: list[_Masses] = [{} for _ in places]

        def count_in(q: int, word: int, mass: float, begin: int, end: int) -> None:
            entry = sums[q - 1].setdefault(word, [0.0, 0.0, 0.0])
            entry[0] += mass
            entry[1] += begin * mass
            entry[2] += end * mass

        # of each state the places that paths onward were aligned with, and the mass of these
        onward: list[dict[int, float]] = [{} for _ in self._before]
        onward[last][len(places)] = 1.0
        for state in range(last, 0, -1):
            end = self._times[state]
            held = onward[state]
            columns = (self._before[state], self._shares[state], every[state])
            for (source, word, _), share, ways in zip(*columns, strict=True):
                begin = self._times[source]
                before = onward[source]
                moved = {q: share * mass for q, mass in held.items()}
                while moved:
                    q = max(moved)
                    mass = moved.pop(q)
                    way = ways[q - 1] if q else _SKIP
                    if way == _INSERT:
                        count_in(q, 0, mass, end, end)
                        moved[q - 1] = moved.get(q - 1, 0.0) + mass
                        continue
                    if way == _MATCH:
                        count_in(q, word, mass, begin, end)
                    to = q - 1 if way == _MATCH else q
                    before[to] = before.get(to, 0.0) + mass
        mass = 0.0
        for q in range(len(places), 0, -1):
            mass += onward[0].get(q, 0.0)
            if mass:
                count_in(q, 0, mass, 0, 0)
        return sums, distance[last][-1]


def _check_size(count: int) -> None:
    check_limit("fill", count, "the edit distances of a lattice")


_Masses = dict[int, list[float]]
"""Of words (0: none) at a place their mass, and the sums of their begins and ends times it."""
_MATCH, _SKIP, _INSERT = 1, 2, 3


def _after(before: list[float], word: int, places: list[int]) -> tuple[list[float], bytearray]:
    """The distances after an arc, of each number of places, and how the last place was filled.

    Sums and comparisons are Kaldi's, in its order: where ways tie, rounding decides.
    """
    skip = 1.0 + _DELTA if word else 0.0
    distance = before[0] + skip
    distances = [distance]
    ways = bytearray(len(places))
    matched = before[0]
    for q, place in enumerate(places, 1):
        match = matched if word == place else matched + 1.0
        matched = before[q]
        skipped = matched + skip
        if place:
            distance += 1.0
        if match <= skipped:
            way, least = _MATCH, match
        else:
            way, least = _SKIP, skipped
        if least <= distance:
            distance = least
        else:
            way = _INSERT
        ways[q - 1] = way
        distances.append(distance)
    return distances, ways


def _bin(masses: _Masses) -> list[TimedWord]:
    """Words with their posteriors and mean times, the likeliest first, then the greatest label."""
    words: list[TimedWord] = []
    for label, (mass, begin, end) in masses.items():
        mass = single(mass)
        if mass > 0:
            words.append(TimedWord(label, single(begin / mass), single(end / mass), mass))
    return sorted(words, key=lambda word: (-word.confidence, -word.label)) or [
        TimedWord(0, 0.0, 0.0, 1.0)
    ]


def _spans(bins: list[list[TimedWord]], sums: list[_Masses]) -> list[tuple[float, float]]:
    """Begin and end of each bin; where one begins before another ends, both meet in the middle."""
    spans: list[tuple[float, float]] = []
    for words, masses in zip(bins, sums, strict=True):
        begin = end = 0.0
        for word in words:
            if word.label in masses:
                begin += masses[word.label][1]
                end += masses[word.label][2]
        begin, end = single(begin), single(end)
        if spans and spans[-1][1] > begin:
            begin = single(0.5 * single(spans[-1][1] + begin))
            spans[-1] = spans[-1][0], begin
        spans.append((begin, end))
    return spans


def _part(words: list[TimedWord]) -> None:
    """Where the last word begins before the one before it ends, share the time that both have."""
    if len(words) < 2 or words[-2].end <= words[-1].begin:
        return
    first, second = words[-2:]
    bound = words[-3].end if len(words) > 2 else 0.0
    left = max(bound, min(first.begin, second.begin))
    right = max(first.end, second.end)
    long, other = first.end - first.begin, second.end - second.begin
    middle = left + (right - left) * long / (long + other) if long > 0 else left
    words[-2:] = first._replace(begin=left, end=middle), second._replace(begin=middle, end=right)


def _log_sum(values: list[float]) -> float:
    """The logarithm of a sum of exponentials, one added after the other as Kaldi does it."""
    total = -math.inf
    for value in values:
        low = min(total, value)
        total = max(total, value)
        if low - total >= _LEAST_DIFFERENCE:
            total += math.log1p(math.exp(low - total))
    return total
