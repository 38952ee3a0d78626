"""The words of models and their phones, as `align_lexicon.int` or the graph has them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ...framework.base.errors import FormatError
from ...kaldi.lattices.transition_ids import TransitionIds
from ..fst.graph import Graph, StaticGraph
from ..fst.words import Words
from ..lattice.align_lexicon import AlignLexicon
from ..lattice.word_boundary import WordBoundaries
from ..lexicon.entries import POSITIONS
from .graph_lexicon import graph_pronunciations

_FORMS = ("begin", "end", "internal", "singleton")
"""The order in which lang folders number the forms of a phone."""

Pronunciation = tuple[str, tuple[str, ...]]
"""A word and its phones."""


class SpokenModel(Protocol):
    """What of a model says how its words are spoken; see `Model`."""

    path: Path
    words: Words
    transitions: TransitionIds
    boundaries: WordBoundaries | None

    @property
    def lexicon(self) -> AlignLexicon | None: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def word_files(self) -> tuple[str, str]: ...

    def phone_name(self, phone: int) -> str: ...


def model_pronunciations(model: SpokenModel) -> list[Pronunciation]:
    """The words of a model and their phones, without their positions in words.

    They come from `align_lexicon.int`, or are read back from the graph where there is none. Phones
    are called as in `phones.txt`; where it is missing or of another model, a phone's name is the
    number of its form that begins words.

    Raises:
        FormatError: the folder has neither `align_lexicon.int` nor `word_boundary.int`.
    """
    found = spelled_words(model)
    names = base_names(model, model.boundaries)
    return [(model.words[word], tuple(names[phone] for phone in phones)) for word, phones in found]


def spelled_words(model: SpokenModel) -> list[tuple[int, tuple[int, ...]]]:
    """The same as numbers of words and phones."""
    lexicon, boundaries = model.lexicon, model.boundaries
    if lexicon is not None:
        return [(word, phones) for word, ways in lexicon.words.items() if word for phones in ways]
    if boundaries is not None:
        graph = model.graph
        fst = graph.fst if isinstance(graph, StaticGraph) else graph.first
        return graph_pronunciations(fst, model.transitions, boundaries)
    files = " nor ".join(model.word_files)
    raise FormatError(f"{model.path}: neither {files}: where words end cannot be seen")


def base_names(model: SpokenModel, boundaries: WordBoundaries | None) -> dict[int, str]:
    """The name of each phone without its position in words."""
    names = {}
    for phone in sorted(set(model.transitions.phone[1:])):
        name = model.phone_name(phone)
        if boundaries is not None:
            kind = boundaries.kind(phone)
            first = phone - _FORMS.index(kind) if kind in _FORMS else phone
            if name == str(phone) and boundaries.kinds[first] == _FORMS[0]:
                name = str(first)
            elif kind in _FORMS and name.endswith(POSITIONS):
                name = name[:-2]
        names[phone] = name
    return names
