"""The files of Kaldi's lang folders: tables of phones and words, lists of phones, L.fst.

Source: Kaldi's `utils/prepare_lang.sh`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ArgumentError, FormatError, doubled
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.opener import read_text
from ...framework.base.untrusted.values import shown
from ...kaldi.fst.algorithms.symbols import add_self_loops, sort_by
from ...kaldi.fst.files.fst_io import fst_bytes
from ...kaldi.fst.files.text import parse_symbols
from .dictionary import Dictionary, Lines, byte_order, check_positions
from .entries import POSITIONS, Entry, text_lines
from .lexicon_fst import LabeledEntries, Nonterminals, Silence, disambiguation, lexicon_fst
from .topology import topology

_GRAMMAR = "#0"  # the disambiguation symbol of language models
_PHONE_NONTERMINALS = ("#nonterm_bos", "#nonterm_begin", "#nonterm_end", "#nonterm_reenter")
_WORD_NONTERMINALS = ("#nonterm_begin", "#nonterm_end")
_KINDS = {"_B": "begin", "_E": "end", "_I": "internal", "_S": "singleton"}


@dataclass(frozen=True)
class LangOptions:
    """How a lang folder is made; names and defaults are the same as in `prepare_lang.sh`."""

    oov: str = option(
        "", "The word for all that the lexicon lacks; by default its <unk>, <UNK> or the like"
    )
    silence_phones: str = option(
        "",
        "Of a lexicon alone: the phone of silence, the phone of unknown words, other noises; by"
        " default 'SIL SPN NSN'",
    )
    position_dependent_phones: bool = option(
        True, "Mark phones with their position in the word: _B, _I, _E, _S"
    )
    num_sil_states: int = option(5, "States of phones of silence")
    num_nonsil_states: int = option(3, "States of other phones")
    share_silence_phones: bool = option(False, "All phones of silence share their outputs")
    sil_prob: float = option(0.5, "The probability of silence between words; 0: there is none")
    phone_symbol_table: str = option("", "Take the numbers of phones from this phones.txt")
    extra_word_disambig_syms: str = option(
        "", "File of further symbols that language models have, as #nonterm, one a line"
    )
    num_extra_phone_disambig_syms: int = option(
        1, "Disambiguation symbols beyond those that pronunciations need; the last is for silence"
    )

    def __post_init__(self) -> None:
        for name, low, high in (
            ("num_sil_states", 1, 100),
            ("num_nonsil_states", 1, 100),
            ("num_extra_phone_disambig_syms", 1, 1000),
        ):
            if not low <= getattr(self, name) <= high:
                raise ArgumentError(f"{name} is from {low} to {high}, not {getattr(self, name)}")
        if self.num_sil_states == 2:
            raise ArgumentError("num_sil_states is 1, or from 3 to 100, not 2")
        if not 0 <= self.sil_prob < 1:
            raise ArgumentError(f"sil_prob is from 0 to below 1, not {self.sil_prob:g}")


def lang_files(dictionary: Dictionary, options: LangOptions) -> dict[str, bytes]:
    """The files of a lang folder, by their paths in it.

    Raises:
        FormatError: a phone or symbol of the dictionary is refused.
    """
    return _Lang(dictionary, options).files()


class _Lang:
    """The files of a lang folder while they are made."""

    def __init__(self, dictionary: Dictionary, options: LangOptions) -> None:
        self._dictionary = dictionary
        self._options = options
        self._positions = options.position_dependent_phones
        if self._positions:
            check_positions(dictionary)
        self._silence = self._all_forms(dictionary.silence, True)
        self._nonsilence = self._all_forms(dictionary.nonsilence, False)
        self._marked = [self._with_positions(entry.phones) for entry in dictionary.entries]
        self._needed = disambiguation(self._marked)
        most = max(self._needed) + options.num_extra_phone_disambig_syms
        self._kinds = self._kinds_of_phones()
        self._of_words = [_GRAMMAR, *_word_symbols(options.extra_word_disambig_syms)]
        self._symbols = [f"#{number}" for number in range(most + 1)] + self._of_words[1:]
        self._phones = self._phone_table()
        self._words = self._word_table()
        nonterminals = dictionary.nonterminals
        if nonterminals:
            _append(self._phones, (*_PHONE_NONTERMINALS, *nonterminals))
            _append(self._words, (*_WORD_NONTERMINALS, *nonterminals))

    def files(self) -> dict[str, bytes]:
        """The contents of all files, by their paths."""
        dictionary, options = self._dictionary, self._options
        texts = {
            "phones.txt": _table(self._phones),
            "words.txt": _table(self._words),
            "oov.txt": f"{dictionary.unknown}\n",
            "oov.int": f"{self._words[dictionary.unknown]}\n",
            "topo": topology(
                [self._phones[phone] for phone in self._nonsilence],
                options.num_nonsil_states,
                [self._phones[phone] for phone in self._silence],
                options.num_sil_states,
            ),
        }
        lists = {
            "silence": self._silence,
            "nonsilence": self._nonsilence,
            "optional_silence": [dictionary.optional_silence],
            "disambig": self._symbols,
            "context_indep": self._silence,
        }
        for name, phones in lists.items():
            numbers = [self._phones[phone] for phone in phones]
            texts[f"phones/{name}.txt"] = "".join(f"{phone}\n" for phone in phones)
            texts[f"phones/{name}.int"] = "".join(f"{number}\n" for number in numbers)
            texts[f"phones/{name}.csl"] = ":".join(map(str, numbers)) + "\n"
        texts["phones/wdisambig.txt"] = "".join(f"{symbol}\n" for symbol in self._of_words)
        for name, table in (("phones", self._phones), ("words", self._words)):
            numbers = [table[symbol] for symbol in self._of_words]
            texts[f"phones/wdisambig_{name}.int"] = "".join(f"{number}\n" for number in numbers)
        sets = self._sets()
        roots = [("shared", "split", *line) for line in sets]
        if options.share_silence_phones:
            roots[0] = ("not-shared", "not-split", *sets[0])
        self._add(texts, "sets", sets)
        self._add(texts, "roots", roots, 2)
        questions, by_position = self._questions()
        self._add(texts, "extra_questions", [*questions, *by_position])
        # Kaldi's lines of phones by position end in a space.
        texts["phones/extra_questions.txt"] = _joined(questions) + "".join(
            f"{' '.join(line)} \n" for line in by_position
        )
        if self._kinds:
            texts["phones/word_boundary.txt"] = _joined(self._kinds)
            texts["phones/word_boundary.int"] = _joined(
                [str(self._phones[phone]), *kind] for phone, *kind in self._kinds
            )
        self._add_pronunciations(texts)
        made = {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}
        return made | {"L.fst": self._fst(False), "L_disambig.fst": self._fst(True)}

    def _add(
        self, texts: dict[str, str], name: str, lines: Sequence[Sequence[str]], first: int = 0
    ) -> None:
        """A list of lines, as text and with phones as numbers from the field `first` on."""
        texts[f"phones/{name}.txt"] = _joined(lines)
        texts[f"phones/{name}.int"] = _joined(
            [*line[:first], *(str(self._phones[phone]) for phone in line[first:])] for line in lines
        )

    # Phones

    def _forms(self, phone: str, is_silence: bool) -> list[str]:
        """A phone in all positions; silence may stand outside of words, too."""
        if not self._positions:
            return [phone]
        return [phone] * is_silence + [phone + position for position in POSITIONS]

    def _all_forms(self, lines: Lines, is_silence: bool) -> list[str]:
        phones = (phone for line in lines for phone in line)
        return [form for phone in phones for form in self._forms(phone, is_silence)]

    def _with_positions(self, phones: tuple[str, ...]) -> tuple[str, ...]:
        if not self._positions:
            return phones
        if len(phones) == 1:
            return (phones[0] + "_S",)
        inside = (phone + "_I" for phone in phones[1:-1])
        return (phones[0] + "_B", *inside, phones[-1] + "_E")

    def _phone_table(self) -> dict[str, int]:
        phones = ["<eps>", *self._silence, *self._nonsilence]
        path = self._options.phone_symbol_table
        if not path:
            return {symbol: number for number, symbol in enumerate([*phones, *self._symbols])}
        texts = parse_symbols(read_text(path, "surrogateescape"), path).texts
        known = {text: number for number, text in texts.items()}
        missing = [phone for phone in [*phones, _GRAMMAR] if phone not in known]
        if missing:
            raise FormatError(f"{path}: there is no phone {shown(missing[0])}")
        table = {phone: known[phone] for phone in sorted(phones, key=known.__getitem__)}
        return table | {symbol: known[_GRAMMAR] + i for i, symbol in enumerate(self._symbols)}

    def _sets(self) -> list[list[str]]:
        silence, nonsilence = self._dictionary.silence, self._dictionary.nonsilence
        if self._options.share_silence_phones:
            silence = [tuple(phone for line in silence for phone in line)]
        return [self._all_forms([line], True) for line in silence] + [
            self._all_forms([line], False) for line in nonsilence
        ]

    def _questions(self) -> tuple[list[list[str]], list[list[str]]]:
        """Sets of phones for the questions of trees: the dictionary's, and by position."""
        silence, nonsilence = (
            [phone for line in lines for phone in line]
            for lines in (self._dictionary.silence, self._dictionary.nonsilence)
        )
        given = [
            [form for phone in line for form in self._forms(phone, phone in silence)]
            for line in self._dictionary.questions
        ]
        if not self._positions:
            return given, []
        by_position = [[phone + end for phone in nonsilence] for end in POSITIONS]
        by_position += [[phone + end for phone in silence] for end in ("", *POSITIONS)]
        return given, by_position

    def _kinds_of_phones(self) -> list[tuple[str, ...]]:
        """The lines of `word_boundary.txt`: each phone and where in words it stands."""
        if self._positions:
            phones = (*self._silence, *self._nonsilence)
            return [(phone, _KINDS.get(phone[-2:], "nonword")) for phone in phones]
        return self._dictionary.boundaries

    # Words

    def _word_table(self) -> dict[str, int]:
        words = sorted({entry.word for entry in self._dictionary.entries}, key=byte_order)
        symbols = ["<eps>", *words, _GRAMMAR, "<s>", "</s>", *self._of_words[1:]]
        table = {symbol: number for number, symbol in enumerate(symbols)}
        if len(table) < len(symbols):
            raise FormatError(
                f"{self._options.extra_word_disambig_syms}: {shown(doubled(symbols)[0])} is a word"
                " of the lexicon"
            )
        return table

    def _add_pronunciations(self, texts: dict[str, str]) -> None:
        """The files `align_lexicon`, and files of nonterminals."""
        entries = zip(self._dictionary.entries, self._marked, strict=True)
        lines = {(entry.word, entry.word, *phones) for entry, phones in entries}
        lines.add(("<eps>", "<eps>", self._dictionary.optional_silence))
        listed = sorted(lines, key=lambda line: byte_order(" ".join(line)))
        nonterminals = self._dictionary.nonterminals
        if nonterminals:
            listed += [(symbol, symbol) for symbol in (*_WORD_NONTERMINALS, *nonterminals)]
            bos = _PHONE_NONTERMINALS[0]
            texts["phones/nonterm_phones_offset.int"] = f"{self._phones[bos]}\n"
            texts["phones/nonterm_phones_offset.txt"] = f"{bos}\n"
            self._add(texts, "nonterminals", [(symbol,) for symbol in nonterminals])
            self._add(texts, "left_context_phones", [(phone,) for phone in self._contexts()])
        texts["phones/align_lexicon.txt"] = _joined(listed)
        texts["phones/align_lexicon.int"] = _joined(
            [
                str(self._words[word]),
                str(self._words[written]),
                *(str(self._phones[phone]) for phone in phones),
            ]
            for word, written, *phones in listed
        )

    def _contexts(self) -> list[str]:
        """The phones that may stand before a nonterminal."""
        phones = [*self._silence, *self._nonsilence]
        if self._kinds:
            phones = [phone for phone, kind in self._kinds if kind in ("end", "singleton")]
            phones.append(self._dictionary.optional_silence)
        return [*phones, _PHONE_NONTERMINALS[0]]

    # L.fst

    def _fst(self, disambiguated: bool) -> bytes:
        phones = self._marked
        if disambiguated:
            phones = [
                (*each, f"#{number}") if number else each
                for each, number in zip(phones, self._needed, strict=True)
            ]
        last = self._symbols[max(self._needed) + self._options.num_extra_phone_disambig_syms]
        silence = Silence(
            self._phones[self._dictionary.optional_silence],
            self._phones[last] if disambiguated else 0,
            self._options.sil_prob,
            self._dictionary.edges,
        )
        fst = lexicon_fst(self._labeled(phones), silence, self._nonterminals())
        if disambiguated:
            inputs, outputs = (
                [table[symbol] for symbol in self._of_words]
                for table in (self._phones, self._words)
            )
            fst = add_self_loops(fst, inputs, outputs)
        return fst_bytes(sort_by(fst, "olabel"))

    def _labeled(self, phones: Sequence[tuple[str, ...]]) -> LabeledEntries:
        entries = self._dictionary.entries
        labels = [self._phones[phone] for each in phones for phone in each]
        own = None
        if self._dictionary.edges is not None:
            own = np.array([_silence_costs(entry) for entry in entries]).T
        return LabeledEntries(
            np.array([self._words[entry.word] for entry in entries], np.int64),
            np.array(labels, np.int64),
            np.array([len(each) for each in phones], np.int64),
            np.array([-math.log(entry.probability) for entry in entries]),
            own,
        )

    def _nonterminals(self) -> Nonterminals | None:
        if not self._dictionary.nonterminals:
            return None

        def labels(symbol: str) -> tuple[int, int]:
            return self._phones[symbol], self._words[symbol]

        begin, end = map(labels, _WORD_NONTERMINALS)
        return Nonterminals(
            begin,
            end,
            [labels(symbol) for symbol in self._dictionary.nonterminals],
            [self._phones[phone] for phone in self._contexts()],
        )


def _joined(lines: Iterable[Iterable[str]]) -> str:
    return "".join(f"{' '.join(line)}\n" for line in lines)


def _table(symbols: Mapping[str, int]) -> str:
    return "".join(f"{symbol} {number}\n" for symbol, number in symbols.items())


def _append(table: dict[str, int], symbols: Iterable[str]) -> None:
    for symbol in symbols:
        table[symbol] = max(table.values()) + 1


def _word_symbols(path: str) -> list[str]:
    """Further disambiguation symbols of language models."""
    if not path:
        return []
    found: dict[str, None] = {}
    for place, fields in text_lines(read_text(path, "surrogateescape"), path):
        symbol = fields[0]
        numeric = symbol[1:].lstrip("-").isdigit()
        if len(fields) != 1 or not symbol.startswith("#") or len(symbol) == 1 or numeric:
            raise FormatError(f"{place}: a symbol as #name is wanted, which is no number")
        if symbol in found:
            raise FormatError(f"{place}: the symbol {shown(symbol)} comes again")
        found[symbol] = None
    if not found:
        raise FormatError(f"{path}: there is no symbol in this file")
    return list(found)


def _silence_costs(entry: Entry) -> tuple[float, float, float, float]:
    """Of silence and none after the word, and of silence and none before it."""
    assert entry.silence is not None
    after, quiet, loud = entry.silence
    return -math.log(after), -math.log(1 - after), -math.log(quiet), -math.log(loud)
