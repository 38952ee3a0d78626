"""Pronunciations as text: lines of Kaldi's `lexicon.txt` and its forms with probabilities.

Source: Kaldi's `utils/validate_dict_dir.pl`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ...framework.base.untrusted.values import shown

RESERVED = ("<eps>", "<s>", "</s>", "#0")
"""Symbols of word tables that are no words."""
POSITIONS = ("_B", "_E", "_I", "_S")
"""Endings of phones that begin or end a word, stand inside of one, or are one."""
PLAIN, WITH_PROBABILITY, WITH_SILENCE = 0, 1, 4
"""Forms of lines: how many numbers stand between the word and its phones."""
FORMS = {
    "lexiconp_silprob.txt": WITH_SILENCE,
    "lexiconp.txt": WITH_PROBABILITY,
    "lexicon.txt": PLAIN,
}
"""Kaldi's names of files; of those in a folder the first one counts."""

_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_NO_TEXT = re.compile(r"[^\S \t\n]|\0")


class Entry(NamedTuple):
    """A pronunciation of a word.

    Attributes:
        word: its text. phones: one or more. place: file and line, for messages.
        probability: of this pronunciation among all of the word, above 0 and at most 1.
        silence: the probability of silence after the word, and by how much silence and its absence
            before the word change the word's probability; None: the same for all words.
    """

    word: str
    phones: tuple[str, ...]
    place: str
    probability: float = 1.0
    silence: tuple[float, float, float] | None = None


def read_entries(path: PathLike, form: int | None = None) -> list[Entry]:
    """The pronunciations in a file, one a line; empty lines are passed over.

    Args:
        form: `PLAIN`, `WITH_PROBABILITY` or `WITH_SILENCE`; None: what Kaldi's name of the file
            says, for other names one of the first two, as the first line has it.

    Raises:
        FormatError: a line has no phones, a number that is no probability, a reserved word or
            phone, or says what an earlier one does; or there is no line. With file and line.
    """
    if form is None:
        form = FORMS.get(os.path.basename(path_text(path)))
    return parse_entries(read_text(path, "surrogateescape"), path_text(path), form)


def parse_entries(text: str, name: str, form: int | None = None) -> list[Entry]:
    """The same of a text; `name` is its file's name."""
    entries: list[Entry] = []
    guessed = form is None
    for place, fields in text_lines(text, name):
        if form is None:
            form = WITH_PROBABILITY if _has_probability(fields) else PLAIN
        if guessed and form == PLAIN and _has_probability(fields):
            raise FormatError(f"{place}: a probability, which the first line does not have")
        entries.append(parse_entry(fields, place, form))
    if not entries:
        raise FormatError(f"{name}: there is no pronunciation in this file")
    check_entries(entries)
    return entries


def parse_entry(fields: Sequence[str], place: str, form: int) -> Entry:
    """The pronunciation in the fields of a line; see `read_entries`."""
    word, numbers, phones = fields[0], fields[1 : 1 + form], tuple(fields[1 + form :])
    if len(numbers) < form or not phones:
        raise FormatError(f"{place}: the word {shown(word)} has no phones")
    return Entry(word, phones, place, *_numbers(numbers, place))


def mapped_entries(lexicon: Mapping[str, str | Sequence[str]]) -> list[Entry]:
    """The pronunciations of a mapping from words to phones, with spaces between them.

    Several pronunciations of a word are a sequence of such texts.

    Raises:
        FormatError: as `read_entries`.
    """
    return parse_entries(mapped_text(lexicon, "lexicon"), "lexicon", PLAIN)


def mapped_text(lexicon: Mapping[str, str | Sequence[str] | None], name: str) -> str:
    """A mapping as lines of words and their phones; None: a word alone.

    Raises:
        FormatError: a word is empty or has a space; `name` stands for the file.
    """
    lines = []
    for word, each in lexicon.items():
        if word.split() != [word]:
            raise FormatError(f"{name}: the word {shown(word)} is empty or has a space")
        ways = [each] if each is None or isinstance(each, str) else each
        lines += [f"{word} {phones or ''}" for phones in ways]
    return "\n".join(lines)


def text_lines(text: str, name: str) -> Iterable[tuple[str, list[str]]]:
    """File and line, for messages, and the fields of each line that is not empty.

    Raises:
        FormatError: a line has a zero byte, or a space that only Unicode knows: programs differ in
            whether it ends a word.
    """
    other = _NO_TEXT.search(text)
    if other is not None:
        line = text.count("\n", 0, other.start()) + 1
        code = f"U+{ord(other[0]):04X}"
        raise FormatError(f"{name}: line {line}: the character {code}: only spaces and tabs part")
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        if fields:
            yield f"{name}: line {number}", fields


def check_phone(phone: str, place: str) -> None:
    """Refuse what is no phone. Raises FormatError: it is a reserved symbol."""
    if phone == "<eps>" or phone.startswith("#"):
        raise FormatError(f"{place}: {shown(phone)} is a reserved symbol, no phone")


def check_entries(entries: Sequence[Entry]) -> None:
    """Refuse what cannot stand in a lexicon.

    Raises:
        FormatError: a reserved symbol is a word or a phone, or a word has a pronunciation twice.
    """
    seen: dict[tuple[str, tuple[str, ...]], str] = {}
    checked: set[str] = set()
    for entry in entries:
        if entry.word in RESERVED or entry.word.startswith("#nonterm"):
            raise FormatError(f"{entry.place}: {shown(entry.word)} is a reserved symbol, no word")
        for phone in entry.phones:
            if phone not in checked:
                check_phone(phone, entry.place)
                checked.add(phone)
        first = seen.setdefault((entry.word, entry.phones), entry.place)
        if first is not entry.place:
            raise FormatError(
                f"{entry.place}: the word {shown(entry.word)} has this pronunciation already, in"
                f" line {first.rpartition(' ')[2]}"
            )


def _has_probability(fields: list[str]) -> bool:
    return len(fields) > 2 and numbers_before_phones(fields) > 0


def numbers_before_phones(fields: list[str]) -> int:
    """How many numbers with a decimal point, which no phone is, stand after the word."""
    of = ("." in field and _NUMBER.fullmatch(field) is not None for field in fields[1:])
    return sum(1 for _ in takewhile(bool, of))


def _numbers(texts: Sequence[str], place: str) -> tuple[float, tuple[float, float, float] | None]:
    if not texts:
        return 1.0, None
    probability = positive(texts[0], place, 1)
    if len(texts) == WITH_PROBABILITY:
        return probability, None
    after, with_silence, without = texts[1:]
    numbers = below_one(after, place), positive(with_silence, place), positive(without, place)
    return probability, numbers


def positive(text: str, place: str, most: float = math.inf) -> float:
    """The number that a field is. Raises FormatError: it is none, or not above 0 and to `most`."""
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < value <= most or value == math.inf:
        limit = "" if most == math.inf else f" and at most {most:g}"
        raise FormatError(f"{place}: {shown(text)}: a number above 0{limit} was expected")
    return value


def below_one(text: str, place: str) -> float:
    """The probability of silence that a field is. Raises FormatError: it is not between 0 and 1."""
    value = positive(text, place, 1)
    if value == 1:
        raise FormatError(f"{place}: {shown(text)}: a probability of silence is below 1")
    return value
