"""What a lang folder is made of: pronunciations, and lists of phones, as Kaldi's `dict` has them.

Source: Kaldi's `utils/prepare_lang.sh`, `utils/validate_dict_dir.pl`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...framework.base.errors import FormatError, nearest
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ...framework.base.untrusted.values import shown
from ..lattice.word_boundary import KINDS
from .entries import (
    FORMS,
    POSITIONS,
    Entry,
    below_one,
    check_phone,
    positive,
    read_entries,
    text_lines,
)

UNKNOWN_WORDS = ("<unk>", "<UNK>", "[unk]", "<SPOKEN_NOISE>", "<oov>", "<OOV>")
"""Words that stand for all that a lexicon lacks, by their usual names."""
_EDGES = ("<s>", "</s>_s", "</s>_n", "overall")

Lines = list[tuple[str, ...]]


@dataclass
class Dictionary:
    """Pronunciations and phones.

    Attributes:
        name: of the file or folder. entries: the pronunciations.
        silence, nonsilence: phones; phones of a line are forms of one and share the roots of trees.
        optional_silence: the phone that may stand between words.
        unknown: the word that stands for all others.
        questions: further sets of phones for the questions of trees.
        edges: the probability of silence before the first word, and the factors by which silence
            and its absence after the last word change the end's probability; None: entries have no
            probabilities of silence.
        boundaries: the lines of `word_boundary.txt`, where there is one: phones, and where in
            words they stand.
        nonterminals: symbols that other graphs take the place of.
    """

    name: str
    entries: list[Entry]
    silence: Lines
    nonsilence: Lines
    optional_silence: str
    unknown: str
    questions: Lines
    edges: tuple[float, float, float] | None = None
    boundaries: Lines = field(default_factory=list)
    nonterminals: tuple[str, ...] = ()


def read_dictionary(path: PathLike, unknown: str = "", silence_phones: str = "") -> Dictionary:
    """The dictionary of a folder, or of a lexicon alone; see `of_entries` for a lexicon.

    A folder has what Kaldi's `dict` folders have: `lexiconp_silprob.txt` with `silprob.txt`, or
    `lexiconp.txt`, or `lexicon.txt`; `silence_phones.txt`, `nonsilence_phones.txt`,
    `optional_silence.txt`, and if need be `extra_questions.txt`, `word_boundary.txt` and
    `nonterminals.txt`.

    Args:
        unknown: the word for all others; "": the one of `UNKNOWN_WORDS` that the lexicon has.

    Raises:
        FormatError: a file is missing or wrong, or the files contradict each other.
    """
    name = path_text(path)
    if not os.path.isdir(name):
        return of_entries(read_entries(name), name, unknown, silence_phones)
    lexicon = next((each for each in FORMS if os.path.isfile(os.path.join(name, each))), None)
    if lexicon is None:
        raise FormatError(f"{name}: no lexicon: {', '.join(FORMS)} are missing")
    entries = read_entries(os.path.join(name, lexicon))
    silence, nonsilence = (
        _phones(name, f"{kind}_phones.txt") for kind in ("silence", "nonsilence")
    )
    quiet, others = ({phone for line in lines for phone in line} for lines in (silence, nonsilence))
    if quiet & others:
        raise FormatError(f"{name}: the phone {shown(min(quiet & others))} is both silence and not")
    optional = [fields for _, fields in _lines(os.path.join(name, "optional_silence.txt"))]
    if len(optional) != 1 or len(optional[0]) != 1 or optional[0][0] not in quiet:
        raise FormatError(f"{name}/optional_silence.txt: one phone of silence_phones.txt is wanted")
    known = quiet | others
    for entry in entries:
        for phone in entry.phones:
            if phone not in known:
                raise unknown_phone(phone, known, entry.place)
    return Dictionary(
        name,
        entries,
        silence,
        nonsilence,
        optional[0][0],
        _unknown_word(entries, unknown, name),
        _questions(name, known, nonsilence),
        _edges(os.path.join(name, "silprob.txt")) if entries[0].silence is not None else None,
        _boundaries(os.path.join(name, "word_boundary.txt"), known),
        _nonterminals(os.path.join(name, "nonterminals.txt")),
    )


def of_entries(
    entries: Sequence[Entry], name: str, unknown: str = "", silence_phones: str = ""
) -> Dictionary:
    """The dictionary of a lexicon alone.

    It has the lexicon's phones. Where it has no word for all others, there will be one.

    Args:
        unknown: the word for all others; "": the one of `UNKNOWN_WORDS` that the lexicon has, or
            `<unk>`.
        silence_phones: names of phones that are silence or noise: of the silence between words, of
            unknown words, then others that are left out where the lexicon lacks them; "": `SIL SPN
            NSN`, in the case of letters that the lexicon has.

    Raises:
        FormatError: all phones of the lexicon are silence.
    """
    phones = dict.fromkeys(phone for entry in entries for phone in entry.phones)
    names = [_spelling(each, phones) for each in (silence_phones or "SIL SPN NSN").split()]
    for phone in names:
        check_phone(phone, "the phones of silence")
    words = {entry.word for entry in entries}
    unknown = unknown or next((each for each in UNKNOWN_WORDS if each in words), UNKNOWN_WORDS[0])
    entries = list(entries)
    needed = names[:1]
    if unknown not in words:
        needed = names[:2]
        entries.append(Entry(unknown, (names[:2][-1],), name))
    silence = [(each,) for each in names if each in phones or each in needed]
    nonsilence: Lines = [(phone,) for phone in sorted(phones, key=byte_order) if phone not in names]
    if not nonsilence:
        raise FormatError(f"{name}: all phones of the lexicon are silence: {' '.join(phones)}")
    return Dictionary(name, entries, silence, nonsilence, names[0], unknown, [])


def unknown_phone(phone: str, known: Collection[str], place: str) -> FormatError:
    """The error of a phone that is none of those that are known."""
    return FormatError(f"{place}: no phone {shown(phone)}{nearest(phone, known)}")


def check_positions(dictionary: Dictionary) -> None:
    """Refuse phones that look as if they were marked with their position in words already.

    Raises:
        FormatError: there is one.
    """
    for line in (*dictionary.silence, *dictionary.nonsilence):
        for phone in line:
            if phone.endswith(POSITIONS):
                raise FormatError(
                    f"{dictionary.name}: the phone {shown(phone)} ends as phones do that are marked"
                    " with their position in words; --position-dependent-phones=false leaves it so"
                )


def byte_order(text: str) -> bytes:
    """The key by which Kaldi's scripts sort, with LC_ALL=C."""
    return text.encode("utf-8", "surrogateescape")


def _spelling(phone: str, phones: Collection[str]) -> str:
    forms = phone, phone.lower(), phone.upper(), phone.title()
    return next((form for form in forms if form in phones), phone)


def _lines(path: str) -> list[tuple[str, tuple[str, ...]]]:
    """File and line of each line that is not empty, and its fields."""
    text = read_text(path, "surrogateescape")
    return [(place, tuple(fields)) for place, fields in text_lines(text, path)]


def _phones(folder: str, name: str) -> Lines:
    seen: set[str] = set()
    lines = _lines(os.path.join(folder, name))
    if not lines:
        raise FormatError(f"{folder}/{name}: there is no phone in this file")
    for place, phones in lines:
        for phone in phones:
            check_phone(phone, place)
            if phone in seen:
                raise FormatError(f"{place}: the phone {shown(phone)} comes again")
            seen.add(phone)
    return [phones for _, phones in lines]


def _unknown_word(entries: Sequence[Entry], unknown: str, name: str) -> str:
    words = {entry.word for entry in entries}
    wanted = (unknown,) if unknown else UNKNOWN_WORDS
    found = next((each for each in wanted if each in words), None)
    if found is None:
        hint = nearest(unknown, words) if unknown else "; --oov names it"
        raise FormatError(f"{name}: the lexicon has no word {' or '.join(wanted)}{hint}")
    return found


def _questions(folder: str, known: Collection[str], nonsilence: Lines) -> Lines:
    path = os.path.join(folder, "extra_questions.txt")
    lines = _lines(path) if os.path.isfile(path) else []
    for place, phones in lines:
        for phone in phones:
            if phone not in known:
                raise unknown_phone(phone, known, place)
    questions = [frozenset(phones) for _, phones in lines]
    for line in nonsilence:
        answers: dict[tuple[bool, ...], str] = {}
        for phone in line:
            other = answers.setdefault(tuple(phone in each for each in questions), phone)
            if other != phone:
                raise FormatError(
                    f"{path}: {shown(other)} and {shown(phone)} share a line of"
                    " nonsilence_phones.txt, and no question tells one from the other"
                )
    return [phones for _, phones in lines]


def _edges(path: str) -> tuple[float, float, float]:
    values: dict[str, float] = {}
    for place, fields in _lines(path):
        if len(fields) != 2 or fields[0] not in _EDGES:
            raise FormatError(f"{place}: one of {', '.join(_EDGES)} and a number are wanted")
        values[fields[0]] = (below_one if fields[0] == "<s>" else positive)(fields[1], place)
    missing = [each for each in _EDGES[:3] if each not in values]
    if missing:
        raise FormatError(f"{path}: a line {missing[0]} is missing")
    return values["<s>"], values["</s>_s"], values["</s>_n"]


def _boundaries(path: str, known: Collection[str]) -> Lines:
    lines = _lines(path) if os.path.isfile(path) else []
    for place, fields in lines:
        if len(fields) != 2 or fields[1] not in KINDS:
            raise FormatError(f"{place}: a phone and one of {', '.join(KINDS)} are wanted")
        if fields[0] not in known:
            raise unknown_phone(fields[0], known, place)
    return [fields for _, fields in lines]


def _nonterminals(path: str) -> tuple[str, ...]:
    if not os.path.isfile(path):
        return ()
    found: dict[str, None] = {}
    for place, fields in _lines(path):
        if len(fields) != 1 or not fields[0].startswith("#nonterm:") or fields[0] in found:
            raise FormatError(f"{place}: one symbol #nonterm:... is wanted, each a single time")
        found[fields[0]] = None
    return tuple(found)
