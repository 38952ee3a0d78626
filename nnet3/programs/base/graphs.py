"""FSTs among the files of programs."""

from __future__ import annotations

from ....kaldi.files.kaldi_io import Writer
from ....kaldi.fst.files.fst_io import read_fst, write_fst
from ....kaldi.fst.fst import Fst
from ....kaldi.tables.streams import Files
from .saving import save


def open_fst(name: str) -> Fst:
    """The FST in a file, of any type that is read.

    Raises:
        FormatError: it is none.
    """
    return read_fst(Files().reader(name))


def save_fst(fst: Fst, name: str, binary: bool = True) -> None:
    """Write an FST, without Kaldi's header. Raises SaveError: the file cannot be written."""
    writer = Writer(binary, header=False)
    write_fst(fst, writer)
    save(writer, name)
