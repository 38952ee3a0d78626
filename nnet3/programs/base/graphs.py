"""FSTs among the files of programs."""

from __future__ import annotations

from ...fst.fst import Fst
from ...fst.fst_io import read_fst
from ...tables.streams import open_reader


def open_fst(name: str) -> Fst:
    """The FST in a file, binary or text.

    Raises:
        FormatError: it is none.
    """
    reader = open_reader(name)
    reader.offset, reader.binary = 0, False
    return read_fst(reader)
