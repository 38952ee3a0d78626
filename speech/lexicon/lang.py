"""Lang folders written: what Kaldi's `prepare_lang.sh` writes, to the byte."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...framework.base.files.atomic import Writer, make_folder_of, write_together
from ...framework.base.untrusted.opener import PathLike, path_text
from .dictionary import of_entries, read_dictionary
from .entries import mapped_entries
from .lang_files import LangOptions, lang_files

_OF_SOME = ("word_boundary", "nonterminals", "nonterm_phones_offset", "left_context_phones")
"""Files of `phones/` that not every lexicon has."""


def make_lang(
    lexicon: PathLike | Mapping[str, str | Sequence[str]], out: PathLike, **options: Any
) -> None:
    """Write the lang folder of a lexicon: what Kaldi's `prepare_lang.sh` writes, to the byte.

    Args:
        lexicon: a file of words and their phones, Kaldi's `dict` folder, or a mapping from words
            to phones with spaces between them. out: the folder, which may be there already.
        options: see `LangOptions`.

    Raises:
        FormatError: the lexicon or another file is missing or wrong; with file and line.
            ArgumentError: an option is out of range. SaveError: the folder cannot be written.
            Nothing is written then.
    """
    known = LangOptions(**options)
    if isinstance(lexicon, Mapping):
        entries = mapped_entries(lexicon)
        dictionary = of_entries(entries, "lexicon", known.oov, known.silence_phones)
    else:
        dictionary = read_dictionary(lexicon, known.oov, known.silence_phones)
    write_lang(lang_files(dictionary, known), out)


def write_lang(files: Mapping[str, bytes | Writer], out: PathLike) -> None:
    """Write the files of a folder, by their paths in it: their bytes, or what writes these.

    Raises:
        SaveError: one cannot be written.
    """
    folder = path_text(out)
    targets = [(os.path.join(folder, *name.split("/")), data) for name, data in files.items()]
    for path, _ in targets:
        make_folder_of(path)
    write_together([(path, data if callable(data) else _saved(data)) for path, data in targets])
    phones = os.path.join(folder, "phones")
    for name in os.listdir(phones):  # another lexicon's files would be taken for this one's
        if name.partition(".")[0] in _OF_SOME and f"phones/{name}" not in files:
            os.remove(os.path.join(phones, name))


def _saved(data: bytes) -> Writer:
    return lambda file: file.write(data)
