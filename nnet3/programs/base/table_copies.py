"""Tables that programs write of other tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....framework.base.errors import FormatError
from ....kaldi.tables.kinds import Kind
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter


def write_table(name: str, kind: str | Kind, entries: Iterable[tuple[str, Any]]) -> int:
    """Write a table of entries, one after the other; returns how many they were."""
    with TableWriter(name, kind) as writer:
        for key, value in entries:
            writer.write(key, value)
        return writer.count


def are_tables(source: str, output: str) -> bool:
    """Whether both are tables. Raises FormatError: one alone is."""
    if is_specifier(source) != is_specifier(output):
        raise FormatError(f"{source}, {output}: a table is copied to a table, a file to a file")
    return is_specifier(source)


def first_words(name: str) -> set[str]:
    """The first words of a file's lines.

    Raises:
        FormatError: the file is binary, or a line is empty.
    """
    reader = open_reader(name)
    if reader.binary:
        raise FormatError(f"{name}: this is binary, but a list of keys is text")
    keys: set[str] = set()
    while reader.offset < reader.size:
        start = reader.offset
        words = reader.read_line().split()
        if not words:
            raise reader.error("a key was expected on each line", start)
        keys.add(words[0])
    return keys
