"""Grammars of graphs, G: of ARPA files, texts, lists of phrases, JSGF.

Words that the lexicon lacks are refused with file and line, or left out with all n-grams that have
them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ArgumentError, FormatError, ShapeError
from ...framework.base.untrusted.opener import PathLike, open_text, path_text, read_file, read_text
from ...framework.base.untrusted.values import shown
from ...kaldi.fst.algorithms.determinize_star import determinize_star
from ...kaldi.fst.algorithms.operations import sort_arcs
from ...kaldi.fst.algorithms.partition import minimize_unpushed
from ...kaldi.fst.fst import DELTA, Fst
from ..fst.words import Words
from ..language_model.arpa import parse_arpa
from ..language_model.compile import compiled
from ..language_model.counting import RESERVED, text_of
from ..language_model.model import BEGIN, END, UNKNOWN, NgramModel
from ..language_model.smoothing import METHODS
from .jsgf import read_jsgf

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Vocabulary:
    """The words that grammars may have.

    Attributes:
        words: by label. backoff: the label of arcs to shorter histories. skip: leave out what has
            other words. name: of the table, for messages.
    """

    words: Words
    backoff: int
    skip: bool
    name: str

    def label(self, word: str, place: str) -> int:
        """The label of a word, 0 where it is left out. Raises FormatError: it is none."""
        label = self.words.find(word)
        if label and label != self.backoff:
            return label
        message = f"{place}: the word {shown(word)} is not in {self.name}"
        if not self.skip:
            raise FormatError(message)
        _log.warning("%s, and what has it is left out", message)
        return 0


def grammar_of(
    vocabulary: Vocabulary, sources: Mapping[str, PathLike | None], order: int, method: str
) -> Fst | None:
    """The grammar of one source; None: there is none.

    Args:
        sources: files, as "arpa", "text", "phrases", "jsgf". order, method: of the model of a text.

    Raises:
        ArgumentError: there are several. FormatError: see the functions for each of them.
    """
    given = {kind: path for kind, path in sources.items() if path is not None}
    if len(given) > 1:
        raise ArgumentError(f"one grammar is wanted, not {' and '.join(given)}")
    for kind, path in given.items():
        if kind == "text":
            return of_text(path, vocabulary, order, method)
        return {"arpa": of_arpa, "phrases": of_phrases, "jsgf": of_jsgf}[kind](path, vocabulary)
    return None


def of_arpa(path: PathLike, vocabulary: Vocabulary) -> Fst:
    """The grammar of an n-gram model in an ARPA file.

    Raises:
        FormatError: see `read_arpa`; or it has a word that the vocabulary lacks.
    """
    text = parse_arpa(read_file(path), path_text(path))
    model = text.model()
    places = [text.place(1, row) for row in range(len(text.vocabulary))]
    return _of_model(model, places, vocabulary)


def of_text(path: PathLike, vocabulary: Vocabulary, order: int, method: str) -> Fst:
    """The grammar of an n-gram model of a text, a sentence a line.

    Raises:
        FormatError: the text has no sentence or a word that the vocabulary lacks, or is too small
            for the method.
    """
    name = path_text(path)
    with open_text(name, "surrogateescape") as file:
        lines = list(file)
    known = {word for word in words_of(vocabulary.words) if vocabulary.words.find(word)}
    for number, line in enumerate(lines, 1):
        for word in set(line.split()) - known - set(RESERVED):
            vocabulary.label(word, f"{name}: line {number}")
    model = METHODS[method](text_of(lines, name, sorted(known)), order)
    return _of_model(model, [name] * len(model.vocabulary), vocabulary)


def words_of(words: Words) -> list[str]:
    """The words of a table that a language model may have, in their order."""
    texts = map(words.__getitem__, range(1, len(words)))
    return [word for word in texts if not word.startswith("#") and word not in RESERVED]


def _of_model(model: NgramModel, places: list[str], vocabulary: Vocabulary) -> Fst:
    if not vocabulary.backoff:
        raise FormatError(
            f"{vocabulary.name}: there is no #0, which n-gram models need for shorter histories"
        )
    labels = np.empty(len(model.vocabulary), np.int64)
    beyond = len(vocabulary.words)  # for words that are on no path
    ends = {BEGIN: beyond, END: beyond + 1}
    for at, word in enumerate(model.vocabulary):
        if word in ends:
            labels[at] = ends[word]
        elif word == UNKNOWN and not vocabulary.words.find(word):
            labels[at] = -1  # the rest of the probability, for all other words
        else:
            labels[at] = vocabulary.label(word, places[at]) or -1
    return sort_arcs(compiled(model, labels, beyond, beyond + 1, vocabulary.backoff))


def of_phrases(path: PathLike, vocabulary: Vocabulary) -> Fst:
    """The grammar that has the lines of a file as its sentences, all equally likely.

    Raises:
        FormatError: there is no line with words, or one has a word that the vocabulary lacks.
    """
    name = path_text(path)
    phrases = []
    for number, line in enumerate(read_text(name, "surrogateescape").split("\n"), 1):
        labels = [vocabulary.label(word, f"{name}: line {number}") for word in line.split()]
        if labels and all(labels):
            phrases.append(labels)
    if not phrases:
        raise FormatError(f"{name}: there is no phrase in it")
    source, label, target = [], [], []
    states = 2  # the start and the end
    for labels in phrases:
        inner = range(states, states + len(labels) - 1)
        states += len(inner)
        source += [0, *inner]
        label += labels
        target += [*inner, 1]
    cost = np.where(np.array(source) == 0, np.float32(math.log(len(phrases))), np.float32(0))
    final = np.full(states, np.inf, np.float32)
    final[1] = 0
    columns = np.array(source), np.array(label), cost, np.array(target)
    return _compact(Fst.of_arcs(*columns, final), name)


def of_jsgf(path: PathLike, vocabulary: Vocabulary) -> Fst:
    """The grammar in a JSGF file; see `jsgf`.

    Raises:
        FormatError: see `read_jsgf`; or it has a word that the vocabulary lacks.
    """
    name = path_text(path)
    return _compact(read_jsgf(read_text(name, "surrogateescape"), name, vocabulary.label), name)


def _compact(fst: Fst, name: str) -> Fst:
    """The same sentences in few states, without epsilons."""
    try:
        fst = minimize_unpushed(determinize_star(fst, log=True), DELTA)
    except ShapeError as error:
        raise FormatError(f"{name}: the grammar cannot be determinized: {error}") from error
    if not fst.states:
        raise FormatError(f"{name}: the grammar has no sentence")
    return sort_arcs(fst)
