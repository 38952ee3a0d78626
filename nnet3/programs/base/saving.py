"""Written values and models among the files of programs, and the status that programs end with."""

from __future__ import annotations

from typing import Protocol

import click

from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.streams import open_output


class Model(Protocol):
    """What writes itself: a network, an acoustic model, a transition model."""

    def write_to(self, writer: Writer) -> None: ...


def save(writer: Writer, name: str) -> None:
    """Write the bytes of a writer to a file. Raises SaveError: the file cannot be written."""
    with open_output(name) as file:
        file.write(writer.getvalue())


def write_model(model: Model, name: str, binary: bool) -> None:
    """Write a model in binary or text form. Raises SaveError: the file cannot be written."""
    writer = Writer(binary)
    model.write_to(writer)
    save(writer, name)


def fail_unless(done: object) -> None:
    """End the program with status 1 where nothing was done: scripts look at it."""
    if not done:
        raise click.exceptions.Exit(1)
