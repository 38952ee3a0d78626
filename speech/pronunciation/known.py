"""Words and their phones, as lexicons and the folders of models know them."""

from __future__ import annotations

import os

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import PathLike, path_text
from ..fst.graph import StaticGraph
from ..lattice.word_boundary import WordBoundaries
from ..lexicon.dictionary import read_dictionary
from ..lexicon.entries import POSITIONS
from ..recognize.model import Model
from .graph_lexicon import graph_pronunciations

_NETWORKS = ("am/final.mdl", "final.mdl")
_FORMS = ("begin", "end", "internal", "singleton")
"""The order in which lang folders number the forms of a phone."""

Pronunciation = tuple[str, tuple[str, ...]]
"""A word and its phones."""


def known_pronunciations(path: PathLike) -> list[Pronunciation]:
    """The words and phones of a lexicon, of Kaldi's `dict` folder, or of a model's folder.

    Raises:
        FormatError: it is none of these, or cannot be read.
    """
    name = path_text(path)
    if any(os.path.isfile(os.path.join(name, each)) for each in _NETWORKS):
        return model_pronunciations(Model(name))
    return [(entry.word, entry.phones) for entry in read_dictionary(name).entries]


def model_pronunciations(model: Model) -> list[Pronunciation]:
    """The words of a model and their phones, without their positions in words.

    They come from `align_lexicon.int`, or are read back from the graph where there is none. Phones
    are called as in `phones.txt`; where it is missing or of another model, a phone's name is the
    number of its form that begins words.

    Raises:
        FormatError: the folder has neither `align_lexicon.int` nor `word_boundary.int`.
    """
    lexicon, boundaries = model.lexicon, model.boundaries
    if lexicon is not None:
        found = [(word, phones) for word, ways in lexicon.words.items() if word for phones in ways]
    elif boundaries is not None:
        graph = model.graph
        fst = graph.fst if isinstance(graph, StaticGraph) else graph.first
        found = graph_pronunciations(fst, model.transitions, boundaries)
    else:
        files = " nor ".join(model.word_files)
        raise FormatError(f"{model.path}: neither {files}: where words end cannot be seen")
    names = base_names(model, boundaries)
    return [(model.words[word], tuple(names[phone] for phone in phones)) for word, phones in found]


def base_names(model: Model, boundaries: WordBoundaries | None) -> dict[int, str]:
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
