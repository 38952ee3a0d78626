"""The pronunciations that lattices are aligned by: Kaldi's files `align_lexicon.int`.

Source: `WordAlignLatticeLexiconInfo` in Kaldi's `lat/word-align-lattice-lexicon.h`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import path_text, read_file
from ...framework.base.untrusted.values import whole_number

_MOST = (1 << 31) - 1

Phones = tuple[int, ...]


@dataclass(eq=False)
class AlignLexicon:
    """Pronunciations of words, and of what stands between words (word 0).

    Attributes:
        words: of each word of a lattice, its pronunciations and the word that each stands for.
    """

    words: dict[int, dict[Phones, int]]
    _begun: dict[int, frozenset[Phones]] = field(default_factory=dict, init=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> AlignLexicon:
        """A file; in each line the word of a lattice, the word to write, and phones.

        Raises:
            FormatError: a line is something else, or two of them contradict each other.
        """
        name = path_text(path)
        entries: list[tuple[int, ...]] = []
        for number, line in enumerate(read_file(name).splitlines(), 1):
            what = f"{name}: line {number}"
            fields = line.decode("ascii", "replace").split()
            if len(fields) < 2:
                raise FormatError(f"{what}: two words and phones are wanted, as numbers")
            entries.append(
                tuple(whole_number(one, what, int(at > 1), _MOST) for at, one in enumerate(fields))
            )
        if not entries:
            raise FormatError(f"{name}: there is no pronunciation in this file")
        return cls.of(entries, name)

    @classmethod
    def of(cls, entries: Iterable[tuple[int, ...]], what: str = "lexicon") -> AlignLexicon:
        """Entries as the lines of a file have them.

        Raises:
            FormatError: two of them contradict each other, or word 0 has no phones.
        """
        words: dict[int, dict[Phones, int]] = {}
        for word, written, *phones in entries:
            if not word and not phones:
                raise FormatError(f"{what}: an entry of word 0 without phones says nothing")
            known = words.setdefault(word, {}).setdefault(tuple(phones), written)
            if known != written:
                raise FormatError(
                    f"{what}: word {word} with phones {phones} stands for {known} and for {written}"
                )
        return cls(words)

    def lengths(self, word: int) -> tuple[int, int]:
        """The least and the largest number of phones of a word; (1, 0): it has no pronunciation."""
        counts = [len(phones) for phones in self.words.get(word, ())]
        return (min(counts), max(counts)) if counts else (1, 0)

    def begins(self, word: int, phones: Phones) -> bool:
        """Whether a pronunciation of a word begins with phones and continues."""
        if word not in self._begun:
            known = self.words.get(word, {})
            self._begun[word] = frozenset(
                each[:end] for each in known for end in range(1, len(each))
            )
        return phones in self._begun[word]
