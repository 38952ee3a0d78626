"""Words and their phones, as lexicons and the folders of models know them."""

from __future__ import annotations

import os

from ...framework.base.untrusted.opener import PathLike, path_text
from ..lexicon.dictionary import read_dictionary
from ..pronunciation.known import Pronunciation, model_pronunciations
from ..recognize.model import Model

_NETWORKS = ("am/final.mdl", "final.mdl")


def known_pronunciations(path: PathLike) -> list[Pronunciation]:
    """The words and phones of a lexicon, of Kaldi's `dict` folder, or of a model's folder.

    Raises:
        FormatError: it is none of these, or cannot be read.
    """
    name = path_text(path)
    if any(os.path.isfile(os.path.join(name, each)) for each in _NETWORKS):
        return model_pronunciations(Model(name))
    return [(entry.word, entry.phones) for entry in read_dictionary(name).entries]
