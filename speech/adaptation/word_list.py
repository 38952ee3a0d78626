"""New words and their phones, as lines of a file or a mapping have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ..lexicon.entries import Entry, check_entries, mapped_entries, text_lines
from ..pronunciation.guesser import Guesser
from ..pronunciation.known import Pronunciation


def read_words(words: PathLike | Mapping[str, str | Sequence[str]]) -> list[Entry]:
    """The words of a file, in each line one and its phones, which may be missing; or of a mapping
    from words to phones with spaces between them.

    Raises:
        FormatError: a line has a reserved symbol, or what an earlier one has; or there is none.
            With file and line.
    """
    if isinstance(words, Mapping):
        return mapped_entries(words)
    name = path_text(words)
    lines = text_lines(read_text(words, "surrogateescape"), name)
    entries = [Entry(fields[0], tuple(fields[1:]), place) for place, fields in lines]
    if not entries:
        raise FormatError(f"{name}: there is no word in this file")
    check_entries(entries)
    return entries


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
