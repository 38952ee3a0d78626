"""Decoding graphs of CTC models: T o L o G, or T o G where tokens are the words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ...framework.base.untrusted.values import shown
from ...kaldi.fst.algorithms.compose import compose
from ...kaldi.fst.algorithms.symbols import changed, remove_symbols
from ...kaldi.fst.fst import Fst
from ..fst.graph import StaticGraph
from ..fst.words import Words
from ..graph_making.steps import lexicon_and_grammar
from ..lexicon.entries import Entry
from ..lexicon.lexicon_fst import LabeledEntries, Silence, disambiguation, lexicon_fst
from .tokens import CtcTokens
from .topology import BEGIN, END, INTERNAL, SINGLETON, CtcTopology

BACKOFF = 1
"""The label of `#0`, which arcs to shorter histories have; words follow it."""
_RESERVED = ("<eps>", "#0")
_NO_SILENCE = Silence(0, 0, 0.0)


@dataclass(frozen=True)
class CtcLexicon:
    """Words, and the phones, which are tokens at places in words, that they are written with.

    Attributes:
        words: by label. topology: of the phones. entries: as labels, with symbols that tell
            pronunciations apart; None: each token is a word. symbols: the labels of these symbols,
            the one of `#0` first. spellings: what the entries were made of.
    """

    words: Words
    topology: CtcTopology
    entries: LabeledEntries | None = None
    symbols: Sequence[int] = ()
    spellings: Sequence[Entry] = ()

    @classmethod
    def of_tokens(cls, tokens: CtcTokens) -> CtcLexicon:
        """The lexicon whose words are the tokens."""
        spoken = tokens.spoken
        texts = [*_RESERVED, *(tokens.texts[at] for at in spoken)]  # labels are phones
        topology = CtcTopology.of(tokens.blank, [(at, SINGLETON) for at in spoken])
        return cls(Words.of(dict(enumerate(texts)), tokens.name), topology)

    @classmethod
    def of_entries(cls, tokens: CtcTokens, given: Sequence[Entry]) -> CtcLexicon:
        """The lexicon of words with tokens; words without any are spelled with the tokens.

        Raises:
            FormatError: a unit is no token, or a word cannot be spelled. With file and line.
        """
        spelled = [each for entry in given for each in _spelled(tokens, entry)]
        pairs: dict[tuple[int, int], int] = {}
        phones = []
        for entry in spelled:
            last = len(entry.phones) - 1
            row = []
            for place, text in enumerate(entry.phones):
                token = tokens.find(text)
                if token is None or token == tokens.blank:
                    known = [tokens.texts[at] for at in tokens.spoken]
                    why = f"no token{nearest(text, known)}" if token is None else "the blank"
                    raise FormatError(
                        f"{entry.place}: the unit {shown(text)} of the word {shown(entry.word)} is"
                        f" {why}; see {tokens.name}"
                    )
                if not last:
                    kind = SINGLETON
                else:
                    kind = BEGIN if not place else END if place == last else INTERNAL
                row.append(pairs.setdefault((token, kind), len(pairs) + 2))
            phones.append(tuple(row))
        first = len(pairs) + 2  # after the phones, of which 1 is the blank
        numbers = disambiguation(phones)
        rows = [
            (*row, first + number) if number else row
            for row, number in zip(phones, numbers, strict=True)
        ]
        labels: dict[str, int] = {}
        for entry in spelled:
            labels.setdefault(entry.word, len(labels) + len(_RESERVED))
        texts = [*_RESERVED, *labels]
        entries = LabeledEntries(
            np.array([labels[entry.word] for entry in spelled], np.int64),
            np.array([phone for row in rows for phone in row], np.int64),
            np.array([len(row) for row in rows], np.int64),
            -np.log(np.array([entry.probability for entry in spelled])),
        )
        symbols = range(first, first + max(numbers, default=0) + 1)
        topology = CtcTopology.of(tokens.blank, list(pairs))
        words = Words.of(dict(enumerate(texts)), "lexicon")
        return cls(words, topology, entries, symbols, list(given))

    def any_word(self) -> Fst:
        """The grammar in which each word may follow each other, at no cost."""
        labels = np.arange(len(_RESERVED), len(self.words))
        nothing = np.zeros(len(labels), np.int64)
        return Fst.of_arcs(nothing, labels, np.zeros(len(labels)), nothing, np.zeros(1))

    def graph(self, grammar: Fst) -> StaticGraph:
        """The decoding graph of a grammar, whose labels are words.

        Raises:
            FormatError: pronunciations cannot be told apart, the graph goes beyond the limit
                `graph`, or no sentence of the grammar has a path.
        """
        if self.entries is None:
            inner = remove_symbols(grammar, [BACKOFF])
        else:
            lexicon = lexicon_fst(self.entries, _NO_SILENCE)
            lexicon = _with_loop(lexicon, self.symbols[0])
            inner = remove_symbols(lexicon_and_grammar(lexicon, grammar), self.symbols)
        inner = remove_symbols(inner, [BACKOFF], "olabel")
        graph = compose(self.topology.transducer(), inner)
        if not graph.states:
            raise FormatError("no sentence of the grammar has a path: the graph is empty")
        return StaticGraph.of(graph)


@dataclass(frozen=True)
class CtcSearch:
    """What words are searched with.

    Attributes:
        lexicon: whose words and phones the labels are. graph: for decoding.
    """

    lexicon: CtcLexicon
    graph: StaticGraph


def scaled(grammar: Fst, scale: float, word_cost: float) -> Fst:
    """A grammar with its costs times `scale`, and `word_cost` more for each word."""
    spoken = (grammar.olabel != 0).astype(np.float32)
    weight = grammar.weight * np.float32(scale) + np.float32(word_cost) * spoken
    return replace(changed(grammar, weight=weight), final=grammar.final * np.float32(scale))


def with_words(grammar: Fst, labels: Sequence[int], cost: float | None) -> Fst:
    """A grammar with further words where no word before counts.

    Args:
        labels: of the words. cost: of each; None: the median of those that are there.
    """
    source = grammar.source()
    silent = grammar.ilabel == BACKOFF
    # The state of no history: shorter ones lead there, and it leads to no shorter one.
    longer = np.unique(source[silent])
    place = np.setdiff1d(grammar.nextstate[silent], longer)
    state = int(place[0]) if len(place) else grammar.start
    if cost is None:
        there = grammar.weight[(source == state) & ~silent]
        cost = float(np.median(there)) if len(there) else 0.0
    count = len(labels)
    return _with_arcs(grammar, state, np.array(labels), np.array(labels), np.full(count, cost))


def _with_loop(lexicon: Fst, symbol: int) -> Fst:
    """With the symbol of `#0` between words."""
    return _with_arcs(lexicon, lexicon.start, np.array([symbol]), np.array([BACKOFF]), np.zeros(1))


def _with_arcs(
    fst: Fst, state: int, ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray
) -> Fst:
    """With loops at a state."""
    here = np.full(len(ilabel), state)
    return Fst.of_arcs(
        np.append(fst.source(), here),
        np.append(fst.ilabel, ilabel),
        np.append(fst.weight, weight),
        np.append(fst.nextstate, here),
        fst.final,
        np.append(fst.olabel, olabel),
        fst.start,
    )


def spells(tokens: CtcTokens, word: str) -> bool:
    """Whether tokens spell a word, in its own, upper or lower case."""
    return _spelling(tokens, word) is not None


def _spelling(tokens: CtcTokens, word: str) -> Sequence[str] | None:
    found = (tokens.spelled(each) for each in dict.fromkeys((word, word.upper(), word.lower())))
    return next((phones for phones in found if phones is not None), None)


def _spelled(tokens: CtcTokens, entry: Entry) -> list[Entry]:
    """A word with its tokens: those given, or those that its letters make."""
    if entry.phones:
        return [entry]
    phones = _spelling(tokens, entry.word)
    if phones is not None:
        # The token between words may be missing, after the last word.
        ends = ((), (tokens.between,)) if tokens.between else ((),)
        return [entry._replace(phones=(*phones, *end)) for end in ends]
    raise FormatError(
        f"{entry.place}: the word {shown(entry.word)} has no units, and the tokens of"
        f" {tokens.name} do not spell it"
    )
