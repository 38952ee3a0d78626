"""The text that is aligned: its words as a model knows them, and where they stand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.untrusted.opener import read_text
from ...framework.base.untrusted.values import shown
from ..fst.graph import Graph, LookaheadGraph
from ..fst.words import Words

_MOST_LISTED = 5
_UNKNOWNS = ("[unk]", "<unk>", "<UNK>", "<SPOKEN_NOISE>", "<spn>")
_PUNCTUATION = ".,;:!?\"'()[]«»„“”‘’…-–—。、，！？"


@dataclass(frozen=True)
class SpokenText:
    """What is said in a recording.

    Attributes:
        lines: the words of each line; lines without words are left out.
        numbers: the number of each line in its file.
        name: for errors.
    """

    lines: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...]
    name: str = "text"

    @classmethod
    def of(cls, text: str | Sequence[str], name: str = "text") -> SpokenText:
        """A text, or its words.

        Raises:
            OpscopeError: there is no word in it.
        """
        rows = text.removeprefix("\ufeff").split("\n") if isinstance(text, str) else [*_words(text)]
        kept = [(tuple(row.split()), at) for at, row in enumerate(rows, 1) if row.split()]
        if not kept:
            raise OpscopeError(f"{name}: there is no word to be aligned")
        return cls(tuple(row for row, _ in kept), tuple(at for _, at in kept), name)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SpokenText:
        """A file in UTF-8.

        Raises:
            FormatError: it cannot be read, or is no text. OpscopeError: there is no word in it.
        """
        return cls.of(read_text(path), os.fspath(path))

    def words(self) -> Iterator[tuple[str, str]]:
        """Each word, and where it stands."""
        for number, line in zip(self.numbers, self.lines, strict=True):
            for place, word in enumerate(line, 1):
                yield word, f"line {number}, word {place}"


def _words(words: Sequence[str]) -> Iterator[str]:
    """The words of a list as one line.

    Raises:
        OpscopeError: one of them is none, or has a space in it.
    """
    for word in words:
        if len(word.split()) != 1:
            raise OpscopeError(f"{shown(word)} in a list of words is no word")
    yield " ".join(words)


def labels_of(
    text: SpokenText, words: Words, graph: Graph, unknown: str | None = None
) -> list[int]:
    """The label of each word of a text.

    Args:
        words: that the model knows. graph: that they must be in.
        unknown: the word of the model that stands for words that it lacks.

    Raises:
        OpscopeError: words are not in the model and nothing stands for them, or they are never
            spoken in its graph; each is listed with its place.
    """
    stands = _label_of_unknown(unknown, words)
    labels: list[int] = []
    missing: list[str] = []
    for word, place in text.words():
        label = words.find(word) or stands
        if not label:
            missing.append(f"{shown(word)} ({place}){_hint(word, words)}")
        labels.append(label or 0)
    if missing:
        usual = [name for name in _UNKNOWNS if words.find(name)]
        advice = f"unknown={usual[0]!r} lets one stand for them" if usual else ""
        raise OpscopeError(f"{text.name}: not in the model: {_some(missing)}" + _joined(advice))
    silent = set(_unspoken(labels, graph))
    if silent:
        places = [
            f"{shown(word)} ({place})"
            for label, (word, place) in zip(labels, text.words(), strict=True)
            if label in silent
        ]
        raise OpscopeError(
            f"{text.name}: in the model's table of words, but without a pronunciation in its"
            f" graph: {_some(places)}"
        )
    return labels


def _label_of_unknown(unknown: str | None, words: Words) -> int:
    if unknown is None:
        return 0
    label = words.find(unknown)
    if not label:
        usual = [name for name in _UNKNOWNS if words.find(name)]
        advice = f"the model has {', '.join(usual)}" if usual else ""
        raise OpscopeError(f"unknown={unknown!r} is no word of the model" + _joined(advice))
    return label


def _hint(word: str, words: Words) -> str:
    """The word as the model knows it, where only its case or punctuation differs."""
    bare = word.strip(_PUNCTUATION)
    for other in (word.lower(), bare, bare.lower(), bare.upper()):
        if other and words.find(other):
            return f", which the model knows as {shown(other)}"
    return ""


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - _MOST_LISTED} more" if len(items) > _MOST_LISTED else ""
    return "; ".join(items[:_MOST_LISTED]) + more


def _joined(note: str) -> str:
    return f" ({note})" if note else ""


def _unspoken(labels: Iterable[int], graph: Graph) -> list[int]:
    """Those labels that no arc of the graph has."""
    fst = graph.first if isinstance(graph, LookaheadGraph) else graph.fst
    wanted = np.unique(np.fromiter(labels, np.int32))
    there = np.zeros(int(wanted.max(initial=0)) + 2, bool)
    outputs = fst.arcs["olabel"]
    there[np.minimum(outputs, len(there) - 1)] = True
    return wanted[~there[wanted]].tolist()
