"""New words and their phones, as lines of a file or a mapping have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ..lexicon.entries import (
    WITH_PROBABILITY,
    WITH_SILENCE,
    Entry,
    check_entries,
    mapped_text,
    numbers_before_phones,
    parse_entry,
    text_lines,
)
from ..pronunciation.guesser import Guesser
from ..pronunciation.known import Pronunciation

NewWords = PathLike | Mapping[str, str | Sequence[str] | None]
"""A file with a word and its phones in each line, or a mapping from words to phones with spaces
between them; phones may be missing, as None or an empty text. Numbers with a decimal point may
stand before them, as in Kaldi's `lexiconp.txt` (one) and `lexiconp_silprob.txt` (four)."""


def read_words(words: NewWords) -> list[Entry]:
    """The words of a file or a mapping, and their phones, if any.

    Raises:
        FormatError: a line has a reserved symbol, or what an earlier one has; or there is none.
            With file and line.
    """
    if isinstance(words, Mapping):
        name, text = "words", mapped_text(words, "words")
    else:
        name, text = path_text(words), read_text(words, "surrogateescape")
    entries = [_entry(fields, place) for place, fields in text_lines(text, name)]
    if not entries:
        raise FormatError(f"{name}: there is no word in this file")
    check_entries(entries)
    return entries


def _entry(fields: list[str], place: str) -> Entry:
    form = numbers_before_phones(fields)
    if not form:
        return Entry(fields[0], tuple(fields[1:]), place)
    if form not in (WITH_PROBABILITY, WITH_SILENCE):
        raise FormatError(
            f"{place}: {form} numbers after the word; the probability of the pronunciation stands"
            " there, or it and three numbers of silence"
        )
    return parse_entry(fields, place, form)


def with_phones(entries: list[Entry], known: Iterable[Pronunciation]) -> list[Entry]:
    """The same words; those without phones are guessed from what is known.

    Raises:
        FormatError: a word is known with these phones, or cannot be guessed. With file and line.
    """
    known = list(known)
    guesser = None
    found = []
    for entry in entries:
        if not entry.phones:
            guesser = guesser or Guesser.trained(known)
            try:
                guess = guesser.guess(entry.word)[0]
            except FormatError as error:
                raise FormatError(f"{entry.place}: {error}") from error
            entry = entry._replace(phones=guess.phones)
        found.append(entry)
    there = set(known)
    for entry in found:
        if (entry.word, entry.phones) in there:
            phones = " ".join(entry.phones)
            raise FormatError(f"{entry.place}: the model has the word {entry.word} with {phones}")
    check_entries(found)
    return found
