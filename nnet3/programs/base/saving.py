"""Written values among the files of programs."""

from __future__ import annotations

from ....kaldi.files.kaldi_io import Writer
from ....kaldi.tables.streams import open_output


def save(writer: Writer, name: str) -> None:
    """Write the bytes of a writer to a file. Raises SaveError: the file cannot be written."""
    with open_output(name) as file:
        file.write(writer.getvalue())
