"""Written values and tables among the files of programs, and the status that programs end with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from ....framework.base.errors import FormatError
from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.kinds import Kind
from ....kaldi.tables.specifiers import is_specifier
from ....kaldi.tables.streams import open_output
from ....kaldi.tables.tables import TableWriter


def save(writer: Writer, name: str) -> None:
    """Write the bytes of a writer to a file. Raises SaveError: the file cannot be written."""
    with open_output(name) as file:
        file.write(writer.getvalue())


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


def fail_unless(done: object) -> None:
    """End the program with status 1 where nothing was done: scripts look at it."""
    if not done:
        raise click.exceptions.Exit(1)
