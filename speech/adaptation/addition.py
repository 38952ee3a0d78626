"""New words in the graph of a model: their numbers, labels, phones, paths and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ...framework.base.errors import ArgumentError, FormatError
from ...kaldi.files.kaldi_io import Reader
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.hmms import PhoneHmms
from ..fst.graph import NextLabels
from ..lattice.word_boundary import WordBoundaries
from ..lexicon.entries import Entry
from ..pronunciation.known import SpokenModel, base_names, model_pronunciations
from .contexts import Contexts, graph_contexts
from .grammar import NewLabel, Unigrams
from .joining import Joined, joined
from .junctions import Junctions
from .shared_paths import Spelling
from .word_list import NewWords, read_words, with_phones

COMMON_SILENCE = "the graph has one probability of silence for all words, this word has its own"


class GraphModel(SpokenModel, Protocol):
    """What words are added to; see `Model`."""

    @property
    def network_path(self) -> Path: ...

    @property
    def graph_folder(self) -> Path: ...


@dataclass(frozen=True)
class Adapted:
    """What a model has got.

    Attributes:
        words: new words and their phones, guessed where none were given.
        unseen: pairs of a phone and the one after it that the model's own words never have; the
            second one sounds there as after the phone that it follows most often.
        weight: the cost of each new word in the grammar.
    """

    words: list[tuple[str, tuple[str, ...]]]
    unseen: list[tuple[str, str]]
    weight: float


class Spelled:
    """New words, their phones in the forms that a model has of them, and their numbers.

    Args:
        words: a file with a word and its phones in each line, or a mapping. Words without phones
            get a guess by the model's pronunciations. None: there are none.
        least: the least number of a word that the model lacks.

    Attributes:
        entries: the pronunciations. phones: of each. rows: word and phones of each.
        numbers: of each word, among the model's words or after them.
        added: the words that the model lacks and their numbers, in the order of these.

    Raises:
        FormatError: a word is there already with the same phones or is none, or the model lacks a
            phone; with file and line. Or the model does not mark where words begin.
    """

    def __init__(self, model: GraphModel, words: NewWords | None, least: int = 0) -> None:
        if model.boundaries is None:
            raise FormatError(
                f"{model.path}: {model.word_files[0]} is missing: where words begin cannot be seen"
            )
        entries = [] if words is None else read_words(words)
        if any(not entry.phones or model.words.find(entry.word) is not None for entry in entries):
            entries = with_phones(entries, model_pronunciations(model))
        self.entries = entries
        self._names = base_names(model, model.boundaries)
        boundaries: WordBoundaries = model.boundaries
        self._forms = {(name, boundaries.kind(phone)): phone for phone, name in self._names.items()}
        self.phones = [self._in_forms(entry) for entry in entries]
        self.numbers: dict[str, int] = {}
        self.added: dict[str, int] = {}
        begin = max(len(model.words), least)
        # In the order of phones, so that the words of a beginning have labels side by side.
        for word in (entry.word for entry in sorted(entries, key=lambda entry: entry.phones)):
            if word not in self.numbers:
                known = model.words.find(word)
                self.numbers[word] = begin + len(self.added) if known is None else known
                if known is None:
                    self.added[word] = self.numbers[word]
        self.rows = [
            (self.numbers[entry.word], phones)
            for entry, phones in zip(entries, self.phones, strict=True)
        ]

    def adapted(self, unseen: Sequence[tuple[int, int]], weight: float) -> Adapted:
        """What the model has got: pairs of phones that it did not have, the cost of a word."""
        names = [(self._names.get(left, "<s>"), self._names[phone]) for left, phone in unseen]
        return Adapted([(entry.word, entry.phones) for entry in self.entries], names, weight)

    def _in_forms(self, entry: Entry) -> tuple[int, ...]:
        kinds = ["internal"] * len(entry.phones)
        kinds[0], kinds[-1] = "begin", "end"
        if len(kinds) == 1:
            kinds = ["singleton"]
        found = []
        for name, kind in zip(entry.phones, kinds, strict=True):
            phone = self._forms.get((name, kind))
            if phone is None:
                where = "alone in a word" if kind == "singleton" else f"at its place ({kind})"
                what = where if name in self._names.values() else ""
                raise FormatError(f"{entry.place}: the model has no phone {name} {what}".rstrip())
            found.append(phone)
        return tuple(found)


@dataclass(frozen=True)
class Addition:
    """A look-ahead graph with new words.

    Attributes:
        spelled: the words. first, second: the parts of the graph. labels: of the words
            that the second lacked. adapted: what is new in them.
    """

    spelled: Spelled
    first: Joined
    second: Fst
    labels: list[NewLabel]
    adapted: Adapted


def addition(
    model: GraphModel,
    words: NewWords,
    first: Fst,
    following: NextLabels,
    grammar: Fst,
    weight: float | None,
) -> Addition:
    """Add words to the parts of a look-ahead graph.

    Args:
        words: see `Spelled`.
        first, following: the lexicon, and the labels that can come next from its states.
        grammar: the other part.
        weight: the cost of a new word there; None: the median of the others.

    Raises:
        FormatError: see `Spelled`; no word of the graph has a phone of a new word at such a place;
            the graph is not made of such words, or the grammar has certain sentences alone.
            ArgumentError: the weight is no number.
    """
    unigrams = Unigrams(grammar, str(model.graph_folder / "Gr.fst"))
    weight = unigrams.weight if weight is None else checked_weight(weight)
    name = model.graph_folder / "HCLr.fst"
    ids = model.transitions
    transitions = TransitionModel.read_from(Reader(str(model.network_path)))
    # A new word has one number on both sides of the grammar, so that lists of phrases have it, too.
    free = 1 + max(
        int(following.intervals.max(initial=0)) - 1,
        *(int(labels.max(initial=0)) for labels in (first.olabel, grammar.ilabel)),
    )
    spelled = Spelled(model, words, free)
    labels, new = _labels(spelled, unigrams, max(free, len(model.words)))
    spellings = [
        Spelling(labels[entry.word], phones, -math.log(entry.probability), entry.silence)
        for entry, phones in zip(spelled.entries, spelled.phones, strict=True)
    ]
    try:
        phones = {phone for each in spelled.phones for phone in each}
        contexts = graph_contexts(first, ids, transitions, phones)
        hmms = PhoneHmms(contexts.tree, transitions)
        assert model.boundaries is not None  # `Spelled` has seen it
        parts = Junctions(first, ids, transitions, hmms, model.boundaries, contexts)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error
    _check(spelled, contexts, parts)
    first_new = min((label for label, *_ in new), default=free)
    made = joined(first, following, spellings, parts, hmms, first_new)
    unseen = sorted(made.used - contexts.seen)
    second = unigrams.with_words(new, weight)
    return Addition(spelled, made, second, new, spelled.adapted(unseen, weight))


def checked_weight(weight: float) -> float:
    """The cost of a word. Raises ArgumentError: it is no number."""
    if not abs(weight) < np.inf:
        raise ArgumentError(f"weight is a number, not {weight}")
    return weight


def _labels(
    spelled: Spelled, unigrams: Unigrams, begin: int
) -> tuple[dict[str, int], list[NewLabel]]:
    """The label of each word in the graph, and the words that the grammar lacks; their labels
    begin at `begin`, as the numbers of new words do."""
    free = begin + len(spelled.added)
    labels: dict[str, int] = {}
    new: list[NewLabel] = []
    for word, number in spelled.numbers.items():
        label = unigrams.label(number)
        if label is None:
            label = spelled.added.get(word, free)
            free += label == free
            new.append((label, number, word))
        labels[word] = label
    return labels, sorted(new)


def _check(spelled: Spelled, contexts: Contexts, parts: Junctions) -> None:
    """Refuse words whose phones no word of the graph has, or has at its end."""
    there = {phone for _, phone in contexts.seen}
    for entry, phones in zip(spelled.entries, spelled.phones, strict=True):
        for name, phone in zip(entry.phones, phones, strict=True):
            if phone not in there or (phone == phones[-1] and not parts.exits(phone)):
                raise FormatError(f"{entry.place}: no word of the model has phone {name} there")
        if entry.silence is not None and not parts.own_silence(phones[-1]):
            raise FormatError(f"{entry.place}: {COMMON_SILENCE}")
