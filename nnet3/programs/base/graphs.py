"""FSTs among the files of programs."""

from __future__ import annotations

from ...files.kaldi_io import Writer
from ...fst.fst import Fst
from ...fst.fst_io import read_fst, write_fst
from ...tables.streams import open_reader
from .saving import save


def open_fst(name: str) -> Fst:
    """The FST in a file, binary or text.

    Raises:
        FormatError: it is none.
    """
    reader = open_reader(name)
    reader.offset, reader.binary = 0, False
    return read_fst(reader)


def save_fst(fst: Fst, name: str, binary: bool = True) -> None:
    """Write an FST, without Kaldi's header. Raises SaveError: the file cannot be written."""
    writer = Writer(binary, header=False)
    write_fst(fst, writer)
    save(writer, name)
