"""Tables of utterances that programs read speaker by speaker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from ....kaldi.tables.kinds import Kind
from ....kaldi.tables.tables import RandomAccessTable, read_table


class BySpeaker:
    """Each speaker of a table, with the keys and values of the utterances that are there.

    Args:
        options: of the program, which warns of the others. speakers: rspecifier of the utterances
            of speakers. utterances: rspecifier of values of this kind. warning: the key follows it.

    Attributes:
        missing: how many utterances were not there, of the speakers that were read.

    Raises:
        FormatError: a table cannot be read.
    """

    def __init__(
        self,
        options: SimpleNamespace,
        speakers: str,
        utterances: str,
        kind: str | Kind,
        warning: str,
    ) -> None:
        self._program = options.program
        self._speakers = speakers
        self._table = RandomAccessTable(utterances, kind)
        self._warning = warning
        self.missing = 0

    def __iter__(self) -> Iterator[tuple[str, Iterator[tuple[str, Any]]]]:
        for speaker, keys in read_table(self._speakers, "token_vector"):
            yield speaker, self._found(keys)

    def _found(self, keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
        for key in keys:
            if key in self._table:
                yield key, self._table[key]
            else:
                self._program.warn(f"{self._warning} {key}")
                self.missing += 1
