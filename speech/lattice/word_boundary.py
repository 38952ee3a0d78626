"""Which phones begin, end or are inside of words: Kaldi's files `word_boundary.int`.

Source: `WordBoundaryInfo` in Kaldi's `lat/word-align-lattice.h`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import shown, whole_number

KINDS = ("nonword", "begin", "end", "internal", "singleton")
_MOST = 1 << 20


@dataclass(frozen=True)
class WordBoundaries:
    """Where in words phones stand.

    Attributes:
        kinds: of each phone, from 0 on, one of `KINDS`; empty where the file does not name it.
        silence_label, partial_label: labels of arcs of silence, and of arcs of phones at the end
            whose word is not known.
        reorder: self-loops stand after the transition that leaves their state.
    """

    kinds: tuple[str, ...]
    silence_label: int = 0
    partial_label: int = 0
    reorder: bool = True

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> WordBoundaries:
        """A file, in each line a phone and its kind.

        Raises:
            FormatError: a line is something else, or there is none.
        """
        kinds: dict[int, str] = {}
        for number, line in enumerate(read_file(path).splitlines(), 1):
            fields = line.decode("ascii", "replace").split()
            what = f"{os.fspath(path)}: line {number}"
            if len(fields) != 2 or fields[1] not in KINDS:
                entry = shown(" ".join(fields))
                raise FormatError(
                    f"{what}: {entry}: a phone and one of {', '.join(KINDS)} are wanted"
                )
            phone = whole_number(fields[0], what, 1, _MOST)
            if kinds.setdefault(phone, fields[1]) != fields[1]:
                raise FormatError(f"{what}: phone {phone} is '{kinds[phone]}' in a line before")
        if not kinds:
            raise FormatError(f"{os.fspath(path)}: there is no phone in this file")
        return cls(tuple(kinds.get(phone, "") for phone in range(max(kinds) + 1)))

    def kind(self, phone: int) -> str:
        """What a phone is.

        Raises:
            ShapeError: the file does not name it.
        """
        if not 0 <= phone < len(self.kinds) or not self.kinds[phone]:
            raise ShapeError(f"phone {phone} is not in the list of word boundaries")
        return self.kinds[phone]
