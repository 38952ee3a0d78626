"""Transducers of lexicons: from phones to words, with optional silence.

Source: Kaldi's `utils/lang/make_lexicon_fst.py`, `utils/lang/make_lexicon_fst_silprob.py`,
`utils/add_lex_disambig.pl`. States and arcs have the order that they have there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...framework.base.sequence import repeated
from ...kaldi.fst.fst import Fst


def disambiguation(pronunciations: Sequence[tuple[str | int, ...]]) -> list[int]:
    """The number of the symbol that each pronunciation must end in, so that none equals another or
    begins one; 0: it needs none."""
    count = Counter(pronunciations)
    begun = {each[:end] for each in count for end in range(1, len(each))}
    used: Counter[tuple[str | int, ...]] = Counter()
    numbers = []
    for each in pronunciations:
        needed = count[each] > 1 or each in begun
        used[each] += needed
        numbers.append(used[each] if needed else 0)
    return numbers


@dataclass
class LabeledEntries:
    """Pronunciations as labels.

    Attributes:
        word: int64, [entries]. phone: of all entries, one after the other, int64. length: how many
            of these each entry has, 1 or more, int64, [entries].
        cost: of each entry, float64: negated logarithm of its probability.
        silence: costs of silence and of none after a word, and of silence and none before it,
            float64, [4, entries]; None: the same for all.
    """

    word: np.ndarray
    phone: np.ndarray
    length: np.ndarray
    cost: np.ndarray
    silence: np.ndarray | None = None


@dataclass(frozen=True)
class Silence:
    """Silence between words.

    Attributes:
        phone: its label. disambiguation: the label of the symbol that tells it from other phones;
            0: there is none.
        probability: that it stands between two words.
        edges: see `Dictionary`; used where entries have silence costs of their own.
    """

    phone: int
    disambiguation: int
    probability: float
    edges: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Nonterminals:
    """Symbols that other graphs take the place of, each as the labels of its input and output.

    Attributes:
        begin, end: around a graph that takes such a place. others: the symbols themselves.
        contexts: input labels of phones that may stand before.
    """

    begin: tuple[int, int]
    end: tuple[int, int]
    others: list[tuple[int, int]]
    contexts: list[int]


def lexicon_fst(
    entries: LabeledEntries, silence: Silence, nonterminals: Nonterminals | None = None
) -> Fst:
    """L.fst: each word comes out where its first phone goes in.

    With a probability of silence of 0 there is none.
    """
    if entries.silence is not None and silence.edges is not None:
        return _with_own_silence(entries, entries.silence, silence, silence.edges, nonterminals)
    parts: list[tuple[ArrayLike, ...]] = []
    start = loop = quiet = 0
    states = 1
    if silence.probability:
        # A word leads to `loop`, or to `quiet` and from there through silence to `loop`.
        loop, quiet, states = 1, 2, 3
        costs = -math.log(1 - silence.probability), -math.log(silence.probability)
        parts.append((start, [loop, quiet], 0, 0, costs))
        if silence.disambiguation:
            parts.append((quiet, states, silence.phone, 0, 0.0))
            parts.append((states, loop, silence.disambiguation, 0, 0.0))
            states += 1
        else:
            parts.append((quiet, loop, silence.phone, 0, 0.0))
    entry = repeated(np.arange(len(entries.length)), entries.length)
    begin = np.cumsum(entries.length) - entries.length
    place = np.arange(len(entry)) - begin[entry]
    first, last = place == 0, place == entries.length[entry] - 1
    # An entry has a state between two of its phones each.
    after = states + np.arange(len(entry)) - entry
    source = np.where(first, loop, after - 1)
    word = np.where(first, entries.word[entry], 0)
    cost = np.where(first, entries.cost[entry], 0.0)
    if silence.probability:
        row = repeated(np.arange(len(entry)), 1 + last)
        into_silence = np.append(False, row[1:] == row[:-1])
        ending = np.where(into_silence, quiet, loop)
        more = np.where(into_silence, costs[1], costs[0]) + cost[row]
        target = np.where(last[row], ending, after[row])
        weight = np.where(last[row], more, cost[row])
        parts.append((source[row], target, entries.phone[row], word[row], weight))
    else:
        parts.append((source, np.where(last, loop, after), entries.phone, word, cost))
    final = {loop: 0.0}
    if nonterminals is not None:
        states += len(entry) - len(entries.length)
        back = np.full(len(nonterminals.contexts), loop)
        final |= _add_nonterminals(parts, nonterminals, start, [loop], back, states)
    return _fst(parts, final)


def _with_own_silence(
    entries: LabeledEntries,
    own: np.ndarray,
    silence: Silence,
    edges: tuple[float, float, float],
    nonterminals: Nonterminals | None,
) -> Fst:
    """The same, where each word has its own probabilities of silence around it.

    Two states remember whether silence was last.
    """
    start, loud, quiet, states = 0, 1, 2, 3
    begin, end_quiet, end_loud = edges
    marks = [silence.disambiguation, silence.phone]
    costs = [-math.log(1 - begin), -math.log(begin)]
    parts: list[tuple[ArrayLike, ...]] = [(start, [loud, quiet], marks, 0, costs)]
    # Arcs of an entry: two into its first phone, one for each other phone, two out of its end.
    length = entries.length
    entry = repeated(np.arange(len(length)), length + 3)
    step = np.arange(len(entry)) - (np.cumsum(length + 3) - (length + 3))[entry]
    ends = np.cumsum(length)
    inner = np.clip(step - 1, 0, length[entry] - 1)
    place = (ends - length)[entry] + inner  # of the phone, and of the state after it
    entering, leaving = step < 2, step - length[entry] - 1
    out = leaving >= 0
    state = states + place
    source = np.where(entering, np.where(step == 0, loud, quiet), np.where(out, state, state - 1))
    target = np.where(out, np.where(leaving == 0, loud, quiet), state)
    ilabel = np.where(out, np.take(marks, np.clip(leaving, 0, 1)), entries.phone[place])
    word = np.where(entering, entries.word[entry], 0)
    to_quiet, to_loud, from_quiet, from_loud = own[:, entry]
    weight = np.where(out, np.where(leaving == 0, to_loud, to_quiet), 0.0)
    into = entries.cost[entry] + np.where(step == 0, from_loud, from_quiet)
    parts.append((source, target, ilabel, word, np.where(entering, into, weight)))
    final = {quiet: -math.log(end_quiet), loud: -math.log(end_loud)}
    if nonterminals is not None:
        contexts = np.array(nonterminals.contexts)
        back = np.where(contexts == silence.phone, quiet, loud)
        states += len(entries.phone)
        final |= _add_nonterminals(parts, nonterminals, start, [quiet, loud], back, states)
    return _fst(parts, final)


def _add_nonterminals(
    parts: list[tuple[ArrayLike, ...]],
    nonterminals: Nonterminals,
    start: int,
    leaving: list[int],
    back: np.ndarray,
    states: int,
) -> dict[int, float]:
    """Arcs of nonterminals, and the state that they end in.

    Args:
        leaving: states that words leave. back: where each phone before leads to. states: how many
            there are before.
    """
    shared, end = states, states + 1
    parts.append((start, shared, *nonterminals.begin, 0.0))
    for labels in nonterminals.others:
        parts.append((leaving, shared, *labels, 0.0))
    cost = -math.log(1.0 / len(back))
    parts.append((shared, back, nonterminals.contexts, 0, cost))
    parts.append((leaving, end, *nonterminals.end, 0.0))
    return {end: 0.0}


def _fst(parts: list[tuple[ArrayLike, ...]], final: dict[int, float]) -> Fst:
    """Of columns source, target, input, output and weight, each an array or a number for all."""
    rows = [np.broadcast_arrays(*(np.atleast_1d(each) for each in part)) for part in parts]
    source, target, ilabel, olabel, weight = map(np.concatenate, zip(*rows, strict=True))
    ends = np.full(int(max(source.max(), target.max())) + 1, np.inf, np.float32)
    ends[list(final)] = list(final.values())
    return Fst.of_arcs(source, ilabel, weight, target, ends, olabel)
